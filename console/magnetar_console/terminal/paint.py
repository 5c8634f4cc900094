"""Parts as text of a terminal. All that is shown goes through here, and none of it is markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.text import Text

from magnetar_console.terminal.words import Part, plain

# The colours are the terminal's own, so that they fit to dark and light ones. Each mark has its
# own background or is bold, and says in words what it means: it needs no colour.
STYLES: Final = {
    "": "",
    "strong": "bold",
    "soft": "dim",
    "good": "green",
    "warn": "bold black on yellow",
    "bad": "bold white on red",
    "chosen": "reverse bold",
}


def line(parts: Iterable[Part]) -> Text:
    """Return a line; what would control the terminal is shown as an escape."""
    made = Text(end="", no_wrap=True)
    for one in parts:
        made.append(plain(one.text), STYLES[one.kind])
    return made


def lines(found: Sequence[Iterable[Part]]) -> Text:
    """Return lines, which are wrapped where the terminal is too narrow."""
    return Text("\n", end="").join([wrapped(one) for one in found])


def wrapped(parts: Iterable[Part]) -> Text:
    """Return a line that may be wrapped."""
    made = line(parts)
    made.no_wrap = False
    return made


def fitted(parts: Iterable[Part], width: int, *, right: bool = False) -> Text:
    """Return a cell of exactly this width."""
    made = line(parts)
    made.truncate(width, overflow="ellipsis")
    missing = width - made.cell_len
    if right:
        made.pad_left(missing)
    else:
        made.pad_right(missing)
    return made
