"""Accept what was lost from the write-ahead logs, and continue: a decision that a person makes.

The store keeps everything before the first missing change. It gives up all later changes, even
readable ones, since they rest on what is missing. A copy of the damaged files is kept. The server
learns from its identity row that something was lost; it then opens a higher ledger id, or takes a
higher incarnation, so that nobody takes old data for new data.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import rocksdict

from magnetar_core.config import InvalidConfig
from magnetar_core.invariants import BrokenInvariant
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage import store_identity, synced_mark
from magnetar_storage.directory_check import Needed, check_manifest, damage_in_logs
from magnetar_storage.rocks import check_unused
from magnetar_storage.rocks_options import (
    database_options,
    payload_family_options,
    row_family_options,
)
from magnetar_storage.store import StoreDamaged
from magnetar_storage.store_files import LOG, current_manifest, holds_store, log_path, numbered

# Both servers keep the store's identity in this family.
_FAMILY: Final = "meta"
_CACHE_BYTES: Final = 8 << 20
# More losses than the lost store can have had: nobody knows their number.
LOSSES_OF_EVERYTHING: Final = 1_000


def lost_from(directory: str) -> str | None:
    """Describe what is missing from the logs of a data directory; None: nothing is missing.

    Raises:
        InvalidConfig: the directory holds no store.
        StoreInUse: the store's server is running.
        StoreDamaged: the store is damaged elsewhere, where accepting the loss would not help.
    """
    directory = os.path.realpath(directory)
    if not holds_store(directory):
        raise InvalidConfig(f"{directory} holds no store: name the data directory of one server")
    check_unused(directory)
    mark, reason = _read_mark(directory)
    damage = damage_in_logs(directory, _needed(directory, mark), mark)
    return damage.reason if damage is not None else reason


def accept_loss(directory: str) -> Path:
    """Give up the missing changes, and all changes after them.

    Returns:
        The directory with a copy of the damaged files.
    Raises:
        InvalidConfig: as lost_from().
        StoreInUse: as lost_from().
        StoreDamaged: as lost_from().
    """
    directory = os.path.realpath(directory)
    if lost_from(directory) is None:
        raise BrokenInvariant("nothing is missing")
    kept = _keep(directory)
    mark, _ = _read_mark(directory)
    damage = damage_in_logs(directory, _needed(directory, mark), mark)
    if damage is not None:
        for number, path in numbered(directory, LOG):
            if number > damage.number:
                path.unlink()
        path = log_path(directory, damage.number)
        if path.exists():
            os.truncate(path, damage.kept_bytes)
    _count_loss(directory, 1)
    synced_mark.create_mark(directory, synced_mark.Synced())
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
    _count_loss(directory, LOSSES_OF_EVERYTHING)


def _read_mark(directory: str) -> tuple[synced_mark.Synced | None, str | None]:
    """Return the mark, or the reason why there is none."""
    try:
        mark = synced_mark.read_mark(directory)
    except StoreDamaged as error:
        return None, str(error)
    return mark, None if mark is not None else f"{synced_mark.FILE} is missing"


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


def _count_loss(directory: str, losses: int) -> None:
    """Open the store as it is now, and note in its identity that something was lost."""
    cache = rocksdict.Cache(_CACHE_BYTES)
    names = set(rocksdict.Rdict.list_cf(directory)) - {"default"}
    options = {
        name: payload_family_options(cache) if "log" in name else row_family_options(cache)
        for name in sorted(names)
    }
    # Files that the manifest lists are missing for good, so the list is not checked.
    database = rocksdict.Rdict(directory, database_options(tracking=False), options)
    rows = database.get_column_family(_FAMILY)
    row = rows.get(store_identity.KEY)
    if row is not None:
        stored = StoreIdentity.FromString(row)
        stored.losses += losses
        rows.put(store_identity.KEY, stored.SerializeToString(deterministic=True))
        database.flush_wal(True)
    rows.close()
    database.close()
