"""A group commit on a disk whose syncs stall while a gate is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore
from magnetar_storage.store import KEY_END

# More turns of the event loop than anything here takes that need not wait.
TURNS = 10

C = TypeVar("C", bound=GroupCommit)


class Gated(Generic[C]):
    """The disk, the commits, and what was seen."""

    def __init__(self, make: Callable[[MemoryStore], C], *, late_syncs: bool = False) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.disk = MemoryDisk(sleep=self._stall)
        self.disk.sync_seconds = 1.0
        self.store = MemoryStore(self.disk, ("rows",), late_syncs=late_syncs)
        self.failures: list[BaseException] = []
        self.seen: list[Any] = []
        self.commits = make(self.store)

    async def _stall(self, _: float) -> None:
        await self.gate.wait()

    def put(self, number: int) -> int:
        self.commits.batch.put("rows", b"%03d" % number, b"v")
        return self.commits.position()

    def durable(self, what: Any, position: int | None = None) -> None:
        """See that when it is durable."""
        at = self.commits.position() if position is None else position
        self.commits.when_durable(at, partial(self.seen.append, what))

    async def stored(self) -> list[int]:
        rows = await self.store.scan("rows", b"", KEY_END, rows_max=1000)
        return [int(key) for key, _ in rows]
