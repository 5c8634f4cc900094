"""Keeps the durable mark of an open store up to date.

A mark is written at once when a group became durable, unless one was written a second ago or less:
then that second is waited out. So there is at most one write a second, and none while nothing
becomes durable. Groups do not wait for marks.
Source: docs/design/0021-durable-marks.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from magnetar_storage.durable_mark import DurableMark, MarkPlace

log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 1.0


class MarkUpdates:
    """Writes the mark of an open store.

    Args:
        place: where the mark lies.
        generation: of the store.
        durable_sequence: returns the number of the newest durable group.
        where: the address of the store, for the log.
    """

    def __init__(
        self,
        place: MarkPlace,
        generation: int,
        durable_sequence: Callable[[], int],
        where: str,
    ) -> None:
        self._place = place
        self._generation = generation
        self._durable_sequence = durable_sequence
        self._where = where
        self._written = 0
        # On the clock of the event loop.
        self._next_at = 0.0
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._write_task: asyncio.Task[None] | None = None

    def group_is_durable(self) -> None:
        """Note that the mark is behind the store."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="store-mark")

    async def stop(self, *, in_order: bool) -> None:
        """Stop writing marks.

        Args:
            in_order: whether the store still has this owner. Then a write that is under way ends
                first, so that it cannot overtake the last one.
        """
        tasks = [self._task, self._write_task]
        if in_order and self._write_task is not None:
            await asyncio.wait([self._write_task])
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)

    async def write_last(self) -> None:
        """Write the mark of a store that is closed in order, after stop()."""
        await self._write()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._durable_sequence() != self._written:
            await asyncio.sleep(max(0.0, self._next_at - loop.time()))
            self._next_at = loop.time() + INTERVAL_SECONDS
            self._write_task = loop.create_task(self._write())
            await asyncio.shield(self._write_task)

    async def _write(self) -> None:
        """Write the mark. If that fails, the store goes on: the mark says less than it could."""
        sequence = self._durable_sequence()
        if sequence == self._written:
            return
        try:
            await self._place.write(DurableMark(self._generation, sequence))
        except Exception as error:
            self._failures += 1
            # Ever more seldom: at 1, 2, 4, 8, ...
            if self._failures & (self._failures - 1) == 0:
                log.warning(
                    "%s is not written: %s. If %s lost its newest groups, that would not be"
                    " noticed",
                    self._place,
                    error,
                    self._where,
                )
            return
        if self._failures:
            log.info("%s is written again", self._place)
        self._failures, self._written = 0, sequence
