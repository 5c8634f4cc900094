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
        store: address in an object store, s3://BUCKET/PREFIX. Each server keeps its rows below it,
            under its kind and name, and no rows on its own disk. Empty: RocksDB in the data
            directory. A file:///DIRECTORY is for tests: it does not survive a power failure.
            Credentials come from the environment alone, as AWS tools read them.
        store_memory_cache_bytes: memory for blocks of the object store; the store uses half as much
            again. The shards of a server with etcd share it. Unset: an eighth of memory_bytes for a
            broker, 64 MiB for a coordinator. Higher: fewer repeated reads from the object store.
            Lower: less memory.
        store_disk_cache_directory: directory for copies of objects that were read. You may delete
            it at any time. Empty: no such copies.
        store_disk_cache_bytes: limit on the size of these copies. Higher: fewer requests. Lower:
            less disk.
    """

    store: str = ""
    store_memory_cache_bytes: int | None = None
    store_disk_cache_directory: str = ""
    store_disk_cache_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        if self.store:
            ObjectStoreUrl.parse(self.store)
        check_numbers(self)
        if self.store_disk_cache_bytes < _DISK_CACHE_BYTES_MIN:
            raise InvalidConfig(
                f"store_disk_cache_bytes must be at least {_DISK_CACHE_BYTES_MIN}; for no cache on"
                " disk, leave store_disk_cache_directory empty"
            )
