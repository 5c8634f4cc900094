"""A disk as an object store is one: whoever opens it fences all who had it open before.

What a fenced store writes fails; what it reads is what was there when it was fenced. An opener sees
everything that was durable, and perhaps a part of what was under way. A write takes effect at some
moment between its beginning and its answer: an answer may come when another one has the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from tests.simulation.slow_reads import Reads, SlowStore

from magnetar_storage.memory.engine import MemoryDisk
from magnetar_storage.memory.table import Table
from magnetar_storage.store import StoreFailed, StoreFenced, WriteBatch

# Of a write that is durable when it is answered.
SYNC_SECONDS = (0.005, 0.05)


class FencedDisk(MemoryDisk):
    """Rows that belong to a shard, and to no machine.

    Attributes:
        sync_seconds: of a stall; without one, a sync takes an ordinary time.
        fences: off for a planted bug: earlier openers go on.
        on_durable: told, with its epoch, of whoever has made something durable.
    """

    def __init__(self, random: Random) -> None:
        super().__init__(random=random)
        self.random = random
        self.fences = True
        self.on_durable: Callable[[FencedStore], None] = lambda store: None
        self.fenced_count = 0

    def seconds(self) -> float:
        """How long the next write takes."""
        return self.sync_seconds if self._stalls else self.random.uniform(*SYNC_SECONDS)

    def seconds_max(self) -> float:
        """How long it may take."""
        return self.sync_seconds if self._stalls else SYNC_SECONDS[1]

    @property
    def _stalls(self) -> bool:
        return self.sync_seconds > SYNC_SECONDS[0]

    def lose_what_is_under_way(self) -> int:
        """As a new opener finds it: what nobody was told to be durable is there, or is not."""
        return self.crash(self.random)


class FencedStore(SlowStore):
    """A store that is good until somebody else opens the disk.

    Args:
        epoch: of the ownership for which it is opened.
        reach: returns when the store can be reached from where it is open.
    """

    def __init__(
        self,
        disk: FencedDisk,
        families: tuple[str, ...],
        reads: Reads,
        epoch: int,
        reach: Callable[[], Awaitable[None]],
    ) -> None:
        before = disk._opened_by
        if isinstance(before, FencedStore) and disk.fences:
            before.fence()
        lost_count = disk.lose_what_is_under_way()
        super().__init__(disk, families, reads)
        self.epoch = epoch
        self.lost_count = lost_count
        self._fenced_disk = disk
        self._reach = reach
        # Told before each attempt to write.
        self.on_write: Callable[[], None] = lambda: None
        self._rows: dict[str, Table] | None = None
        # Whoever had it open shall not write any more.
        self.is_abandoned = False

    @property
    def is_fenced(self) -> bool:
        return self._rows is not None

    def fence(self) -> None:
        """Another one opens the disk now."""
        tables = {name: self._table(name) for name in self._families}
        for table in tables.values():
            table.shared = True
        self._rows = tables

    async def write(self, batch: WriteBatch) -> None:
        self.on_write()
        self._check_owner()
        await super().write(batch)

    async def sync(self) -> None:
        self._check_owner()
        disk = self._fenced_disk
        target = disk.write_count
        seconds = disk.seconds()
        before = seconds * disk.random.random()
        await disk._sleep(before)
        await self._reach()
        self._check_owner()
        if disk._sync_fails():
            raise self._fail("sync failed")
        disk.sync_count += 1
        disk._keep(target)
        disk.on_durable(self)
        # It has taken effect; the answer may come to one who is fenced by then.
        await disk._sleep(seconds - before)

    async def abandon(self) -> None:
        self.is_abandoned = True
        await self.close()

    async def close(self) -> None:
        if self._rows is None:
            await super().close()
        self._failure = self._failure or "the store is closed"

    def _check_owner(self) -> None:
        self._check()
        if self._rows is not None:
            self._failure = "another process has opened the store"
            self._fenced_disk.fenced_count += 1
            raise StoreFenced(self._failure)

    def _check(self) -> None:
        if self._failure is not None:
            raise (StoreFailed if self._rows is None else StoreFenced)(self._failure)
        if self._rows is None and self._fenced_disk.fences:
            super()._check()

    def _table(self, family: str) -> Table:
        return super()._table(family) if self._rows is None else self._rows[family]
