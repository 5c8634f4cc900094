"""When memtables become tables, of a store that is written while earlier rows are not synced.

RocksDB flushes a memtable when it is full, which it notices at the next write, and syncs the table.
After a loss of power, a row in a table may then outlive the value that it points to, and cannot be
cut off as the end of a log can. So this store does not wait for RocksDB: ahead of a write at which
a memtable may be full, values are synced, and then it is flushed. RocksDB's other reasons to flush,
the sizes of all memtables and of all logs, are switched off (`options`), and looked at here.
Source: docs/design/0019-values.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import rocksdict

from magnetar_storage.rocksdb.options import LOGS_BYTES_HELD_MAX

# Of what RocksDB would let a memtable, and all of them, grow to. The rest is for what is written
# between two looks, and for memory that RocksDB has reserved and does not count as used.
SHARE: Final = 2
# Of the smallest memtable, what may be written between two looks.
LOOKS: Final = 32
# What a row takes in a memtable, besides key and value.
ROW_BYTES: Final = 100

_ACTIVE: Final = "rocksdb.cur-size-active-mem-table"


class Flushes:
    """Says which families to flush.

    Args:
        families: all of them, RocksDB's default family too, by name.
        memtable_bytes: at which RocksDB flushes a family, by name.
        memtables_bytes: of all families together.
    """

    def __init__(
        self,
        families: Mapping[str, rocksdict.Rdict],
        memtable_bytes: Mapping[str, int],
        memtables_bytes: int,
    ) -> None:
        self._families = dict(families)
        self._memtable_bytes = dict(memtable_bytes)
        self._memtables_bytes = memtables_bytes
        self._look_bytes = min(memtable_bytes.values()) // LOOKS
        # Since the last look, and since all families were flushed.
        self._written_bytes = 0
        self._logged_bytes = 0

    def wrote(self, byte_count: int, row_count: int) -> None:
        """Note that a batch was written."""
        size = byte_count + ROW_BYTES * row_count
        self._written_bytes += size
        self._logged_bytes += size

    def due(self) -> list[rocksdict.Rdict]:
        """Return the families to flush ahead of the next write, when all values are synced."""
        if self._written_bytes < self._look_bytes:
            return []
        self._written_bytes = 0
        if self._logged_bytes >= LOGS_BYTES_HELD_MAX:
            self._logged_bytes = 0
            return list(self._families.values())
        sizes = {
            name: rows.property_int_value(_ACTIVE) or 0 for name, rows in self._families.items()
        }
        due = {name for name, size in sizes.items() if size * SHARE >= self._memtable_bytes[name]}
        if sum(sizes.values()) * SHARE >= self._memtables_bytes:
            due.add(max(sizes, key=lambda name: sizes[name]))
        return [self._families[name] for name in sizes if name in due]

    def close(self) -> None:
        """Drop the references to the families: RocksDB is closed without references."""
        self._families.clear()
