"""Changes that a stopped store has lost from its write-ahead logs: cut them off, and count that.

The identity row tells the server how often that happened. It then opens a higher ledger id, or
takes a higher incarnation, so that old data is never taken for new data.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import rocksdict

from magnetar_core.process import durable_files
from magnetar_storage import store_identity
from magnetar_storage.data_dir import synced_mark
from magnetar_storage.data_dir.directory_check import Damage, check_manifest, damage_in_logs
from magnetar_storage.data_dir.store_files import LOG, VALUES, current_manifest, log_path, numbered
from magnetar_storage.rocksdb.options import (
    database_options,
    payload_family_options,
    row_family_options,
)
from magnetar_storage.rocksdb.value_log import list_found
from magnetar_storage.store import StoreDamaged

log = logging.getLogger(__name__)

_CACHE_BYTES: Final = 8 << 20


def give_up(
    directory: str,
    damage: Damage | None,
    *,
    losses: int = 0,
    lost_tails: int = 0,
    mark: synced_mark.Synced | None = None,
) -> None:
    """Keep the changes before a damage: cut the logs there, count the loss, and mark the end.

    Args:
        damage: the first one in the logs; None: none can be seen.
        losses: as count().
        lost_tails: as count().
        mark: the end of the data that is known to be synced; None: not known.
    """
    if damage is not None:
        cut(directory, damage)
    count(directory, losses=losses, lost_tails=lost_tails)
    synced_mark.create_mark(directory, mark or synced_mark.Synced())


def count(directory: str, *, losses: int = 0, lost_tails: int = 0) -> None:
    """Open the store as it is now, and note in its identity that something was lost.

    Args:
        losses: how many losses a person has accepted.
        lost_tails: how many times a machine went down, and took what was not synced.
    """
    # The logs are replayed into tables, which are synced: no row of them may outlive its value.
    sync_values(directory, None)
    cache = rocksdict.Cache(_CACHE_BYTES)
    names = set(rocksdict.Rdict.list_cf(directory)) - {"default"}
    options = {
        name: payload_family_options(cache) if "log" in name else row_family_options(cache)
        for name in sorted(names)
    }
    # Files that the manifest lists may be missing for good, so the list is not checked.
    database = rocksdict.Rdict(directory, database_options(tracking=False), options)
    if losses:
        list_found(directory, database)
    rows = database.get_column_family(store_identity.IDENTITY_FAMILY)
    row = rows.get(store_identity.KEY)
    if row is not None:
        rows.put(store_identity.KEY, store_identity.with_losses(row, losses, lost_tails))
        database.flush_wal(True)
    rows.close()
    database.close()


def damaged_tail(directory: str) -> Damage | None:
    """Return the first damage behind the last sync; None: none can be seen. Changes nothing.

    Raises:
        StoreDamaged: synced data is missing.
    """
    mark = synced_mark.read_mark(directory)
    needed = check_manifest(*current_manifest(directory), mark)
    damage = damage_in_logs(directory, needed, mark)
    if damage is not None and damage.is_of_synced(needed, mark):
        raise StoreDamaged(damage.reason, may_be_accepted=True)
    return damage


def give_up_tail(directory: str) -> None:
    """Make a store whole again that lost what was not synced, when its machine went down.

    What it lost cannot be seen in each case, so it counts as lost in each case. After an
    interruption this may be repeated: it then counts twice, which is harmless.

    Raises:
        StoreDamaged: synced data is missing. Nothing was changed.
    """
    damage = damaged_tail(directory)
    log.warning(
        "the machine went down while %s was in use with durability os: what was not synced is lost:"
        " %s",
        directory,
        damage.reason if damage is not None else "its logs end where they can be read",
    )
    mark = synced_mark.read_mark(directory)
    known = synced_mark.Synced(values=mark.values, values_bytes=mark.values_bytes)
    give_up(directory, damage, lost_tails=1, mark=known)


def sync_files(directory: str) -> None:
    """Sync writes that a killed process left with the operating system, before they are used."""
    for _, path in numbered(directory, LOG):
        durable_files.sync(path)
    sync_values(directory, synced_mark.read_mark(directory))
    durable_files.sync(current_manifest(directory)[1])
    durable_files.sync(Path(directory))


def sync_values(directory: str, mark: synced_mark.Synced | None) -> None:
    """Sync values that a process left unsynced: rows that point to them are about to be synced.

    Args:
        mark: the files before the one that it names are synced; None: nothing is known.
    """
    for number, path in numbered(directory, VALUES):
        if mark is None or number >= mark.values:
            durable_files.sync(path)


def cut(directory: str, damage: Damage) -> None:
    """Remove the first missing change from the logs, and all changes after it."""
    for number, path in numbered(directory, LOG):
        if number > damage.number:
            path.unlink()
    path = log_path(directory, damage.number)
    if path.exists():
        os.truncate(path, damage.kept_bytes)
