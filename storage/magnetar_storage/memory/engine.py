"""In-memory engine, for simulation and tests.

`MemoryDisk` outlives a process: it keeps rows, loses unsynced rows on command, fails, fills and
stalls as told. `MemoryStore` is the store of a process that has opened the disk. All randomness and
time are injected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from random import Random

from magnetar_core.invariants import BrokenInvariant
from magnetar_storage.memory.table import Table
from magnetar_storage.store import (
    DELETE,
    PUT,
    RowsUnreadable,
    StoreFailed,
    StoreInUse,
    WriteBatch,
)
from magnetar_storage.store_identity import IDENTITY_FAMILY, KEY, with_losses

# How to undo a batch: in reverse order, put these rows back (None: delete the key).
_Undo = list[tuple[str, bytes, bytes | None]]


class MemoryDisk:
    """Rows that survive the process, and the faults of the disk.

    Every fault is a plain attribute that a test may set at any time.

    Args:
        random: decides failures that have a probability. Without it, probabilities must stay 0.
        sleep: how a stall passes time, in seconds.
    """

    def __init__(
        self,
        *,
        random: Random | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.free_bytes = 1 << 40  # Not reduced by writes; a batch larger than this fails.
        self.write_seconds = 0.0
        self.sync_seconds = 0.0
        self.write_failure_probability = 0.0
        self.sync_failure_probability = 0.0
        # Rows that cannot be read, by family and key.
        self.unreadable: set[tuple[str, bytes]] = set()
        # Values that are read instead of the stored ones, where no checksum of the engine detects
        # the damage.
        self.torn: dict[tuple[str, bytes], bytes] = {}
        self.write_count = 0  # Batches ever written, lost ones included.
        self.sync_count = 0
        self._random = random
        self._sleep = sleep
        self._fail_next_write = False
        self._fail_next_sync = False
        self._tables: dict[str, Table] = {}
        self._undo: deque[_Undo] = deque()  # An entry for each unsynced batch, oldest first.
        # As `unsynced_note`: whether the server answers before it syncs, and did not stop in order;
        # and whether the power failed then.
        self._has_note = False
        self._went_down = False
        self._opened_by: MemoryStore | None = None

    def fail_next_write(self) -> None:
        """Fail the next write."""
        self._fail_next_write = True

    def fail_next_sync(self) -> None:
        """Fail the next sync."""
        self._fail_next_sync = True

    @property
    def unsynced_batch_count(self) -> int:
        """The number of batches that were written and not synced."""
        return len(self._undo)

    def crash(self, random: Random | None = None) -> int:
        """End the process that has this disk open. Returns how many batches were lost.

        Args:
            random: chooses how much of the unsynced tail is lost, in whole batches, from none to
                all, as after a power loss. None: nothing is lost, as after kill -9.
        """
        self._opened_by = None
        self._went_down = self._went_down or random is not None
        lost_count = 0 if random is None else random.randint(0, len(self._undo))
        for _ in range(lost_count):
            for family, key, value in reversed(self._undo.pop()):
                table = self._writable(family)
                if value is None:
                    table.delete(key)
                else:
                    table.put(key, value)
        self._undo.clear()  # Batches that survived a crash are on the disk.
        return lost_count

    def durable(self, family: str, key: bytes) -> bytes | None:
        """A row as it would be if all that is not synced were lost now; None: it would not be."""
        for undo in self._undo:
            for name, changed, before in undo:
                if changed == key and name == family:
                    return before
        table = self._tables.get(family)
        return None if table is None else table.values.get(key)

    def durable_keys(self, family: str) -> list[bytes]:
        """Return the keys of all rows that a crash would leave."""
        table = self._tables.get(family)
        keys = dict.fromkeys(table.keys if table is not None else ())
        for undo in self._undo:
            for name, changed, _ in undo:
                if name == family:
                    keys[changed] = None
        return [key for key in keys if self.durable(family, key) is not None]

    def _writable(self, family: str) -> Table:
        """Return the family's table, copied first if a snapshot uses it."""
        table = self._tables[family]
        if table.shared:
            table = self._tables[family] = table.copy()
        return table

    def _count_lost_tail(self) -> None:
        table = self._writable(IDENTITY_FAMILY)
        row = table.values.get(KEY)
        if row is not None:
            table.put(KEY, with_losses(row, 0, 1))

    def _apply(self, batch: WriteBatch) -> None:
        undo: _Undo = []
        for kind, family, key, value in batch.operations:
            table = self._writable(family)
            if kind == PUT:
                undo.append((family, key, table.put(key, value)))
            elif kind == DELETE:
                undo.append((family, key, table.delete(key)))
            else:
                removed = table.delete_range(key, value)
                undo.extend((family, row_key, row_value) for row_key, row_value in removed)
        self._undo.append(undo)
        self.write_count += 1

    def _keep(self, write_count: int) -> None:
        """Mark the first write_count batches as synced."""
        while self._undo and self.write_count - len(self._undo) < write_count:
            self._undo.popleft()

    def _write_fails(self, batch: WriteBatch) -> bool:
        failed, self._fail_next_write = self._fail_next_write, False
        full = batch.byte_count > self.free_bytes
        return failed or full or self._strikes(self.write_failure_probability)

    def _sync_fails(self) -> bool:
        failed, self._fail_next_sync = self._fail_next_sync, False
        return failed or self._strikes(self.sync_failure_probability)

    def _strikes(self, probability: float) -> bool:
        if not probability:
            return False
        if self._random is None:
            raise BrokenInvariant("a probability needs an injected random")
        return self._random.random() < probability


