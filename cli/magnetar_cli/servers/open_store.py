"""Opens the store of a server: RocksDB in its data directory, or an object store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from magnetar_core.config import InvalidConfig
from magnetar_storage.data_dir.store_files import holds_store
from magnetar_storage.durable_mark import MarkPlace
from magnetar_storage.object_store.shared_prefix import mark_names, store_url
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.store import Store, StoreFailed
from magnetar_storage.store_config import StoreConfig

if TYPE_CHECKING:
    from magnetar_storage.slatedb.engine import SlateStore
    from magnetar_storage.slatedb.options import StoreCache

log = logging.getLogger("magnetar_cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Name, place and memory of a server's store.

    Attributes:
        kind: "broker" or "coordinator".
        name: its name in the cluster.
        data_dir: the directory of RocksDB; not used with an object store.
        block_cache_bytes: memory for blocks of RocksDB.
        memtables_bytes: memory for what RocksDB has not in tables yet.
        late_syncs: as for RocksStore.open().
        cluster_id: id of the cluster; empty: the server is of none.
        others: names of servers of the other kind, below whose stores a copy of the mark lies.
    """

    kind: str
    name: str
    data_dir: Path
    families: tuple[str, ...]
    block_cache_bytes: int
    memtables_bytes: int
    payload_families: tuple[str, ...] = ()
    late_syncs: bool = False
    cluster_id: str = ""
    others: tuple[str, ...] = ()
    config: StoreConfig = field(default_factory=StoreConfig)


async def open_store(
    rows: Rows, registry: CollectorRegistry, on_end: Callable[[StoreFailed], object]
) -> Store:
    """Open or create a server's store: in an object store, or in its directory.

    Args:
        registry: gets the metrics of an object store.
        on_end: called when a store has ended by itself, as when another server opened it.
    Raises:
        InvalidConfig: the place is of no use, or needs packages that are missing.
        StoreInUse: another process has the directory open.
        StoreFailed: it cannot be opened.
    """
    if not rows.config.store:
        return await _open_rocksdb(rows)
    if holds_store(str(rows.data_dir)):
        raise InvalidConfig(
            f"{rows.data_dir} has the rows of a server, and {rows.config.store} would begin without"
            " them: start without --store, or move the directory away if that is meant"
        )
    prefix = ObjectStoreUrl.parse(rows.config.store)
    with needing_packages():
        from magnetar_storage.object_store.cluster_stamp import ClusterStamp, take_address
        from magnetar_storage.object_store.object_marks import ObjectMarkPlace
    cluster = ClusterStamp(cluster_id=rows.cluster_id) if rows.cluster_id else None
    await take_address(prefix, cluster)
    mark_place = ObjectMarkPlace(prefix, mark_names(rows.kind, rows.name, rows.others))
    return await open_object_store(rows, registry, on_end, mark_place)


async def open_object_store(
    rows: Rows,
    registry: CollectorRegistry,
    on_end: Callable[[StoreFailed], object],
    mark_place: MarkPlace | None,
    *,
    owner_is_silent: bool = False,
    cache: StoreCache | None = None,
) -> SlateStore:
    """Open or create a server's store in an object store.

    Args:
        registry: gets the metrics of the object store.
        on_end: called when the store has ended by itself, as when another server opened it.
        mark_place: where it is kept how far the store is durable; None: nowhere.
        owner_is_silent: whether it is sure that the previous owner no longer answers clients.
        cache: shared with other stores; None: the store gets one of its own.
    Raises:
        InvalidConfig: the place is of no use, or needs packages that are missing.
        StoreFailed: it cannot be opened.
    """
    with needing_packages():
        from magnetar_storage.object_store.metrics import ObjectStoreMetrics
        from magnetar_storage.slatedb.engine import SlateStore
    url = place_of(rows)
    log.info("%s %s keeps its rows in %s", rows.kind, rows.name, url)
    return await SlateStore.open(
        url,
        rows.families,
        payload_families=rows.payload_families,
        config=rows.config,
        metrics=ObjectStoreMetrics(f"magnetar_{rows.kind}", registry),
        on_end=on_end,
        owner_is_silent=owner_is_silent,
        cache=cache,
        mark_place=mark_place,
    )


@contextmanager
def needing_packages() -> Iterator[None]:
    """Turn the error of an import into one that says which packages an object store needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            f"{error}: a store in an object store needs more packages:"
            " pip install 'magnetar[object-store]'"
        ) from error


async def _open_rocksdb(rows: Rows) -> Store:
    from magnetar_storage.rocksdb.engine import RocksStore

    opening = asyncio.ensure_future(
        asyncio.to_thread(
            RocksStore.open,
            rows.data_dir,
            rows.families,
            payload_families=rows.payload_families,
            block_cache_bytes=rows.block_cache_bytes,
            memtables_bytes=rows.memtables_bytes,
            late_syncs=rows.late_syncs,
        )
    )
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        # A thread cannot be stopped, and what it opened is closed in order.
        await (await opening).close()
        raise


def place_of(rows: Rows) -> ObjectStoreUrl:
    """Return where the rows of a server lie, so that servers may share a bucket and a prefix."""
    return store_url(ObjectStoreUrl.parse(rows.config.store), rows.kind, rows.name)
