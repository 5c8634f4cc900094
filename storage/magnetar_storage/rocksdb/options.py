"""Options of RocksDB for Magnetar: two cores shared with the server, and little memory.

A server has about ten families and most are small, so memory is bounded over all of them: memtables
by a number of bytes that the caller gives, blocks, indexes and filters by its block cache.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import rocksdict

from magnetar_core.process import descriptors

# Idle families pin the write-ahead log, and replay runs at about 200 MB/s.
WAL_BYTES_MAX: Final = 128 << 20
# All families are flushed together at this size, so that all logs but the newest go.
LOGS_BYTES_HELD_MAX: Final = WAL_BYTES_MAX // 4 * 3

# Of all families together, unless the caller says otherwise.
MEMTABLES_BYTES: Final = 96 << 20
# Larger ones make the replay of the log longer, and bring nothing.
ROW_MEMTABLE_BYTES: Final = 8 << 20
# Batches of less than 4 KiB lie in their rows, so a family of messages fills faster than others. Up
# to three memtables of a family are in memory, two of which are being flushed: with more, writes
# wait.
PAYLOAD_MEMTABLE_BYTES_MAX: Final = 32 << 20
MEMTABLES_OF_FAMILY: Final = 3
# RocksDB's default family has few rows, and the limit that RocksDB gives it.
DEFAULT_MEMTABLE_BYTES: Final = 64 << 20
# Of a store, if the process may have enough. RocksDB opens others anew when they are read.
_OPEN_TABLES_MAX: Final = 512
# As good as no limit, for stores that flush by themselves.
_NO_LIMIT_BYTES: Final = 1 << 50


# rocksdict has no call for this option, but reads it from a file of options.
_TRACKING: Final = """\
[Version]
  rocksdb_version=9.8.4
  options_file_version=1.1
[DBOptions]
  track_and_verify_wals_in_manifest=true
[CFOptions "default"]
[TableOptions/BlockBasedTable "default"]
"""


def _tracking_options() -> rocksdict.Options:
    """Return options under which the manifest lists all write-ahead logs but the newest."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "OPTIONS-000001").write_text(_TRACKING)
        Path(directory, "rocksdict-config.json").write_text('{"raw_mode": true}')
        options: rocksdict.Options = rocksdict.Options.load_latest(directory)[0]
    return options


def database_options(
    *, memtables_bytes: int = MEMTABLES_BYTES, tracking: bool = True, own_flushes: bool = False
) -> rocksdict.Options:
    """Return the options of a database.

    Args:
        memtables_bytes: beyond it, the largest memtable is flushed.
        tracking: whether each synced write-ahead log must exist.
        own_flushes: whether the store flushes memtables before they are full (`flushes`).
    """
    options = _tracking_options() if tracking else rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_max_total_wal_size(_NO_LIMIT_BYTES if own_flushes else WAL_BYTES_MAX)
    options.set_db_write_buffer_size(0 if own_flushes else memtables_bytes)
    options.set_max_background_jobs(2)
    # A crash leaves a torn tail, which holds only rows that were never synced. `directory_check`
    # finds all other damage of the logs before.
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
    # Otherwise a compaction that meets a damaged block stops every write; reads still verify
    # checksums.
    options.set_paranoid_checks(False)
    options.set_bytes_per_sync(1 << 20)
    options.set_max_open_files(min(_OPEN_TABLES_MAX, descriptors.shares().files // 2))
    options.set_avoid_unnecessary_blocking_io(True)
    # RocksDB tells every flush and compaction in LOG: some 5 MiB an hour under full load.
    options.set_max_log_file_size(1 << 20)
    options.set_keep_log_file_num(3)
    options.set_stats_dump_period_sec(0)
    return options


def row_family_options(cache: rocksdict.Cache) -> rocksdict.Options:
    """Return the options of a family of small rows: cursors, indexes, metadata."""
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(10, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_size(ROW_MEMTABLE_BYTES)
    options.set_max_write_buffer_number(MEMTABLES_OF_FAMILY)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    return options


def memtable_bytes(memtables_bytes: int, *, has_payloads: bool) -> int:
    """Return the size at which a memtable of a family is flushed.

    Args:
        memtables_bytes: of all families.
        has_payloads: whether it is a family of messages.
    """
    if not has_payloads:
        return ROW_MEMTABLE_BYTES
    return min(PAYLOAD_MEMTABLE_BYTES_MAX, memtables_bytes // MEMTABLES_OF_FAMILY)


def payload_family_options(
    cache: rocksdict.Cache, memtables_bytes: int = MEMTABLES_BYTES
) -> rocksdict.Options:
    """Return the options of a family of messages.

    Args:
        memtables_bytes: of all families. This family's memtables do not exceed it, however slow the
            disk is.
    """
    options = row_family_options(cache)
    options.set_write_buffer_size(memtable_bytes(memtables_bytes, has_payloads=True))
    return options
