"""Note that a store is open, and that its server answers before it syncs.

A killed process loses nothing that it had written, since the operating system has it. A machine
that goes down loses what was not synced. Both leave the note. It names the boot of the machine that
wrote it, so that the next start knows which of the two it was. An orderly stop removes it.
Source: docs/design/0014-durability.md.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final

from magnetar_core.process import durable_files

log = logging.getLogger(__name__)

FILE: Final = "UNSYNCED"
# Random, and new with every start of Linux.
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def leave(directory: str) -> None:
    """Leave a note of the present boot, durably. Call it before the first write."""
    durable_files.write_whole(Path(directory, FILE), _content(_boot_id()))


def spoil(directory: str) -> None:
    """Make the note say that nothing is known of what was written since the last sync.

    A sync failed, so the operating system may have dropped what it could not write. The same disk
    may refuse this, too; then the check of the directory's files has to find what is missing.
    """
    try:
        Path(directory, FILE).write_text(_content(""))
    except OSError as error:
        log.error("%s cannot be written after a failed sync: %s", FILE, error)


def remove(directory: str) -> None:
    """Remove the note, durably: everything is synced."""
    file = Path(directory, FILE)
    if file.exists():
        file.unlink()
        durable_files.sync(file.parent)


def is_there(directory: str) -> bool:
    """Return whether a server left the note, and did not stop in order since."""
    return Path(directory, FILE).exists()


def machine_went_down(directory: str) -> bool:
    """Return whether the machine may have gone down since the note was left.

    Without a note it does not matter: everything was synced. Where the system does not name its
    boots, or the note is damaged, it may have gone down.
    """
    try:
        content = Path(directory, FILE).read_text(errors="replace")
    except FileNotFoundError:
        return False
    boot_id = _boot_id()
    return not boot_id or content != _content(boot_id)


def machine_stayed_up(directory: str) -> bool:
    """Return whether the machine has not gone down since the note was left, for sure."""
    return is_there(directory) and not machine_went_down(directory)


def _content(boot_id: str) -> str:
    return json.dumps({"boot_id": boot_id}) + "\n"


def _boot_id() -> str:
    """Return the id of the present boot; empty if the system names none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
