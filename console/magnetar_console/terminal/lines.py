"""Lines of text: facts, headings, and columns that are aligned. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from magnetar_console.terminal.words import Part, Parts, width_of

Lines: TypeAlias = list[Parts]

NO_LINE: Final[Parts] = ()

NAME_CELLS: Final = 15


def fact(name: str, *parts: Part | str) -> Parts:
    """Return a line with a name and a value."""
    value = [Part(one) if isinstance(one, str) else one for one in parts]
    return (Part(f"{name:<{NAME_CELLS}} ", "soft"), *value)


def heading(text: str, *parts: Part) -> Parts:
    """Return a line above others."""
    return (Part(text, "strong"), *parts)


def table(titles: Sequence[str], rows: Iterable[Sequence[Parts]]) -> Lines:
    """Return aligned columns; a column is as wide as its widest cell."""
    cells = [[(Part(one, "soft"),) for one in titles], *rows]
    widths = [max(width_of(row[place]) for row in cells) for place in range(len(titles))]
    return [
        tuple(
            part
            for cell, width in zip(row, widths, strict=True)
            for part in (*cell, Part(" " * (width - width_of(cell) + 2)))
        )
        for row in cells
    ]
