"""The RocksDB engine, through rocksdict in raw mode.

`write` holds the GIL whatever is asked of it, so a batch is written without sync on the event loop:
a copy into the page cache and the memtable. The fsync then runs as `flush_wal(True)` on one worker
thread, where rocksdict releases the GIL. Reads are direct calls. Since only the event loop writes,
views of all families taken in one call show one moment.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import weakref
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import rocksdict

from magnetar_storage.blob_garbage import (
    AGE_CUTOFF_COLLECTING,
    AGE_CUTOFF_LEAVING,
    is_to_collect,
)
from magnetar_storage.rocks_options import (
    database_options,
    payload_family_options,
    row_family_options,
)
from magnetar_storage.rocks_prefixes import walk_prefixes
from magnetar_storage.store import DELETE, PUT, StoreFailed, StoreInUse, WriteBatch

# Looks at the garbage of blob files lie so many syncs apart.
SYNCS_PER_LOOK = 200


class RocksStore:
    """One opening of a data directory. Open it with `RocksStore.open`."""

    def __init__(
        self,
        path: str,
        database: rocksdict.Rdict,
        families: Collection[str],
        *,
        payload_families: Collection[str],
        unsynced: bool,
    ) -> None:
        self._path = path
        self._database = database
        self._families = {name: database.get_column_family(name) for name in families}
        self._handles = {name: database.get_column_family_handle(name) for name in families}
        self._snapshots: weakref.WeakSet[RocksSnapshot] = weakref.WeakSet()
        self._payload_families = [self._families[name] for name in payload_families]
        # Those whose compactions collect garbage, by place.
        self._collecting: set[int] = set()
        self._sync_count = 0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="store-sync")
        self._unsynced = unsynced
        self._failure: str | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        families: Collection[str],
        *,
        payload_families: Collection[str] = (),
        block_cache_bytes: int = 32 << 20,
        unsynced: bool = False,
    ) -> RocksStore:
        """Open or create a data directory. Blocks while the write-ahead log is replayed.

        Args:
            families: what this process reads and writes; missing ones are created.
            payload_families: those of them whose large values go to blob files.
            unsynced: sync() hands rows to the operating system and no further, so that they outlive
                the process but not the machine.
        Raises:
            StoreInUse: another process has this directory open.
            StoreFailed: this directory cannot be opened as a store.
        """
        unknown = set(payload_families) - set(families)
        assert not unknown, f"payload families that are no families: {sorted(unknown)}"
        directory = os.fspath(path)
        os.makedirs(directory, exist_ok=True)
        cache = rocksdict.Cache(block_cache_bytes)
        try:
            # RocksDB insists on opening whatever is there, in use or not.
            names = set(families) | _existing_families(directory)
            options = {
                name: payload_family_options(cache)
                if name in payload_families
                else row_family_options(cache)
                for name in sorted(names)
            }
            database = rocksdict.Rdict(directory, database_options(), options)
        except Exception as error:
            if "LOCK:" in str(error) or "lock file" in str(error):
                message = f"another process uses this data directory: {directory}"
                raise StoreInUse(message) from error
            raise StoreFailed(f"cannot open {directory}: {error}") from error
        return cls(
            directory, database, families, payload_families=payload_families, unsynced=unsynced
        )

    async def write(self, batch: WriteBatch) -> None:
        self._check()
        handles = self._handles
        raw = rocksdict.WriteBatch(raw_mode=True)
        for kind, family, key, value in batch.operations:
            if kind == PUT:
                raw.put(key, value, handles[family])
            elif kind == DELETE:
                raw.delete(key, handles[family])
            else:
                raw.delete_range(key, value, handles[family])
        try:
            self._database.write(raw)
        except Exception as error:
            raise self._fail("write", error) from error

    async def sync(self) -> None:
        self._check()
        try:
            if self._unsynced:
                self._sync()
                return
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, self._sync)
        except Exception as error:
            raise self._fail("sync", error) from error
        self._check()

    async def get(self, family: str, key: bytes) -> bytes | None:
        self._check()
        rows = self._families[family]
        try:
            value: bytes | None = rows.get(key)
        except Exception as error:
            raise self._fail("get", error) from error
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
        self._check()
        rows = self._families[family]
        try:
            return _scan(rows, start, end, rows_max, bytes_max, reverse)
        except Exception as error:
            raise self._fail("scan", error) from error

    async def prefixes(
        self, family: str, start: bytes, end: bytes, *, length: int, count_max: int
    ) -> tuple[list[bytes], bytes | None]:
        self._check()
        rows = self._families[family]
        try:
            return walk_prefixes(rows, start, end, length, count_max)
        except Exception as error:
            raise self._fail("prefixes", error) from error

    async def snapshot(self) -> RocksSnapshot:
        self._check()
        try:
            # An iterator shows its moment for as long as it lives; rocksdict's own snapshots,
            # when iterated over, show the newest rows.
            views = {name: rows.iter() for name, rows in self._families.items()}
        except Exception as error:
            raise self._fail("snapshot", error) from error
        snapshot = RocksSnapshot(self, views)
        self._snapshots.add(snapshot)
        return snapshot

    def free_bytes(self) -> int:
        return shutil.disk_usage(self._path).free

    async def close(self) -> None:
        """Release the directory. RocksDB flushes its memtables here, which may take a while."""
        if self._closed:
            return
        self._closed = True
        failed_before = self._failure is not None
        self._failure = self._failure or "the store is closed"
        # RocksDB holds the directory's lock until the last of these references is gone.
        for snapshot in list(self._snapshots):
            snapshot.release()
        self._handles.clear()
        families = list(self._families.values())
        self._families.clear()
        self._payload_families.clear()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, _close, families, self._database)
        except Exception as error:
            if not failed_before:
                raise self._fail("close", error) from error
        finally:
            self._executor.shutdown()

    def _sync(self) -> None:
        self._database.flush_wal(not self._unsynced)
        self._sync_count += 1
        if self._sync_count % SYNCS_PER_LOOK == 0:
            self._look_at_garbage()

    def _look_at_garbage(self) -> None:
        for place, rows in enumerate(list(self._payload_families)):
            collecting = place in self._collecting
            wanted = is_to_collect(
                rows.property_int_value("rocksdb.live-blob-file-size") or 0,
                rows.property_int_value("rocksdb.live-blob-file-garbage-size") or 0,
                collecting=collecting,
            )
            if wanted != collecting:
                cutoff = AGE_CUTOFF_COLLECTING if wanted else AGE_CUTOFF_LEAVING
                rows.set_options({"blob_garbage_collection_age_cutoff": str(cutoff)})
                self._collecting ^= {place}

    def _check(self) -> None:
        if self._failure is not None:
            raise StoreFailed(self._failure)

    def _fail(self, action: str, error: Exception) -> StoreFailed:
        self._failure = f"{action} failed in {self._path}: {error}"
        return StoreFailed(self._failure)


class RocksSnapshot:
    """A frozen view of every family. It ends with its store."""

    def __init__(self, store: RocksStore, views: dict[str, rocksdict.RdictIter]) -> None:
        self._store = store
        self._views: dict[str, rocksdict.RdictIter] | None = views

    async def get(self, family: str, key: bytes) -> bytes | None:
        rows = await self.scan(family, key, key + b"\x00", rows_max=1)
        return rows[0][1] if rows else None

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
        self._store._check()
        if self._views is None:
            raise StoreFailed("the snapshot is closed")
        iterator = self._views[family]
        try:
            return _walk(iterator, start, end, rows_max, bytes_max, reverse)
        except Exception as error:
            raise self._store._fail("scan", error) from error

    async def close(self) -> None:
        self.release()

    def release(self) -> None:
        self._views = None


def _existing_families(directory: str) -> set[str]:
    if not os.path.exists(os.path.join(directory, "CURRENT")):
        return set()
    return set(rocksdict.Rdict.list_cf(directory)) - {"default"}


def _close(families: list[rocksdict.Rdict], database: rocksdict.Rdict) -> None:
    for family in families:
        family.close()
    database.close()


def _scan(
    family: rocksdict.Rdict,
    start: bytes,
    end: bytes,
    rows_max: int,
    bytes_max: int | None,
    reverse: bool,
) -> list[tuple[bytes, bytes]]:
    options = rocksdict.ReadOptions()
    options.set_background_purge_on_iterator_cleanup(True)
    # The bound spares the walk what was deleted beyond it. No lower bound is set: rocksdict 0.3
    # hands it to RocksDB as an upper one.
    if start < end and not reverse:
        options.set_iterate_upper_bound(end)
    return _walk(family.iter(options), start, end, rows_max, bytes_max, reverse)


def _walk(
    iterator: rocksdict.RdictIter,
    start: bytes,
    end: bytes,
    rows_max: int,
    bytes_max: int | None,
    reverse: bool,
) -> list[tuple[bytes, bytes]]:
    assert rows_max > 0
    rows: list[tuple[bytes, bytes]] = []
    if start >= end:
        return rows
    if reverse:
        iterator.seek_for_prev(end)
        if iterator.valid() and iterator.key() == end:
            iterator.prev()
    else:
        iterator.seek(start)
    valid, key_of, value_of = iterator.valid, iterator.key, iterator.value
    step = iterator.prev if reverse else iterator.next
    byte_count = 0
    while valid():
        key = key_of()
        if key < start or key >= end:
            break
        value = value_of()
        rows.append((key, value))
        if len(rows) == rows_max:
            return rows
        if bytes_max is not None:
            byte_count += len(key) + len(value)
            if byte_count >= bytes_max:
                return rows
        step()
    # An iterator that met an error ends early: without this, rows would go missing.
    iterator.status()
    return rows
