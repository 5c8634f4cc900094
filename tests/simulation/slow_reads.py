"""A store whose reads take their time, as those of a disk do, or of an object store.

What is read is what lay there when the read began or when it ended, by turns; whoever reads may
find that much has happened meanwhile. Without a delay nothing suspends, as in memory.
"""

from __future__ import annotations

import asyncio
from random import Random

from magnetar_storage.memory.engine import MemoryDisk, MemorySnapshot, MemoryStore


class Reads:
    """How long the reads of one disk take.

    Attributes:
        seconds_max: of one read; 0: none suspends.
    """

    def __init__(self, random: Random) -> None:
        self.seconds_max = 0.0
        self.count = 0
        self._random = random

    async def pause(self) -> None:
        if self.seconds_max:
            self.count += 1
            await asyncio.sleep(self._random.random() * self.seconds_max)

    def before(self) -> bool:
        """Whether the time passes before the rows are looked at, or after."""
        return self._random.random() < 0.5


class SlowStore(MemoryStore):
    """A MemoryStore whose reads suspend."""

    def __init__(
        self,
        disk: MemoryDisk,
        families: tuple[str, ...],
        reads: Reads,
        *,
        late_syncs: bool = False,
    ) -> None:
        super().__init__(disk, families, late_syncs=late_syncs)
        self._reads = reads

    async def get(self, family: str, key: bytes) -> bytes | None:
        if not self._reads.seconds_max:
            return await super().get(family, key)
        if self._reads.before():
            await self._reads.pause()
            return await super().get(family, key)
        value = await super().get(family, key)
        await self._reads.pause()
        self._check()
        return value

    async def scan(
        self,
        family: str,
        start: bytes,
        end: bytes,
        *,
        rows_max: int,
        bytes_max: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        early = self._reads.seconds_max and self._reads.before()
        if early:
            await self._reads.pause()
        rows = await super().scan(
            family, start, end, rows_max=rows_max, bytes_max=bytes_max, reverse=reverse
        )
        if not early:
            await self._reads.pause()
            self._check()
        return rows

    async def prefixes(
        self, family: str, start: bytes, end: bytes, *, length: int, count_max: int
    ) -> tuple[list[bytes], bytes | None]:
        found = await super().prefixes(family, start, end, length=length, count_max=count_max)
        await self._reads.pause()
        self._check()
        return found

    async def snapshot(self) -> MemorySnapshot:
        snapshot = await super().snapshot()
        await self._reads.pause()
        self._check()
        return snapshot
