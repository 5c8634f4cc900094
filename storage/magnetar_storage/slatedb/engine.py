"""SlateDB engine: rows in any S3-compatible object store, or in a directory for tests.

A group is one batch of SlateDB and one explicit flush of its log, which is one object. Writes do
not wait for the object store, reads see them at once, and `sync` waits for it. A store has a single
owner: the last process that opened it. The previous owner learns of it when it writes, or within
about a second (see `opening`).

Ranges: SlateDB cannot delete a range, so the keys in it are read, in parts, and deleted one by one
in the same batch. Families of large values keep their keys in rows of their own, so that no value
is read for it. A range of a million rows costs about 100 bytes of memory for each, and 4 of the
compressed log.

While the object store does not answer, reads and syncs wait, and no time limit ends that: nothing
is acknowledged meanwhile, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from slatedb import uniffi

from magnetar_core.invariants import BrokenInvariant
from magnetar_storage.durable_mark import FIRST_GENERATION, MarkPlace
from magnetar_storage.mark_updates import MarkUpdates
from magnetar_storage.object_store.check import check_object_store
from magnetar_storage.object_store.metrics import ObjectStoreMetrics
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.slatedb import binding as slate_binding
from magnetar_storage.slatedb.background import Background, told_when_slow
from magnetar_storage.slatedb.end import check_end
from magnetar_storage.slatedb.families import Family
from magnetar_storage.slatedb.opening import (
    LOG,
    cannot_open,
    let_go,
    take_over,
    until_owner_knows,
)
from magnetar_storage.slatedb.options import StoreCache, builder_of
from magnetar_storage.slatedb.reads import SlateReads, end_of, is_closed, text_of
from magnetar_storage.store import (
    DELETE,
    DELETE_RANGE,
    PUT,
    StoreFailed,
    WriteBatch,
)
from magnetar_storage.store_config import StoreConfig

log = logging.getLogger(__name__)

# The new value of a row, by family and key; None: it is deleted.
_Change = tuple[str, bytes, bytes | None]

ENGINE: Final = "slatedb"
# An object store has no end that one could come close to.
_FREE_BYTES: Final = 1 << 60
_CLOSE_SECONDS_MAX: Final = 10.0
# Each takes about ten microseconds, in which the event loop does nothing else.
_CHANGES_IN_A_TURN: Final = 500
# Groups after which rows are moved from the store's log to its tables. An opening reads as many
# objects of the log, 2 ms for each and more far away; a lower number costs more writing.
UNFLUSHED_GROUPS_MAX: Final = 300
_NOTHING: Final = uniffi.CloseOptions(flush_type=None)


class SlateStore:
    """Store in an object store. Open it with `SlateStore.open`."""

    def __init__(
        self,
        url: ObjectStoreUrl,
        database: Any,
        families: dict[str, Family],
        metrics: ObjectStoreMetrics | None,
        on_end: Callable[[StoreFailed], object] | None,
        marks: MarkUpdates | None,
        unflushed_groups_max: int,
    ) -> None:
        self._url = url
        self._database = database
        self._families = families
        self._metrics = metrics
        self._on_end = on_end
        self._failure: StoreFailed | None = None
        self._closed = False
        self._writing = asyncio.Lock()
        self._marks = marks
        self._reads = SlateReads(database, families, self._check, self._ended)
        self._background = Background(
            database,
            str(url),
            unflushed_groups_max=unflushed_groups_max,
            on_end=self._end_by_itself,
        )

    @classmethod
    async def open(
        cls,
        url: ObjectStoreUrl,
        families: Collection[str],
        *,
        payload_families: Collection[str] = (),
        config: StoreConfig | None = None,
        metrics: ObjectStoreMetrics | None = None,
        on_end: Callable[[StoreFailed], object] | None = None,
        owner_is_silent: bool = False,
        cache: StoreCache | None = None,
        mark_place: MarkPlace | None = None,
        generation: int = FIRST_GENERATION,
        unflushed_groups_max: int = UNFLUSHED_GROUPS_MAX,
    ) -> SlateStore:
        """Open or create a store, and become its owner. Waits while the object store is away.

        Args:
            url: where its objects lie.
            families: the families that this process uses; missing families are created.
            payload_families: those of them that have large values.
            metrics: counts the store's requests.
            on_end: called when the store has ended by itself, as when another process opened it.
            owner_is_silent: whether it is sure that the previous owner no longer answers clients.
            cache: shared with other stores; None: the store gets one of its own.
            mark_place: where it is kept how far the store is durable; None: nowhere.
            generation: of the store, if it is new; see `durable_mark`.
            unflushed_groups_max: groups after which rows are moved from the log to tables.
        Raises:
            InvalidConfig: nothing can be stored there, or not by this engine.
            StoreDamaged: objects are missing or damaged. If that was found without opening the
                store, nothing was changed.
            StoreFailed: it cannot be opened, or another process opened it at the same time.
        """
        unknown = set(payload_families) - set(families)
        if unknown:
            raise BrokenInvariant(
                f"payload families that are not among the families: {sorted(unknown)}"
            )
        if not url.path:
            raise BrokenInvariant("a store has a prefix of its own")
        config = config or StoreConfig()
        async with told_when_slow(f"opening {url}"):
            generation = await check_object_store(
                url, engine=ENGINE, mark_place=mark_place, generation=generation
            )
            if mark_place is not None:
                await check_end(url, mark_place, generation)
            try:
                recorder = uniffi.DefaultMetricsRecorder()
                database = await builder_of(url, config, recorder, cache).build()
                try:
                    places, was_closed = await take_over(database, families, payload_families)
                except BaseException:
                    with suppress(uniffi.Error):
                        await database.shutdown_with_options(_NOTHING)
                    raise
            except uniffi.Error as error:
                raise cannot_open(url, error) from error
        if metrics is not None:
            metrics.observe(recorder)
        marks = None
        if mark_place is not None:
            marks = MarkUpdates(
                mark_place, generation, lambda: int(database.status().durable_seq), str(url)
            )
            # The store has a group that says that it has this owner.
            marks.group_is_durable()
        store = cls(url, database, places, metrics, on_end, marks, unflushed_groups_max)
        if not was_closed and not owner_is_silent:
            try:
                await until_owner_knows(url)
            except asyncio.CancelledError:
                await store.close()
                raise
        return store

    async def write(self, batch: WriteBatch) -> None:
        """Apply a batch; see `Store.write`."""
        self._check()
        places = self._families
        for _, family, _, _ in batch.operations:
            if family not in places:
                raise KeyError(family)
        async with self._writing:
            self._check()
            try:
                changes = await self._changes(batch)
                if changes:
                    await self._database.write(await self._raw(changes))
            except uniffi.Error as error:
                raise self._fail("write", error) from error

    def write_ahead(self, batch: WriteBatch) -> None:
        """Do nothing; see `Store.write_ahead`."""

    async def sync(self) -> None:
        """Make all written batches durable; see `Store.sync`."""
        self._check()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with told_when_slow(f"a write to {self._url}"):
                await self._database.flush_with_options(LOG)
        except uniffi.Error as error:
            raise self._fail("sync", error) from error
        self._check()
        if self._metrics is not None:
            self._metrics.log_was_put(loop.time() - began)
        self._background.group_is_durable()
        if self._marks is not None:
            self._marks.group_is_durable()

    async def get(self, family: str, key: bytes) -> bytes | None:
        """Return a row's value; see `Reader.get`."""
        return await self._reads.get(family, key)

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
        return await self._reads.scan(
            family, start, end, rows_max=rows_max, bytes_max=bytes_max, reverse=reverse
        )

    async def prefixes(
        self, family: str, start: bytes, end: bytes, *, length: int, count_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Return the distinct beginnings of keys; see `Store.prefixes`."""
        return await self._reads.prefixes(family, start, end, length=length, count_max=count_max)

    async def snapshot(self) -> SlateSnapshot:
        """Freeze a view of all families; see `Store.snapshot`."""
        self._check()
        try:
            view = await self._database.snapshot()
        except uniffi.Error as error:
            raise self._fail("snapshot", error) from error
        return SlateSnapshot(view, self._families, self._check, self._ended)

    def free_bytes(self) -> int:
        """Return the free space, in bytes; an object store always has room."""
        if self._url.is_local:
            return shutil.disk_usage(self._url.directory).free
        return _FREE_BYTES

    async def close(self) -> None:
        """Release the store. The next process to open it replays what is not in tables."""
        if self._closed:
            return
        self._closed = True
        in_order = self._failure is None
        self._failure = self._failure or StoreFailed("the store is closed")
        await self._background.close()
        with suppress(uniffi.Error):
            try:
                async with asyncio.timeout(_CLOSE_SECONDS_MAX):
                    if self._marks is not None:
                        await self._marks.stop(in_order=in_order)
                    if in_order:
                        await let_go(self._database)
                        if self._marks is not None:
                            await self._marks.write_last()
                    await self._database.shutdown_with_options(_NOTHING)
            except TimeoutError:
                log.warning("%s is left without an orderly end: nothing durable is lost", self._url)

    async def abandon(self) -> None:
        """Release the store without another write: another process may have it."""
        self._failure = self._failure or StoreFailed("the store was abandoned")
        await self.close()

    async def _raw(self, changes: Sequence[_Change]) -> Any:
        """Return a batch of SlateDB with these changes. Others run while a large one is made."""
        raw = uniffi.WriteBatch()
        put, delete = slate_binding.put, slate_binding.delete
        for number, (family, key, value) in enumerate(changes, 1):
            if number % _CHANGES_IN_A_TURN == 0:
                await asyncio.sleep(0)
            place = self._families[family]
            if value is not None:
                put(raw, place.rows + key, value)
                if place.keys is not None:
                    put(raw, place.keys + key, b"")
            else:
                delete(raw, place.rows + key)
                if place.keys is not None:
                    delete(raw, place.keys + key)
        return raw

    async def _changes(self, batch: WriteBatch) -> Sequence[_Change]:
        """Return the changes of a batch, where ranges are replaced by the rows that they hold."""
        if not any(kind == DELETE_RANGE for kind, _, _, _ in batch.operations):
            return [
                (family, key, value if kind == PUT else None)
                for kind, family, key, value in batch.operations
            ]
        changes: dict[str, dict[bytes, bytes | None]] = {}
        for kind, family, key, value in batch.operations:
            of_family = changes.setdefault(family, {})
            if kind == PUT:
                of_family[key] = value
            elif kind == DELETE:
                of_family[key] = None
            else:
                of_family.update((one, None) for one in of_family if key <= one < value)
                async for one in self._reads.keys(family, key, value):
                    of_family[one] = None
        return [
            (family, key, value) for family, rows in changes.items() for key, value in rows.items()
        ]

    def _check(self) -> None:
        if self._failure is not None:
            raise self._again()

    def _again(self) -> StoreFailed:
        """Return the first failure, anew: each raise adds its own places to an error."""
        failure = self._failure
        assert failure is not None
        return type(failure)(*failure.args)

    def _ended(self, error: BaseException) -> StoreFailed:
        """Return the error for callers when SlateDB turns out to be at its end."""
        if self._failure is None:
            reason = getattr(error, "reason", None)
            self._failure = end_of(str(self._url), reason, text_of(error))
        return self._again()

    def _fail(self, action: str, error: BaseException) -> StoreFailed:
        if is_closed(error):
            return self._ended(error)
        self._failure = StoreFailed(f"{action} failed in {self._url}: {text_of(error)}")
        return self._again()

    def _end_by_itself(self, failure: StoreFailed) -> None:
        self._failure = self._failure or failure
        if self._on_end is not None:
            self._on_end(self._again())


class SlateSnapshot:
    """A frozen view of every family. It ends with its store."""

    def __init__(
        self,
        view: Any,
        families: dict[str, Family],
        check: Callable[[], None],
        ended: Callable[[BaseException], StoreFailed],
    ) -> None:
        self._check = check
        self._reads: SlateReads | None = SlateReads(view, families, check, ended)

    async def get(self, family: str, key: bytes) -> bytes | None:
        """Return a row's value; see `Reader.get`."""
        return await self._open().get(family, key)

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
        return await self._open().scan(
            family, start, end, rows_max=rows_max, bytes_max=bytes_max, reverse=reverse
        )

    async def close(self) -> None:
        """Release the view. Repeating it is harmless."""
        self._reads = None

    def _open(self) -> SlateReads:
        self._check()
        if self._reads is None:
            raise StoreFailed("the snapshot is closed")
        return self._reads
