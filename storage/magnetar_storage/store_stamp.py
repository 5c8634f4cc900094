"""The stamp of a store: a file or object that names the engine that made it.

A directory of RocksDB has one since it has files of values, which earlier versions cannot read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from magnetar_core.config import InvalidConfig
from magnetar_storage.durable_mark import FIRST_GENERATION

STAMP: Final = "magnetar-store.json"
# The first format of an engine. It increases when an older version cannot read what this version
# writes.
FORMAT: Final = 1


def stamp_of(engine: str, stored_format: int = FORMAT, *, generation: int | None = None) -> bytes:
    """Return the content of the stamp that an engine leaves.

    Args:
        generation: of a store with a durable mark; see `durable_mark`. None: the store has none.
    """
    content: dict[str, object] = {"engine": engine, "format": stored_format}
    if generation is not None:
        content["generation"] = generation
    return json.dumps(content).encode() + b"\n"


def read_local_stamp(directory: str) -> bytes | None:
    """Return the stamp of a directory, if it has one."""
    try:
        return Path(directory, STAMP).read_bytes()
    except FileNotFoundError:
        return None


def check_stamp(stamp: bytes, where: str, engine: str, format_max: int = FORMAT) -> int:
    """Check that a store was made by this engine, in a format that it reads.

    Args:
        format_max: the newest format that this version reads.
    Returns:
        The generation of the store.
    Raises:
        InvalidConfig: it was not.
    """
    try:
        content = json.loads(stamp)
        made_by, made_format = str(content["engine"]), int(content["format"])
        generation = int(content.get("generation", FIRST_GENERATION))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidConfig(
            f"{STAMP} of {where} cannot be read, so nobody knows which engine made this store;"
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
    return generation
