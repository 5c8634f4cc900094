"""Work beside a SlateDB store: moves rows to tables, notices another owner, tells of long waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from slatedb import uniffi

from magnetar_storage.slatedb.reads import end_of, is_closed, text_of
from magnetar_storage.store import StoreFailed

log = logging.getLogger(__name__)

# How soon after SlateDB has noticed another owner the store ends.
LOOK_SECONDS: Final = 0.25
SLOW_SECONDS: Final = 5.0
TABLES: Final = uniffi.FlushOptions(flush_type=uniffi.FlushType.MEM_TABLE)


class Background:
    """The tasks of an open store.

    Args:
        database: the binding's database.
        where: the store's address, for the log.
        unflushed_groups_max: synced groups after which rows are moved to tables.
        on_end: called when SlateDB has ended by itself.
    """

    def __init__(
        self,
        database: Any,
        where: str,
        *,
        unflushed_groups_max: int,
        on_end: Callable[[StoreFailed], None],
    ) -> None:
        self._database = database
        self._where = where
        self._groups_max = unflushed_groups_max
        self._on_end = on_end
        # Opening replayed the groups of the process before.
        self._groups = unflushed_groups_max
        self._flush: asyncio.Task[None] | None = None
        self._watch = asyncio.get_running_loop().create_task(self._look(), name="store-watch")
        self.flush_count = 0

    def group_is_durable(self) -> None:
        """Count a group; from time to time, begin to move rows to tables."""
        self._groups += 1
        if self._groups >= self._groups_max and (self._flush is None or self._flush.done()):
            self._groups = 0
            self._flush = asyncio.get_running_loop().create_task(
                self._flush_tables(), name="store-tables"
            )

    async def close(self) -> None:
        """End the tasks. What is not in tables is in the log."""
        tasks = [one for one in (self._watch, self._flush) if one is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _flush_tables(self) -> None:
        try:
            await self._database.flush_with_options(TABLES)
            self.flush_count += 1
        except uniffi.Error as error:
            # The rows are durable in the log. The watch is told of an end, too.
            if not is_closed(error):
                log.warning("rows of %s stay in its log: %s", self._where, text_of(error))

    async def _look(self) -> None:
        """Ask SlateDB whether it has ended: an idle server would not notice."""
        while True:
            reason = self._database.status().close_reason
            if reason is not None:
                self._on_end(end_of(self._where, reason, f"SlateDB ended: {reason.name}"))
                return
            await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def told_when_slow(what: str) -> AsyncIterator[None]:
    """Say in the log that something waits for the object store, and when it goes on."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    timers: list[asyncio.TimerHandle] = []

    def tell() -> None:
        waited = loop.time() - began
        log.warning(
            "%s has waited for the object store for %d s, and goes on when it answers", what, waited
        )
        timers.append(loop.call_later(2 * waited, tell))

    timers.append(loop.call_later(SLOW_SECONDS, tell))
    try:
        yield
    finally:
        timers[-1].cancel()
    if len(timers) > 1:
        log.warning("%s went on after %d s", what, loop.time() - began)
