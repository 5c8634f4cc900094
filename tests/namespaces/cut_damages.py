"""Cuts that are damaged on purpose, as mistakes of servers would: the checker finds them.

Pure, as damages.py, of which this is the part about cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.namespaces.damages import Damage
from tests.namespaces.records import Record


def torn_cut(records: Sequence[Record], random: Random) -> list[Record] | None:
    """A cut has one half of a transfer, and the other half comes with the next."""
    found = [
        (at, row)
        for at in _of_kind(records, "cut")[:-1]
        for row in records[at]["rows"]
        if row[4] is not None
    ]
    if not found:
        return None
    at, row = random.choice(found)
    return _put_off(records, at, [row])


def late_commit(records: Sequence[Record], random: Random) -> list[Record] | None:
    """A commit was answered, and only the next cut has the transfer."""
    found = []
    for at in _of_kind(records, "cut")[:-1]:
        asked_at = records[at]["asked_at"]
        answered = {
            record["txn"]
            for record in records
            if record["kind"] == "ended" and record["outcome"] == "ok" and record["at"] < asked_at
        }
        found += [(at, row[4]) for row in records[at]["rows"] if row[4] in answered]
    if not found:
        return None
    at, txn = random.choice(found)
    return _put_off(records, at, [row for row in records[at]["rows"] if row[4] == txn])


def late_input(records: Sequence[Record], random: Random) -> list[Record] | None:
    """A cut has a transfer, and only the next one has the order that it carried out."""
    inputs = {
        record["txn"]: record["input"]
        for record in records
        if record["kind"] == "send" and record["txn"] is not None and record["input"] is not None
    }
    found = []
    for at in _of_kind(records, "cut")[:-1]:
        rows = records[at]["rows"]
        sources = [inputs[row[4]] for row in rows if row[4] in inputs]
        found += [
            (at, row) for row in rows if list(row[:3]) in [list(source) for source in sources]
        ]
    if not found:
        return None
    at, row = random.choice(found)
    return _put_off(records, at, [row])


def twice_in_cuts(records: Sequence[Record], random: Random) -> list[Record] | None:
    """What a cut had comes again with the next."""
    found = [at for at in _of_kind(records, "cut")[:-1] if records[at]["rows"]]
    if not found:
        return None
    at = random.choice(found)
    return _put_off(records, at, [random.choice(records[at]["rows"])], keep=True)


def changed_cut(records: Sequence[Record], random: Random) -> list[Record] | None:
    """Who reads a cut again does not get all of it."""
    found = [at for at in _of_kind(records, "cut again") if records[at]["rows"]]
    if not found:
        return None
    at = random.choice(found)
    rows = list(records[at]["rows"])
    rows.pop(random.randrange(len(rows)))
    return [*records[:at], {**records[at], "rows": rows}, *records[at + 1 :]]


def _of_kind(records: Sequence[Record], kind: str) -> list[int]:
    return [at for at, one in enumerate(records) if one["kind"] == kind]


def _put_off(
    records: Sequence[Record], at: int, rows: Sequence[list[object]], *, keep: bool = False
) -> list[Record]:
    """Have rows of a cut come with the next one; keep: with both."""
    later = next(one for one in _of_kind(records, "cut") if one > at)
    damaged = list(records)
    if not keep:
        left = [row for row in records[at]["rows"] if row not in rows]
        damaged[at] = {**records[at], "rows": left}
    damaged[later] = {**records[later], "rows": [*records[later]["rows"], *rows]}
    return damaged


CUT_DAMAGES: tuple[Damage, ...] = (torn_cut, late_commit, late_input, twice_in_cuts, changed_cut)
