"""Files of a RocksDB directory, found by their names."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from magnetar_storage.store import StoreDamaged

LOG: Final = re.compile(r"(\d+)\.log")
VALUES: Final = re.compile(r"(\d+)\.values")
_MANIFEST = re.compile(r"MANIFEST-(\d+)")
_CONTENT = re.compile(r"\d+\.(sst|log|values)|MANIFEST-\d+")


def holds_store(directory: str) -> bool:
    """Return whether a directory holds any file of a store."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return False
    return "CURRENT" in names or any(_CONTENT.fullmatch(name) for name in names)


def numbered(directory: str, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """Return the files whose names match, with their numbers."""
    found = [(pattern.fullmatch(name), name) for name in os.listdir(directory)]
    return sorted((int(one[1]), Path(directory, name)) for one, name in found if one is not None)


def logs_bytes(directory: str) -> int:
    """Return the size of all write-ahead logs, in bytes."""
    total = 0
    for _, path in numbered(directory, LOG):
        # RocksDB deletes logs in threads of its own.
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def log_path(directory: str, number: int) -> Path:
    """Return the path of a write-ahead log."""
    return Path(directory, f"{number:06}.log")


def values_path(directory: str, number: int) -> Path:
    """Return the path of a file of values."""
    return Path(directory, f"{number:06}.values")


def current_manifest(directory: str) -> tuple[int, Path]:
    """Return the manifest's number and path.

    Raises:
        StoreDamaged: CURRENT does not name a manifest.
    """
    current = Path(directory, "CURRENT")
    if not current.exists():
        raise StoreDamaged("the file CURRENT is missing, which names the manifest")
    named = _MANIFEST.fullmatch(current.read_text("ascii", "replace").removesuffix("\n"))
    if named is None:
        raise StoreDamaged("the file CURRENT is damaged: it names no manifest")
    path = Path(directory, named[0])
    if not path.exists():
        raise StoreDamaged(f"{named[0]} is missing, which CURRENT names")
    return int(named[1]), path
