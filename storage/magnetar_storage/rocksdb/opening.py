"""Steps to open a data directory: what the last process left, the database, and the values.

Source: docs/design/0014-durability.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection

import rocksdict

from magnetar_storage.data_dir import unsynced_note
from magnetar_storage.data_dir.directory_check import (
    Checked,
    check_directory,
    check_values,
)
from magnetar_storage.data_dir.directory_use import (
    cannot_open,
    check_unused,
    how_to_go_on,
    in_use,
    make_private,
)
from magnetar_storage.data_dir.store_files import VALUES, holds_store, numbered
from magnetar_storage.data_dir.synced_mark import Synced, create_mark
from magnetar_storage.data_dir.value_files import ValueFiles
from magnetar_storage.rocksdb.lost_changes import cut, give_up_tail, sync_files, sync_values
from magnetar_storage.rocksdb.options import (
    database_options,
    payload_family_options,
    row_family_options,
)
from magnetar_storage.rocksdb.value_log import families_with_values, listed_files
from magnetar_storage.store import StoreDamaged, StoreInUse

log = logging.getLogger(__name__)


def recover_directory(directory: str) -> Synced:
    """Check and mend what the last process left, and return the mark of what is synced.

    Raises:
        StoreInUse: this process has the directory open already.
        StoreDamaged: synced data is missing. Nothing was changed.
    """
    make_private(directory)
    check_unused(directory)
    checked = _check(directory)
    if checked.torn is not None:
        # The machine went down before this change was synced, and took its values.
        log.warning("%s: %s: it was not synced, and is removed", directory, checked.torn.reason)
        cut(directory, checked.torn)
    sync_values(directory, checked.mark)
    if checked.mark is not None:
        return checked.mark
    mark = Synced()
    create_mark(directory, mark)
    return mark


def _check(directory: str) -> Checked:
    try:
        if unsynced_note.machine_went_down(directory) and holds_store(directory):
            give_up_tail(directory)
        elif unsynced_note.is_there(directory) and holds_store(directory):
            sync_files(directory)
        return check_directory(directory)
    except StoreDamaged as error:
        raise StoreDamaged(
            f"{directory}: {error}; {how_to_go_on(directory, error)}",
            may_be_accepted=error.may_be_accepted,
        ) from error


def open_database(
    directory: str,
    families: Collection[str],
    payload_families: Collection[str],
    *,
    block_cache_bytes: int,
    memtables_bytes: int,
    own_flushes: bool,
) -> rocksdict.Rdict:
    """Open the database, which replays its write-ahead log.

    Raises:
        StoreInUse: another process has it open.
        StoreDamaged: RocksDB cannot open it.
    """
    cache = rocksdict.Cache(block_cache_bytes)
    try:
        # RocksDB insists on opening all existing families, in use or not.
        names = set(families) | _existing_families(directory)
        options = {
            name: payload_family_options(cache, memtables_bytes)
            if name in payload_families
            else row_family_options(cache)
            for name in sorted(names)
        }
        return rocksdict.Rdict(
            directory,
            database_options(memtables_bytes=memtables_bytes, own_flushes=own_flushes),
            options,
        )
    except Exception as error:
        if "LOCK:" in str(error) or "lock file" in str(error):
            raise StoreInUse(in_use(directory)) from error
        raise cannot_open(directory, error) from error


def open_values(
    directory: str, database: rocksdict.Rdict, mark: Synced
) -> tuple[ValueFiles, set[str]]:
    """Open the files of values, and remove those that the database does not list.

    Returns:
        The files, and the names of the families that have values in them.
    Raises:
        StoreDamaged: synced values are missing. The database is closed.
    """
    try:
        listed = listed_files(database)
        sizes = check_values(directory, listed, mark)
        with_values = families_with_values(database)
    except StoreDamaged as error:
        database.close()
        raise cannot_open(directory, error) from error
    for number, path in numbered(directory, VALUES):
        if number not in sizes:
            # It was begun or given up just before the last process ended.
            path.unlink()
    files = ValueFiles(directory, sizes)
    if listed.get(files.active):
        # It is the last one since a loss was accepted. The list would not tell that it grew.
        files.end_active()
    elif files.active:
        files.pass_over_torn_end(mark.values_bytes if mark.values == files.active else 0)
    return files, with_values


def _existing_families(directory: str) -> set[str]:
    if not os.path.exists(os.path.join(directory, "CURRENT")):
        return set()
    return set(rocksdict.Rdict.list_cf(directory)) - {"default"}
