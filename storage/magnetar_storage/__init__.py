"""Durable ordered rows for a process: the store interface, its engines, and group commit.

Each engine has a room and is imported by name (`magnetar_storage.rocksdb.engine`), so that a
simulation needs no RocksDB.
"""

from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.store import (
    KEY_END,
    Reader,
    RowsUnreadable,
    Snapshot,
    Store,
    StoreDamaged,
    StoreFailed,
    StoreFenced,
    StoreInUse,
    WriteBatch,
    end_of_prefix,
)

__all__ = [
    "KEY_END",
    "GroupCommit",
    "Reader",
    "RowsUnreadable",
    "Snapshot",
    "Store",
    "StoreDamaged",
    "StoreFailed",
    "StoreFenced",
    "StoreInUse",
    "WriteBatch",
    "end_of_prefix",
]
