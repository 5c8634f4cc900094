"""Settings of where a server keeps its rows."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.config import InvalidConfig, check_numbers
from magnetar_storage.object_store.url import ObjectStoreUrl

# SlateDB keeps its disk cache in parts of this size.
_DISK_CACHE_BYTES_MIN = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of a server's store.

    Attributes:
        store: an address in an object store, s3://BUCKET/PREFIX; each server keeps its rows below
            it, under its kind and name, and nothing on its own disk. Empty: RocksDB in the data
            directory. A file:///DIRECTORY is for tests: it does not survive the loss of power.
            Credentials come from the environment alone, as AWS tools read them.
        store_memory_cache_bytes: memory for blocks of the object store, of which a half more is
            used in fact. Unset: an eighth of memory_bytes for a broker, 64 MiB for a coordinator.
            Shards that one server has by etcd share it. Higher: fewer requests for what is read
            again.
        store_disk_cache_directory: a directory for copies of objects that were read; it may be
            lost at any time. Empty: no such copies.
        store_disk_cache_bytes: size of these copies. Higher: fewer requests, and more disk.
        store_unflushed_groups_max: group commits after which rows are moved from the log of the
            store to its tables; as many log objects are read when the store is opened. Higher: less
            to write. Lower: a server starts sooner, 2 ms for each object and more far away.
    """

    store: str = ""
    store_memory_cache_bytes: int | None = None
    store_disk_cache_directory: str = ""
    store_disk_cache_bytes: int = 4 << 30
    store_unflushed_groups_max: int = 300

    def __post_init__(self) -> None:
        if self.store:
            ObjectStoreUrl.parse(self.store)
        check_numbers(self)
        if self.store_disk_cache_bytes < _DISK_CACHE_BYTES_MIN:
            raise InvalidConfig(
                f"store_disk_cache_bytes must be at least {_DISK_CACHE_BYTES_MIN}; for no cache on"
                " disk, leave store_disk_cache_directory empty"
            )
