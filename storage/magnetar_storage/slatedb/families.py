"""Families in SlateDB, which has none: the first byte of a key tells its family. Pure.

The store keeps the table of these bytes in a row of its own. A family of large values has a second
byte: there, each of its keys has a row without a value. SlateDB keeps a row's value beside its key,
so this is what lets a range be deleted, and its keys be walked over, without reading values.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

TABLE_KEY: Final = b"\x00families"
# The byte 0 is the table's.
FAMILIES_MAX: Final = 255
# Appended to the name of a family: where its keys are.
KEYS: Final = "/keys"


@dataclass(frozen=True, slots=True)
class Family:
    """First bytes of a family's keys.

    Attributes:
        rows: the first byte of its keys.
        keys: the first byte of the rows that hold its keys alone; None: it has no such rows.
    """

    rows: bytes
    keys: bytes | None

    @property
    def listed(self) -> bytes:
        """The first byte of the rows that are read when only keys are needed."""
        return self.rows if self.keys is None else self.keys


def read_table(row: bytes | None) -> dict[str, int]:
    """Return the table of a store; an empty one if the store is new."""
    if row is None:
        return {}
    return {str(name): int(number) for name, number in json.loads(row).items()}


def write_table(table: dict[str, int]) -> bytes:
    """Return the row of a table."""
    return json.dumps(table, sort_keys=True).encode()


def with_families(
    table: dict[str, int], families: Collection[str], payload_families: Collection[str]
) -> dict[str, int]:
    """Return a table to which the missing families are added.

    A family that is there already keeps what it has: rows without keys of their own are read whole.
    """
    grown = dict(table)
    for name in families:
        if name in table:
            continue
        for entry in (name, name + KEYS) if name in payload_families else (name,):
            grown[entry] = max(grown.values(), default=0) + 1
    if len(grown) > FAMILIES_MAX:
        raise ValueError(f"a store has at most {FAMILIES_MAX} families")
    return grown


def families_of(table: dict[str, int], names: Collection[str]) -> dict[str, Family]:
    """Return where these families lie."""
    return {
        name: Family(
            bytes((table[name],)),
            bytes((table[name + KEYS],)) if name + KEYS in table else None,
        )
        for name in names
    }
