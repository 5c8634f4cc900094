"""RocksDB engine, through rocksdict in raw mode.

`write` always holds the GIL, so the event loop writes a batch without sync: a copy into the page
cache and the memtable. The fsync then runs as `flush_wal(True)` on a worker thread, where rocksdict
releases the GIL. Reads are direct calls. Since only the event loop writes, views of all families
that a single call takes show the same moment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import weakref
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import rocksdict

from magnetar_core.invariants import BrokenInvariant
from magnetar_core.process import durable_files
from magnetar_core.process.descriptors import are_used_up
from magnetar_storage.data_dir import unsynced_note
from magnetar_storage.data_dir.directory_use import open_directories
from magnetar_storage.data_dir.synced_mark import MarkWriter
from magnetar_storage.data_dir.value_files import ValueFiles
from magnetar_storage.rocksdb.background import Background
from magnetar_storage.rocksdb.flushes import Flushes
from magnetar_storage.rocksdb.opening import open_database, open_values, recover_directory
from magnetar_storage.rocksdb.options import (
    DEFAULT_MEMTABLE_BYTES,
    MEMTABLES_BYTES,
    memtable_bytes,
)
from magnetar_storage.rocksdb.prefixes import walk_prefixes
from magnetar_storage.rocksdb.reads import RocksSnapshot, get_row, scan_rows
from magnetar_storage.rocksdb.value_log import (
    Unsynced,
    ValueLog,
)
from magnetar_storage.rocksdb.worker import Worker
from magnetar_storage.store import (
    DELETE,
    PUT,
    Operation,
    RowsUnreadable,
    StoreFailed,
    WriteBatch,
)
from magnetar_storage.store_stamp import STAMP, check_directory_stamp, stamp_of

log = logging.getLogger(__name__)

ENGINE: Final = "rocksdb"
FORMAT: Final = 2
# When too many files are open, the store tries again after this time.
OPENED_AGAIN_S: Final = 0.1

T = TypeVar("T")


class RocksStore:
    """Store in a data directory. Open it with `RocksStore.open`."""

    def __init__(
        self,
        path: str,
        database: rocksdict.Rdict,
        families: Collection[str],
        *,
        payload_families: Collection[str],
        mark: MarkWriter,
        value_files: ValueFiles,
        with_values: Collection[str],
        memtables_bytes: int,
        late_syncs: bool,
    ) -> None:
        self._path = path
        self._database = database
        self._families = {name: database.get_column_family(name) for name in families}
        self._handles = {name: database.get_column_family_handle(name) for name in families}
        self._values = ValueLog(
            value_files,
            database,
            {name: self._families[name] for name in payload_families},
            listed=with_values,
        )
        self._resolvers = dict.fromkeys(payload_families, value_files.resolve)
        self._snapshots: weakref.WeakSet[RocksSnapshot] = weakref.WeakSet()
        self._background = Background(
            database, list(self._families.values()), flushes=not late_syncs
        )
        self._flushes: Flushes | None = None
        if late_syncs:
            limits = {
                name: memtable_bytes(memtables_bytes, has_payloads=name in payload_families)
                for name in families
            }
            self._flushes = Flushes(
                {**self._families, "default": database},
                {**limits, "default": DEFAULT_MEMTABLE_BYTES},
                memtables_bytes,
            )
        self._mark = mark
        self._worker = Worker()
        # A sync and a flush take turns: either may close files that the other one is syncing.
        self._turn = asyncio.Lock()
        self._late_syncs = late_syncs
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
        memtables_bytes: int = MEMTABLES_BYTES,
        late_syncs: bool = False,
    ) -> RocksStore:
        """Open or create a data directory. Blocks while the write-ahead log is replayed.

        Args:
            path: the data directory.
            families: the families that this process uses; missing families are created.
            payload_families: those of them whose large values go to files of values.
            block_cache_bytes: memory for blocks of all families.
            memtables_bytes: memory for rows of all families that are not in tables yet.
            late_syncs: whether the server answers before it syncs: what a machine that goes down
                took with it is then noticed and counted at the next start.
        Raises:
            StoreInUse: another process has this directory open.
            StoreDamaged: synced data is missing. Nothing was changed.
            InvalidConfig: another engine made the store in this directory, or another version.
            StoreFailed: this directory cannot be opened as a store.
        """
        unknown = set(payload_families) - set(families)
        if unknown:
            raise BrokenInvariant(f"unknown payload families: {sorted(unknown)}")
        directory = os.path.realpath(path)
        has_stamp = check_directory_stamp(directory, ENGINE, FORMAT)
        mark = recover_directory(directory)
        if not has_stamp:
            durable_files.write_whole(Path(directory, STAMP), stamp_of(ENGINE, FORMAT).decode())
        if late_syncs:
            unsynced_note.leave(directory)
        database = open_database(
            directory,
            families,
            payload_families,
            block_cache_bytes=block_cache_bytes,
            memtables_bytes=memtables_bytes,
            own_flushes=late_syncs,
        )
        value_files, with_values = open_values(directory, database, mark)
        if not late_syncs:
            unsynced_note.remove(directory)
        open_directories.add(directory)
        return cls(
            directory,
            database,
            families,
            payload_families=payload_families,
            mark=MarkWriter(directory, mark),
            value_files=value_files,
            with_values=with_values,
            memtables_bytes=memtables_bytes,
            late_syncs=late_syncs,
        )

    async def write(self, batch: WriteBatch) -> None:
        """Apply a batch; see `Store.write`."""
        self._check()
        if self._flushes is not None and (families := self._flushes.due()):
            await self._patiently(partial(self._flush, families))
        handles = self._handles
        raw = rocksdict.WriteBatch(raw_mode=True)
        operations: Sequence[Operation] = batch.operations
        if self._resolvers:
            operations = await self._patiently(partial(self._append_values, raw, operations))
        for kind, family, key, value in operations:
            if kind == PUT:
                raw.put(key, value, handles[family])
            elif kind == DELETE:
                raw.delete(key, handles[family])
            else:
                raw.delete_range(key, value, handles[family])
        byte_count = raw.size_in_bytes()
        try:
            self._database.write(raw)
        except Exception as error:
            raise self._fail("write", error) from error
        if self._flushes is not None:
            self._flushes.wrote(byte_count, len(operations))

    async def _append_values(
        self, raw: rocksdict.WriteBatch, operations: Sequence[Operation]
    ) -> Sequence[Operation]:
        """Append large values, and return the operations with pointers in their place."""
        try:
            return self._values.write(raw, operations, asyncio.get_running_loop().time())
        except OSError as error:
            if are_used_up(error):
                raise
            raise self._fail("write", error) from error

    async def _patiently(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run a step again and again, as long as it fails because too many files are open.

        Then neither a write nor a sync has failed: the step could not begin.
        """
        while True:
            try:
                return await step()
            except OSError as error:
                log.error("the store waits until it can open a file (ulimit -n): %s", error)
            await asyncio.sleep(OPENED_AGAIN_S)
            self._check()

    def write_ahead(self, batch: WriteBatch) -> None:
        """Append large values of a batch that may still grow; see `Store.write_ahead`."""
        # With late syncs no batch waits for another one's sync.
        if self._failure is not None or self._late_syncs or not self._resolvers:
            return
        try:
            self._values.append_ahead(batch.operations)
        except OSError as error:
            # The batch's write raises it; if too many files are open, it waits instead.
            if not are_used_up(error):
                self._fail("write", error)

    async def _flush(self, families: Sequence[rocksdict.Rdict]) -> None:
        """Sync values, then begin to flush the rows of families that may point to them.

        Nothing is written meanwhile.
        """
        await self._with_values_synced(
            "flush", lambda unsynced: partial(_flush_behind, self._values, unsynced, families)
        )

    async def sync(self) -> None:
        """Make all written batches durable; see `Store.sync`."""
        await self._patiently(
            partial(self._with_values_synced, "sync", self._sync_of, with_rows=True)
        )

    def _sync_of(self, unsynced: Unsynced) -> Callable[[], None]:
        # Batches may be written meanwhile: they are not synced for sure.
        end_of_log = self._mark.end_of_log(is_newest=bool(unsynced.garbage))
        now_seconds = asyncio.get_running_loop().time()
        return partial(self._sync, now_seconds, end_of_log, self._values.end, unsynced)

    async def _with_values_synced(
        self,
        action: str,
        call_for: Callable[[Unsynced], Callable[[], None]],
        *,
        with_rows: bool = False,
    ) -> None:
        """Make a call on the worker thread that syncs values. The store fails if it raises.

        The store goes on if it raises because too many files are open: then it may be repeated.

        Args:
            action: what the call does, for the text of the error.
            call_for: returns the call that syncs these values.
            with_rows: whether it syncs all rows behind the values.
        """
        async with self._turn:
            self._check()
            takes_garbage = with_rows and not self._snapshots
            unsynced = self._values.before_sync(takes_garbage=takes_garbage)
            try:
                await self._worker.run(call_for(unsynced))
            except Exception as error:
                if isinstance(error, OSError) and are_used_up(error):
                    self._values.not_synced(unsynced)
                    raise
                if self._late_syncs:
                    unsynced_note.spoil(self._path)
                raise self._fail(action, error) from error
            self._check()
            self._values.after_sync(unsynced)

    async def get(self, family: str, key: bytes) -> bytes | None:
        """Return a row's value; see `Reader.get`."""
        self._check()
        return get_row(self._families[family], family, key, self._resolvers.get(family))

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
        rows = self._families[family]
        resolve = self._resolvers.get(family)
        return scan_rows(rows, family, start, end, rows_max, bytes_max, reverse, resolve)

    async def prefixes(
        self, family: str, start: bytes, end: bytes, *, length: int, count_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Return the distinct beginnings of keys; see `Store.prefixes`."""
        self._check()
        rows = self._families[family]
        try:
            return walk_prefixes(rows, start, end, length, count_max)
        except Exception as error:
            raise RowsUnreadable(str(error), family=family) from error

    async def snapshot(self) -> RocksSnapshot:
        """Freeze a view of all families; see `Store.snapshot`."""
        self._check()
        try:
            # An iterator shows the moment of its creation; iterators over rocksdict's own snapshots
            # show the newest rows.
            views = {name: rows.iter() for name, rows in self._families.items()}
        except Exception as error:
            raise self._fail("snapshot", error) from error
        snapshot = RocksSnapshot(views, self._check, self._resolvers)
        self._snapshots.add(snapshot)
        return snapshot

    def free_bytes(self) -> int:
        """Return the volume's free space, in bytes."""
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
        self._background.close()
        if self._flushes is not None:
            self._flushes.close()
        try:
            await self._worker.run(
                partial(
                    _close,
                    families,
                    self._database,
                    self._mark,
                    self._values,
                    failed_before,
                    self._path if self._late_syncs else None,
                )
            )
        except Exception as error:
            if not failed_before:
                raise self._fail("close", error) from error
        finally:
            self._worker.close()
            open_directories.discard(self._path)

    def _sync(
        self,
        now_seconds: float,
        end_of_log: tuple[int, int],
        end_of_values: tuple[int, int],
        unsynced: Unsynced,
    ) -> None:
        self._values.sync(unsynced)
        self._database.flush_wal(True)
        # Behind an older mark, a start would look for the values that are about to be removed.
        has_garbage = bool(unsynced.garbage)
        self._mark.write(now_seconds, end_of_log, end_of_values, durably=has_garbage)
        self._values.unlink(unsynced)
        self._background.look(now_seconds)

    def _check(self) -> None:
        if self._failure is not None:
            raise StoreFailed(self._failure)

    def _fail(self, action: str, error: Exception) -> StoreFailed:
        self._failure = f"{action} failed in {self._path}: {error}"
        return StoreFailed(self._failure)


def _flush_behind(
    values: ValueLog, unsynced: Unsynced, families: Sequence[rocksdict.Rdict]
) -> None:
    """Sync values, and then begin to flush families. On the store's worker thread."""
    values.sync(unsynced)
    for rows in families:
        # It returns when the rows are out of reach of later writes.
        rows.flush(False)


def _close(
    families: list[rocksdict.Rdict],
    database: rocksdict.Rdict,
    mark: MarkWriter,
    values: ValueLog,
    unsure: bool,
    noted: str | None,
) -> None:
    """Close a database on the store's worker thread.

    Args:
        unsure: the store failed: nothing is known about its files.
        noted: the directory, if it has a note that not everything is synced.
    """
    try:
        # RocksDB is about to sync the rows that point to them.
        try:
            values.sync(values.before_sync(takes_garbage=False))
        except OSError:
            if not unsure:
                raise
        values.close()
        if noted is not None and not unsure:
            database.flush_wal(True)
        for family in families:
            family.close()
        database.close()
    except Exception:
        unsure = True
        raise
    finally:
        if unsure:
            mark.abandon()
        else:
            mark.close()
    if noted is not None and not unsure:
        unsynced_note.remove(noted)
