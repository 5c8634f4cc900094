"""Values of TLA+, and their text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Values of TLA+, and sequences, sets (frozenset) and records of them.
Value = Any
Record = dict[str, Value]


def frozen(record: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """Return a record that may be in a set."""
    return tuple(
        (name, frozen(value) if isinstance(value, dict) else value)
        for name, value in record.items()
    )


def written(value: Value) -> str:
    """Return a value as TLA+ writes it."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(written, value)))}}}"
    if isinstance(value, dict):
        value = frozen(value)
    if isinstance(value, tuple):
        return f"[{', '.join(f'{name} |-> {written(one)}' for name, one in value)}]"
    return str(value)
