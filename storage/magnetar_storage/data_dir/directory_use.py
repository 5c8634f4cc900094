"""Use of a data directory by one process at a time, and the errors for others."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import Final

from magnetar_storage.data_dir.store_files import holds_store
from magnetar_storage.store import StoreDamaged, StoreInUse, ValuesMissing, or_accept_loss

# Directories that this process has open: closing any of their files would release their locks.
open_directories: Final[set[str]] = set()


def make_private(directory: str) -> None:
    """Make a directory that only its owner may read."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    # A directory with other files is not ours alone.
    is_ours = not os.listdir(directory) or holds_store(directory)
    if is_ours and os.stat(directory).st_mode & 0o077:
        # A mounted volume may belong to another user.
        with suppress(PermissionError):
            os.chmod(directory, 0o700)


def check_unused(directory: str) -> None:
    """Check that no other process uses a directory: its writes must not be taken for damage.

    Raises:
        StoreInUse: another process uses it.
    """
    if directory in open_directories:
        raise StoreInUse(in_use(directory))
    try:
        lock = os.open(os.path.join(directory, "LOCK"), os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise StoreInUse(in_use(directory)) from error
    finally:
        os.close(lock)


def cannot_open(directory: str, error: Exception) -> StoreDamaged:
    """Return the error for a store that RocksDB, or a check behind it, refuses."""
    return StoreDamaged(
        f"cannot open {directory}: {error}; {how_to_go_on(directory, error)}",
        may_be_accepted=isinstance(error, ValuesMissing),
    )


def how_to_go_on(directory: str, error: Exception) -> str:
    """Say what a person can do about a damaged store."""
    advice = (
        "put back the file, or a copy of the whole directory that was made while the server was"
        " stopped"
    )
    if isinstance(error, ValuesMissing):
        without = "what was in it: its messages answer DataLoss from then on"
        return advice + or_accept_loss(directory, without)
    if isinstance(error, StoreDamaged) and error.may_be_accepted:
        return advice + or_accept_loss(directory)
    return advice


def in_use(directory: str) -> str:
    """Say that another process has a directory."""
    return f"another process uses this data directory: {directory}"
