"""Durable mark of a store: how far it was durable, kept outside of the store. Pure.

A log that has lost its end looks like a log that never was longer. So the owner of a store in an
object store writes a mark elsewhere: an object beside the store, or a row of etcd. A mark names
only what was durable, and it may lag behind. A program that opens or checks the store compares
both.
Source: docs/design/0021-durable-marks.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Protocol

# Of a new store.
FIRST_GENERATION: Final = 1


@dataclass(frozen=True, slots=True)
class DurableMark:
    """A place in the history of a store.

    Attributes:
        generation: of the store: higher after each accepted loss, and after a restore.
        sequence: number of the newest durable group of the store, in SlateDB's count; 0: none.
    """

    generation: int
    sequence: int


class MarkPlace(Protocol):
    """A place outside of a store that keeps its mark.

    Attributes:
        is_required: whether a store without its mark is refused. A new etcd has no marks.
    """

    is_required: bool

    async def read(self) -> DurableMark | None:
        """Return the mark; None: there is none.

        Raises:
            StoreDamaged: it cannot be understood.
            Exception: the place does not answer.
        """
        ...

    async def write(self, mark: DurableMark) -> None:
        """Replace the mark.

        Raises:
            Exception: the place does not answer. The mark may be written or not.
        """
        ...

    def __str__(self) -> str:
        """Say where the mark lies, for people."""
        ...


def write_mark(mark: DurableMark) -> bytes:
    """Return the content of a mark's object or row."""
    content = {"generation": mark.generation, "sequence": mark.sequence}
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def read_mark(content: bytes) -> DurableMark:
    """Read the content of a mark's object or row.

    Raises:
        ValueError: it is not a mark.
    """
    try:
        found = json.loads(content)
        mark = DurableMark(found["generation"], found["sequence"])
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"a field is missing: {error}") from error
    if type(mark.generation) is not int or type(mark.sequence) is not int:
        raise ValueError("generation and sequence must be whole numbers")
    return mark


def missing_from(end: DurableMark, mark: DurableMark | None) -> str | None:
    """Say what is missing from a store, according to its mark; None: nothing is known to be.

    Args:
        end: where the store ends, and its generation.
        mark: None: it has none.
    """
    if mark is None or mark.generation < end.generation:
        # A loss was accepted since, or the store was restored: the mark describes another history.
        return None
    if mark.generation > end.generation:
        return (
            f"it is a copy from before a loss was accepted, or before a restore (its generation is"
            f" {end.generation}, and {mark.generation} was in use)"
        )
    count = mark.sequence - end.sequence
    if count <= 0:
        return None
    return (
        f"group commits missing at its end: {count:,} (it ends with number {end.sequence:,}, and"
        f" was durable up to number {mark.sequence:,})"
    )
