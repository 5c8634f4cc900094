"""Options of SlateDB for Magnetar: a process that is alone with its store, and little memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from slatedb import uniffi

from magnetar_storage.object_store.url import ObjectStoreUrl, check_endpoint
from magnetar_storage.store_config import StoreConfig

# What is written and not yet in tables is in memory, and twice as long as its table is uploaded.
_TABLE_BYTES: Final = 32 << 20
_UNFLUSHED_BYTES_MAX: Final = 256 << 20
_CACHE_SHARDS: Final = 4
# Unless the settings say otherwise.
_CACHE_BYTES: Final = 64 << 20
# How often an owner asks whether there is another one: a get each time.
POLL_SECONDS: Final = 1.0
# With a cache of its own any number will do.
_CACHE_ID: Final = 1
# SlateDB takes these for the object store's, as if they had AWS_ in front, in any case of letters.
_TAKEN_FOR_OURS: Final = frozenset(
    {
        *("access_key_id", "secret_access_key", "session_token", "token", "skip_signature"),
        *("bucket", "bucket_name", "endpoint", "endpoint_url", "region", "default_region"),
        *("virtual_hosted_style_request", "metadata_endpoint", "s3_express", "request_payer"),
        *("conditional_put", "copy_if_not_exists", "checksum_algorithm", "unsigned_payload"),
    }
)


def settings_of(url: ObjectStoreUrl, config: StoreConfig) -> Any:
    """Return the settings of a database."""
    settings = uniffi.Settings.default()
    chosen: dict[str, object] = {
        # Each group is flushed when it is complete, and nothing in between.
        "flush_interval": None,
        "manifest_poll_interval": f"{POLL_SECONDS * 1_000:.0f}ms",
        "l0_sst_size_bytes": _TABLE_BYTES,
        "max_unflushed_bytes": _UNFLUSHED_BYTES_MAX,
        # Keys resemble each other: a deleted range takes a twelfth of the log, and data that cannot
        # be compressed costs as much time as before. Each object says whether it is compressed.
        "compression_codec": "Lz4",
    }
    if url.is_local:
        # Needs replacing a file if it is unchanged, which file systems cannot.
        chosen["garbage_collector_options.boundary_files_enabled"] = False
    if config.store_disk_cache_directory:
        # The directory may be shared: what belongs to one store lies under its own address.
        folder = os.path.join(
            os.path.abspath(config.store_disk_cache_directory), url.scheme, url.bucket, url.path
        )
        os.makedirs(folder, mode=0o700, exist_ok=True)
        chosen["object_store_cache_options.root_folder"] = folder
        chosen["object_store_cache_options.max_cache_size_bytes"] = config.store_disk_cache_bytes
    for name, value in chosen.items():
        settings.set(name, json.dumps(value))
    return settings


class StoreCache(NamedTuple):
    """Memory for blocks of the object store, as one of several stores uses it.

    Attributes:
        memory: what `new_cache` returned; the stores share it.
        number: of this opening of a store; no other opening has it.
    """

    memory: Any
    number: int


def builder_of(
    url: ObjectStoreUrl, config: StoreConfig, recorder: Any, cache: StoreCache | None = None
) -> Any:
    """Return a builder that opens a database.

    Args:
        recorder: gets SlateDB's metrics.
        cache: None: the database gets one of its own.
    """
    cache = cache or StoreCache(new_cache(config), _CACHE_ID)
    builder = uniffi.DbBuilder(url.path, root_of(url))
    builder.with_settings(settings_of(url, config))
    # Small rows that were not read for long come ten times faster from large blocks.
    builder.with_sst_block_size(uniffi.SstBlockSize.BLOCK64_KIB)
    builder.with_db_cache(cache.memory, cache.number)
    builder.with_metrics_recorder(recorder)
    return builder


def root_of(url: ObjectStoreUrl) -> Any:
    """Return SlateDB's client for the object store of an address.

    Raises:
        InvalidConfig: no request can be sent to the object server.
    """
    check_endpoint(url, os.environ)
    with _without_others_variables():
        return uniffi.ObjectStore.resolve(url.root)


def reader_builder_of(url: ObjectStoreUrl, options: Any) -> Any:
    """Return a builder that opens a database for reading, without writes, even of a checkpoint."""
    builder = uniffi.DbReaderBuilder(url.path, root_of(url))
    builder.with_options(options)
    builder.with_reader_mode(uniffi.ReaderMode.FOLLOW_LATEST())
    return builder


def new_cache(config: StoreConfig) -> Any:
    """Return a cache whose larger part is for rows, the other for indexes and filters."""
    byte_count = config.store_memory_cache_bytes
    if byte_count is None:
        byte_count = _CACHE_BYTES
    small = max(1 << 20, byte_count // 4)
    large = max(1 << 20, byte_count - small)
    new = uniffi.DbCache.new_foyer_cache
    return uniffi.DbCache.new_split_cache(
        new(uniffi.FoyerCacheOptions(max_capacity=large, shards=_CACHE_SHARDS)),
        new(uniffi.FoyerCacheOptions(max_capacity=small, shards=_CACHE_SHARDS)),
    )


@contextmanager
def _without_others_variables() -> Iterator[None]:
    """Hide variables such as `REGION` or `TOKEN`: common names, that mean something else here.

    With them, SlateDB would talk to another place than the one that was checked.
    """
    hidden = {name: value for name, value in os.environ.items() if name.lower() in _TAKEN_FOR_OURS}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