class MemoryStore:
    """A store on a MemoryDisk. After the disk's crash every call raises StoreFailed.

    Args:
        late_syncs: as for RocksStore.open().
    Raises:
        StoreInUse: the disk is open already.
    """

    def __init__(
        self, disk: MemoryDisk, families: Collection[str], *, late_syncs: bool = False
    ) -> None:
        if disk._opened_by is not None:
            raise StoreInUse("another process uses this disk")
        for name in families:
            disk._tables.setdefault(name, Table())
        if disk._has_note and disk._went_down:
            disk._count_lost_tail()
        disk._has_note, disk._went_down = late_syncs, False
        disk._opened_by = self
        self._disk = disk
        self._families = frozenset(families)
        self._failure: str | None = None

    async def write(self, batch: WriteBatch) -> None:
        """Apply a batch; see `Store.write`."""
        self._check()
        disk = self._disk
        for _, family, _, _ in batch.operations:
            if family not in self._families:
                raise KeyError(family)
        if disk.write_seconds:
            await disk._sleep(disk.write_seconds)
            self._check()
        if disk._write_fails(batch):
            raise self._fail("write failed")
        disk._apply(batch)

    def write_ahead(self, batch: WriteBatch) -> None:
        """Do nothing; see `Store.write_ahead`."""

    async def sync(self) -> None:
        """Make all written batches durable; see `Store.sync`."""
        self._check()
        disk = self._disk
        target = disk.write_count  # Rows written during a stall are not covered.
        if disk.sync_seconds:
            await disk._sleep(disk.sync_seconds)
            self._check()
        if disk._sync_fails():
            raise self._fail("sync failed")
        disk.sync_count += 1
        disk._keep(target)

    async def get(self, family: str, key: bytes) -> bytes | None:
        """Return a row's value; see `Reader.get`."""
        self._check()
        table = self._table(family)
        if (family, key) in self._disk.unreadable:
            raise RowsUnreadable("the row is damaged", family=family)
        value = table.values.get(key)
        return value if value is None else self._disk.torn.get((family, key), value)

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
        """Return the rows of a range; see `Reader.scan`."""
        self._check()
        table = self._table(family)
        rows = table.scan(start, end, rows_max=rows_max, bytes_max=bytes_max, reverse=reverse)
        if self._disk.unreadable:
            for place, (key, _) in enumerate(rows):
                if (family, key) in self._disk.unreadable:
                    rows = self._as_read(family, rows[:place])
                    raise RowsUnreadable("a row is damaged", family=family, rows=rows)
        return self._as_read(family, rows)

    def _as_read(self, family: str, rows: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        torn = self._disk.torn
        if not torn:
            return rows
        return [(key, torn.get((family, key), value)) for key, value in rows]

    async def prefixes(
        self, family: str, start: bytes, end: bytes, *, length: int, count_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Return the distinct beginnings of keys; see `Store.prefixes`."""
        self._check()
        found = self._table(family).prefixes(start, end, length=length, count_max=count_max)
        behind = end if found[1] is None else found[1]
        if any(name == family and start <= key < behind for name, key in self._disk.unreadable):
            raise RowsUnreadable("a row is damaged", family=family)
        return found

    async def snapshot(self) -> MemorySnapshot:
        """Freeze a view of all families; see `Store.snapshot`."""
        self._check()
        tables = {name: self._table(name) for name in self._families}
        for table in tables.values():
            table.shared = True
        return MemorySnapshot(self, tables)

    def free_bytes(self) -> int:
        """Return the disk's free space, in bytes."""
        return self._disk.free_bytes

    async def close(self) -> None:
        """Release the disk. Repeating it is harmless."""
        disk = self._disk
        if disk._opened_by is self:
            disk._opened_by = None
            if self._failure is None and not disk._undo:
                disk._has_note = False
        self._failure = self._failure or "the store is closed"

    def _table(self, family: str) -> Table:
        if family not in self._families:
            raise KeyError(family)
        return self._disk._tables[family]

    def _check(self) -> None:
        if self._failure is not None:
            raise StoreFailed(self._failure)
        if self._disk._opened_by is not self:
            raise StoreFailed("the process crashed")

    def _fail(self, failure: str) -> StoreFailed:
        self._failure = failure
        return StoreFailed(failure)


class MemorySnapshot:
    """A frozen view of every family. It ends with its store."""

    def __init__(self, store: MemoryStore, tables: dict[str, Table]) -> None:
        self._store = store
        self._tables: dict[str, Table] | None = tables

    async def get(self, family: str, key: bytes) -> bytes | None:
        """Return a row's value; see `Reader.get`."""
        return self._table(family).values.get(key)

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
        """Return the rows of a range; see `Reader.scan`."""
        table = self._table(family)
        return table.scan(start, end, rows_max=rows_max, bytes_max=bytes_max, reverse=reverse)

    async def close(self) -> None:
        """Release the view. Repeating it is harmless."""
        self._tables = None

    def _table(self, family: str) -> Table:
        self._store._check()
        if self._tables is None:
            raise StoreFailed("the snapshot is closed")
        return self._tables[family]
