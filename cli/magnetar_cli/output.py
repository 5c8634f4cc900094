"""The output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any

from magnetar_core.errors import MagnetarError, code_name
from magnetar_core.ids import TxnID

LINE_CELLS_MAX = 1 << 16
# A column of longer texts may be folded where a table has to fit.
FIXED_CELLS_MAX = 12
# How wide the frame is that this is printed into; None: into none.
_frame_width: ContextVar[int | None] = ContextVar("_frame_width", default=None)


@contextmanager
def in_frame(width: int) -> Iterator[None]:
    """Print for a frame of a terminal: tables fit into its width, and their headers are bold."""
    before = _frame_width.set(width)
    try:
        yield
    finally:
        _frame_width.reset(before)


def print_json(value: Any) -> None:
    """Print a value as JSON, in the form that json_schema.py describes."""
    print(json.dumps(_plain(value), indent=2))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    empty: str,
    folds: bool = False,
) -> None:
    """Print aligned columns, numbers to the right.

    Nothing is shortened for a narrow terminal, which wraps long lines, so that a name can be copied
    from there. In a frame, long texts are folded within their columns.

    Args:
        empty: printed when there are no rows.
        folds: fold long texts on any terminal.
    """
    from rich.console import Console
    from rich.table import Table

    if not rows:
        print(empty, file=sys.stderr)
        return
    frame_width = _frame_width.get()
    fits = frame_width is not None or (folds and sys.stdout.isatty())
    console = Console(
        markup=False,
        highlight=False,
        emoji=False,
        force_terminal=frame_width is not None or None,
        width=frame_width if fits else LINE_CELLS_MAX,
        # Without a height, a terminal without control sequences would count as 80 cells wide.
        height=None if fits else 1,
    )
    texts = [[_text(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        numeric = all(isinstance(row[place], int) for row in rows)
        longest = max(len(row[place]) for row in texts)
        table.add_column(
            column,
            justify="right" if numeric else "left",
            no_wrap=not fits or numeric or longest <= FIXED_CELLS_MAX,
            overflow="fold",
        )
    for row in texts:
        table.add_row(*row)
    with console.capture() as captured:
        console.print(table)
    # Rows are filled up with spaces, which would wrap on a terminal.
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    """Print names and values, line by line."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print(f"{name:<{width}}  {_text(value)}")


def some(items: Sequence[object], count: int) -> str:
    """Return the first few items, and how many more there are."""
    shown = [str(item) for item in items[:3]]
    if count > len(shown):
        shown.append(f"and {count - len(shown):,} more")
    return " ".join(shown)


def duration(ms: int) -> str:
    """Format milliseconds for people: 350ms, 2.5s, 12m03s, 5h20m, 3d04h."""
    if ms < 1_000:
        return f"{ms}ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f}s"
    minutes, seconds = divmod(ms // 1_000, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02}h"


def _text(cell: object) -> str:
    if cell is None or cell == "" or cell == ():
        return "-"
    if isinstance(cell, tuple) and not hasattr(cell, "_fields"):
        return " ".join(str(one) for one in cell)
    return str(cell)


def _plain(value: Any) -> Any:
    if isinstance(value, TxnID):
        return str(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, MagnetarError):
        return {"code": code_name(value.to_wire().code), "message": str(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(one) for name, one in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value
