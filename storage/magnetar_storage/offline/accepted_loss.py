"""Accept the loss of a data directory, and continue: a decision that a person makes.

If changes are missing from the write-ahead logs, the store keeps everything before the first
missing change. It gives up all later changes, even readable ones, since they rest on what is
missing. A copy of the damaged files is kept. If a file of values is missing or lost its end, all
rows stay, and those that point there are unreadable: a broker answers DataLoss for them. The server
learns from its identity row that something was lost; it then opens a higher ledger id, or takes a
higher incarnation, so that old data is never taken for new data.
"""

from __future__ import annotations

import os
from pathlib import Path

from magnetar_core.config import InvalidConfig
from magnetar_core.invariants import BrokenInvariant
from magnetar_storage.data_dir import synced_mark
from magnetar_storage.data_dir.directory_check import (
    Needed,
    check_manifest,
    check_values,
    damage_in_logs,
)
from magnetar_storage.data_dir.directory_use import check_unused
from magnetar_storage.data_dir.store_files import current_manifest, holds_store
from magnetar_storage.offline.read_only import open_database
from magnetar_storage.rocksdb.engine import ENGINE, FORMAT
from magnetar_storage.rocksdb.lost_changes import count, give_up
from magnetar_storage.rocksdb.value_log import listed_files
from magnetar_storage.store import StoreDamaged, ValuesMissing
from magnetar_storage.store_identity import LOSSES_OF_EVERYTHING
from magnetar_storage.store_stamp import check_directory_stamp


def lost_from(directory: str) -> str | None:
    """Describe what is missing from the logs of a data directory, or else from its files of values.

    None: nothing is missing.

    Raises:
        InvalidConfig: the directory has no store, or one of another engine or version.
        StoreInUse: the store's server is running.
        StoreDamaged: the store is damaged elsewhere, where accepting the loss would not help.
    """
    directory = os.path.realpath(directory)
    if not holds_store(directory):
        raise InvalidConfig(f"{directory} has no store: name the data directory of one server")
    check_directory_stamp(directory, ENGINE, FORMAT)
    check_unused(directory)
    mark, reason = _read_mark(directory)
    damage = damage_in_logs(directory, _needed(directory, mark), mark)
    if damage is not None:
        return damage.reason
    if mark is None:
        return reason
    return _missing_values(directory, mark)


def accept_loss(directory: str) -> Path | None:
    """Give up the missing changes, and all changes after them; or else the missing values.

    Returns:
        The directory with a copy of the damaged files; None: only values are missing.
    Raises:
        InvalidConfig: as lost_from().
        StoreInUse: as lost_from().
        StoreDamaged: as lost_from().
    """
    directory = os.path.realpath(directory)
    if lost_from(directory) is None:
        raise BrokenInvariant("nothing is missing")
    mark, reason = _read_mark(directory)
    damage = damage_in_logs(directory, _needed(directory, mark), mark)
    kept = _keep(directory) if damage is not None or reason is not None else None
    give_up(directory, damage, losses=1)
    return kept


def accept_loss_of_everything(directory: str) -> None:
    """Record that an empty store replaces a lost store.

    Raises:
        InvalidConfig: as lost_from().
        StoreInUse: as lost_from().
        StoreDamaged: as lost_from().
    """
    directory = os.path.realpath(directory)
    reason = lost_from(directory)
    if reason is not None:
        raise StoreDamaged(f"{directory}: {reason}; accept that first")
    count(directory, losses=LOSSES_OF_EVERYTHING)


def _missing_values(directory: str, mark: synced_mark.Synced) -> str | None:
    database, _ = open_database(directory)
    try:
        check_values(directory, listed_files(database), mark)
    except ValuesMissing as error:
        return str(error)
    finally:
        database.close()
    return None


def _read_mark(directory: str) -> tuple[synced_mark.Synced | None, str | None]:
    """Return the mark, or the reason why there is none."""
    try:
        return synced_mark.read_mark(directory), None
    except StoreDamaged as error:
        return None, str(error)


def _needed(directory: str, mark: synced_mark.Synced | None) -> Needed:
    return check_manifest(*current_manifest(directory), mark)


def _keep(directory: str) -> Path:
    number = 1
    while (kept := Path(directory, f"kept-{number}")).exists():
        number += 1
    part = kept.with_name(f"{kept.name}.part")
    part.mkdir(mode=0o700, exist_ok=True)
    for file in Path(directory).iterdir():
        if file.suffix == ".log" or file.name.startswith(("MANIFEST-", "CURRENT", "SYNCED")):
            copy = part / file.name
            copy.unlink(missing_ok=True)
            # The logs are truncated below, so a hard link would not preserve them.
            copy.write_bytes(file.read_bytes())
    return part.replace(kept)
