"""A store that is read and not changed: a program that checks it does not become its owner.

A directory is read in place. Its server must be stopped: a running one removes files while they are
read. A store in an object store is read as its newest manifest shows it, with or without an owner.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, Protocol

import rocksdict

from magnetar_core.config import InvalidConfig
from magnetar_storage.data_dir import unsynced_note
from magnetar_storage.data_dir.directory_check import Damage, check_directory, check_values
from magnetar_storage.data_dir.directory_use import check_unused
from magnetar_storage.data_dir.store_files import holds_store
from magnetar_storage.data_dir.synced_mark import read_mark
from magnetar_storage.data_dir.value_files import ValueFiles, ValueUnreadable
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.rocksdb.engine import ENGINE, FORMAT
from magnetar_storage.rocksdb.lost_changes import damaged_tail
from magnetar_storage.rocksdb.options import database_options, row_family_options
from magnetar_storage.rocksdb.reads import get_row, scan_rows
from magnetar_storage.rocksdb.value_log import families_with_values, listed_files
from magnetar_storage.store import Reader, StoreDamaged
from magnetar_storage.store_stamp import check_directory_stamp

_CACHE_BYTES: Final = 32 << 20


class ReadOnlyStore(Reader, Protocol):
    """Rows of a store that another process may own.

    Attributes:
        families: the families that the store has.
        may_have_owner: whether its owner did not close it: it runs, or was killed.
        lost_tail: whether its machine may have taken what was not synced, which the next start
            notices and counts.
    """

    families: frozenset[str]
    may_have_owner: bool
    lost_tail: bool

    def damaged_heads(self) -> Iterator[str]:
        """Read the heads of all values in files of their own; say where one is damaged."""

    async def close(self) -> None:
        """Release the store."""


async def open_read_only(place: str) -> ReadOnlyStore:
    """Open a data directory, or the address of a store, for reading.

    Raises:
        InvalidConfig: nothing is stored there, or by another engine or version, or the server must
            start first.
        StoreInUse: a server has the directory open.
        StoreDamaged: synced data is missing from a directory, or it cannot be opened.
        StoreFailed: an object store cannot be read.
    """
    if "://" not in place:
        return RocksReader(place)
    from magnetar_storage.slatedb.read_only import open_slate_reader

    return await open_slate_reader(ObjectStoreUrl.parse(place))


def open_database(directory: str) -> tuple[rocksdict.Rdict, set[str]]:
    """Open RocksDB's part of a data directory for reading; return its families' names, too.

    Raises:
        StoreDamaged: it cannot be opened.
    """
    cache = rocksdict.Cache(_CACHE_BYTES)
    try:
        names = set(rocksdict.Rdict.list_cf(directory)) - {"default"}
        database = rocksdict.Rdict(
            directory,
            database_options(),
            {name: row_family_options(cache) for name in sorted(names)},
            access_type=rocksdict.AccessType.read_only(),
        )
    except Exception as error:
        raise StoreDamaged(f"cannot open {directory}: {error}") from error
    return database, names


class RocksReader:
    """A data directory whose server is stopped."""

    may_have_owner = False

    def __init__(self, directory: str) -> None:
        directory = os.path.realpath(directory)
        if not holds_store(directory):
            raise InvalidConfig(f"{directory} has no store: name the data directory of a server")
        check_directory_stamp(directory, ENGINE, FORMAT)
        check_unused(directory)
        self.lost_tail = unsynced_note.machine_went_down(directory)
        lost: Damage | None = None
        if self.lost_tail:
            lost = damaged_tail(directory)
        else:
            checked = check_directory(directory)
            if checked.torn is not None:
                raise InvalidConfig(
                    f"{directory}: {checked.torn.reason}: its machine went down before it was"
                    " synced; start its server once, which removes that change"
                )
        mark = read_mark(directory)
        self._database, names = open_database(directory)
        try:
            listed = listed_files(self._database)
            sizes = check_values(directory, listed, mark)
        except StoreDamaged as error:
            if lost is None:
                raise
            raise InvalidConfig(
                f"{directory}: {error}: its machine went down before all was synced; start its"
                " server once, which gives up what was not"
            ) from error
        self._values = ValueFiles(directory, sizes)
        if self._values.active and not listed[self._values.active]:
            self._values.pass_over_torn_end(
                mark.values_bytes if mark.values == self._values.active else 0
            )
        self._resolvers = dict.fromkeys(families_with_values(self._database), self._values.resolve)
        self.families = frozenset(names)
        self._families: dict[str, Any] = {
            name: self._database.get_column_family(name) for name in names
        }

    async def get(self, family: str, key: bytes) -> bytes | None:
        """Return a row's value; see `Reader.get`."""
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
        rows = self._families[family]
        return scan_rows(
            rows, family, start, end, rows_max, bytes_max, reverse, self._resolvers.get(family)
        )

    def damaged_heads(self) -> Iterator[str]:
        """Say where the head of a value is damaged; see `ReadOnlyStore.damaged_heads`."""
        for file in self._values.sizes:
            try:
                for _ in self._values.places(file):
                    pass
            except ValueUnreadable as error:
                yield str(error)

    async def close(self) -> None:
        """Release the directory."""
        self._values.close()
        self._families.clear()
        self._database.close()
