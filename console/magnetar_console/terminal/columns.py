"""Tables of `magnetar top`: columns, how rows are sorted and found. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from magnetar_console.looks.view import View
from magnetar_console.seen import Row, Table, Tables
from magnetar_console.terminal.words import Part, Parts, count

# A row, and the present time in milliseconds since the Unix epoch.
Cell: TypeAlias = Callable[[Row, int], Parts]

LATE: Final = float("inf")


class Column(NamedTuple):
    """A column.

    Attributes:
        cell: what it shows of a row.
        order: by what it sorts rows.
        width: in characters; 0: a share of what the others leave.
        share: how large that is, in proportion to the shares of others.
        fits: whether it becomes narrower when all its rows have room.
        right: whether it has numbers: at the right, and the largest first.
        from_width: in terminals that are narrower, it is left out.
    """

    title: str
    cell: Cell
    order: Callable[[Row], Any]
    width: int = 0
    right: bool = False
    from_width: int = 0
    fits: bool = False
    share: int = 1


class Tab(NamedTuple):
    """A table with a key of its own.

    Attributes:
        name: its title, and what its rows are called.
        view: where its rows come from, and table: which of its tables.
        sort: the column that it is sorted by at first, and whether the largest comes first.
        facts: numbers of the whole table.
        beside: a table whose rows of the same keys are added, under its name.
        about: all about the row under the cursor that has no room in the table.
        empty: how to get something to see.
    """

    name: str
    view: View
    table: str
    columns: tuple[Column, ...]
    sort: tuple[int, bool]
    facts: Callable[[Tables, int], Parts]
    about: Cell
    empty: str
    beside: str = ""

    def rows(self, tables: Tables) -> Table:
        """Return its rows, by key."""
        rows = tables.get(self.table, {})
        if not self.beside:
            return rows
        others = tables.get(self.beside, {})
        return {key: {**row, self.beside: others.get(key)} for key, row in rows.items()}


def matches(row: Row, text: str) -> bool:
    """Whether any text in a row contains this one; case does not matter."""
    wanted = text.strip().casefold()
    return not wanted or any(wanted in one.casefold() for one in _texts(row))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if value.get("may_be_prepared"):
            yield "may be prepared"
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from _texts(one)


def text(name: str) -> Cell:
    """Return a cell with a text of the row."""
    return lambda row, _: (Part(row[name]),)


def number(name: str) -> Cell:
    """Return a cell with a number of the row."""
    return lambda row, _: (Part(count(row.get(name))),)


def by(name: str) -> Callable[[Row], Any]:
    """Return an order by a number of the row."""
    return lambda row: row.get(name) or 0


def by_text(name: str) -> Callable[[Row], Any]:
    """Return an order by a text of the row; case does not matter."""
    return lambda row: row[name].casefold()


def txn_order(text: str) -> tuple[int, ...]:
    """Return by what a TxnID, or another name with numbers, is sorted."""
    return tuple(int(one) for one in text.replace("-", ":").split(":") if one.isdigit())
