"""The stamp of a store: a file or object that names the engine and the format of the store.

Every store has one, from before its first row on. It is read before anything else of the store.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from magnetar_core.config import InvalidConfig
from magnetar_storage.data_dir.store_files import holds_store
from magnetar_storage.durable_mark import FIRST_GENERATION

STAMP: Final = "magnetar-store.json"
# The first format of an engine. It increases when an older version cannot read what this version
# writes.
FORMAT: Final = 1
# The day of the last change to what stores and backups contain. Until 0.1.0 is released such a
# change sets this day, and raises no number; a store of another day is refused: docs/upgrades.md.
LAYOUT: Final = "2026-11-29"
_NO_UPGRADES: Final = (
    "there are no upgrades before 0.1.0: use the version that wrote it, or begin in an empty place"
)


def stamp_of(engine: str, stored_format: int = FORMAT, *, generation: int | None = None) -> bytes:
    """Return the content of the stamp that an engine leaves.

    Args:
        generation: of a store with a durable mark; see `durable_mark`. None: the store has none.
    """
    content: dict[str, object] = {"engine": engine, "format": stored_format, "layout": LAYOUT}
    if generation is not None:
        content["generation"] = generation
    return json.dumps(content).encode() + b"\n"


def check_directory_stamp(directory: str, engine: str, format_max: int) -> bool:
    """Check the stamp of a directory as check_stamp does, if the directory holds a store.

    Returns:
        Whether there is a stamp.
    Raises:
        InvalidConfig: another engine or another version made the store.
    """
    try:
        stamp = Path(directory, STAMP).read_bytes()
    except FileNotFoundError:
        if holds_store(directory):
            raise InvalidConfig(
                f"the store in {directory} has no {STAMP}: a version before {LAYOUT} wrote it, or"
                f" the file was lost and has to be put back; {_NO_UPGRADES}"
            ) from None
        return False
    check_stamp(stamp, directory, engine, format_max)
    return True


def check_stamp(stamp: bytes, where: str, engine: str, format_max: int = FORMAT) -> int:
    """Check that a store was made by this engine, in a format and a layout that this version reads.

    Args:
        format_max: the newest format that this version reads.
    Returns:
        The generation of the store.
    Raises:
        InvalidConfig: another engine or another version made it, or the stamp is damaged.
    """
    try:
        content = json.loads(stamp)
        made_by, made_format = str(content["engine"]), int(content["format"])
        generation = int(content.get("generation", FIRST_GENERATION))
        layout = content.get("layout")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidConfig(
            f"{STAMP} of {where} cannot be read, so it is not known which engine made this store;"
            " put back the object as it was"
        ) from error
    if made_by != engine:
        raise InvalidConfig(
            f"the store in {where} was made by the engine {made_by!r}, and this server was told to"
            f" open it with {engine!r}; choose the same engine, or another place"
        )
    if made_format > format_max:
        raise InvalidConfig(
            f"the store in {where} has format {made_format}, and this version reads up to"
            f" {format_max}; start the version that wrote it, or a later one"
        )
    check_layout(layout, f"the store in {where}")
    return generation


def check_layout(layout: object, what: str) -> None:
    """Check that a store or a backup was written with the present layout.

    Raises:
        InvalidConfig: another version wrote it.
    """
    if layout != LAYOUT:
        found = f"the layout of {layout}" if layout else "an older layout"
        raise InvalidConfig(
            f"{what} has {found}, and this version reads that of {LAYOUT}; {_NO_UPGRADES}"
        )
