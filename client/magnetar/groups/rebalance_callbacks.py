"""The application's callbacks about partitions that come and go, and the work that waits for them.

Everything here happens one after the other, so that callbacks come in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any

from magnetar.groups.settings import Callbacks, OnPartitions
from magnetar.link.runtime import Runtime, WorkOwner
from magnetar.topic_partition import TopicPartition
from magnetar_core.ids import PartitionName

log = logging.getLogger("magnetar")


# Whose callback runs.
_calling: ContextVar[RebalanceCallbacks | None] = ContextVar("magnetar callback", default=None)


def place_of(name: PartitionName) -> TopicPartition:
    """A partition as applications name it."""
    return TopicPartition(name.topic, name.partition)


class RebalanceCallbacks:
    """Calls the callbacks of one member of a group."""

    def __init__(
        self,
        runtime: Runtime,
        group: str,
        callbacks: Callbacks,
        on_failed: Callable[[], None],
        owner: WorkOwner,
    ) -> None:
        """No partition is assigned yet.

        Args:
            on_failed: called when a callback has raised; see `take_failure`.
            owner: called when other work has failed: the member is not what its group thinks.
        """
        self._owner = owner
        self._runtime = runtime
        self._group = group
        self._callbacks = callbacks
        self._on_failed = on_failed
        self._failure: Exception | None = None
        # The partitions for which on_assigned was called, and neither on_revoked nor on_lost.
        self._reported: dict[PartitionName, None] = {}
        # What waits for the callbacks before it.
        self._work: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def is_calling(self) -> bool:
        """Whether this is asked within one of the callbacks, also on a thread of its own."""
        return _calling.get() is self

    def later(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this after all that was asked for before; not at all when it is closed."""
        if self._closing:
            return
        self._work.append(work)
        if self._worker is None:
            self._worker = self._runtime.spawn(
                self._do_work, f"callbacks of {self._group}", self._owner
            )

    async def _do_work(self) -> None:
        try:
            while self._work:
                await self._work.popleft()()
        finally:
            self._worker = None

    async def assigned(self, names: Sequence[PartitionName]) -> None:
        """Tell the application that these partitions were assigned to it."""
        self._reported.update(dict.fromkeys(names))
        await self._call(self._callbacks.on_assigned, names)

    async def revoked(self, names: Sequence[PartitionName]) -> None:
        """Tell the application that these partitions are about to be given back."""
        await self._call_gone(self._callbacks.on_revoked, names)

    async def lost(self, names: Sequence[PartitionName]) -> None:
        """Tell the application that these partitions were given to others."""
        await self._call_gone(self._callbacks.on_lost, names)

    def take_failure(self) -> Exception | None:
        """Return the exception of a callback, and forget it; None: there was none."""
        failure, self._failure = self._failure, None
        return failure

    async def close(self) -> None:
        """Finish pending callbacks, and tell the application that it gives all partitions back."""
        self._closing = True
        worker = self._worker
        # A callback that closes its consumer would wait for itself.
        if worker is not None and not self.is_calling:
            await asyncio.gather(worker, return_exceptions=True)
        await self._call(self._callbacks.on_revoked, list(self._reported))

    async def _call_gone(
        self, callback: OnPartitions | None, names: Sequence[PartitionName]
    ) -> None:
        """Call back about those of which the application was told that they came."""
        known = [name for name in names if name in self._reported]
        for name in known:
            del self._reported[name]
        await self._call(callback, known)

    async def _call(self, callback: OnPartitions | None, names: Sequence[PartitionName]) -> None:
        if callback is None or not names:
            return
        token = _calling.set(self)
        try:
            result = callback([place_of(name) for name in names])
            if isawaitable(result):
                await result
        except Exception as error:
            # The next receive raises it: otherwise the application would not see it.
            log.info("a callback of group %s failed: %r", self._group, error)
            self._failure = error
            self._on_failed()
        finally:
            _calling.reset(token)
