"""Compare what a command printed with what the page shows.

Times, ports and ids that are given out at random differ from run to run. Dots on the page
stand for any text; as a whole line they stand for any lines, and in JSON for any value.
"""

from __future__ import annotations

import json
import re
from typing import Any

ANYTHING = "..."
# Columns of tables that differ from run to run.
DIFFERING_COLUMNS = {
    *(
        "ADDRESS",
        "AGE",
        "EPOCH",
        "ID",
        "LEDGER",
        "LOG",
        "METRICS",
        "PROCESS",
        "PRODUCERID",
        "TXNID",
    ),
    *("STORE", "ROWS"),
}
_DIFFERS = re.compile(r"(?<=id )\d+|(?<=in )[\d.]+ s: [\d,]+|(?<=127\.0\.0\.1:)\d+")


def alike(found: list[str], wanted: list[str]) -> bool:
    """Whether the lines that were printed say what the page shows."""
    if wanted and wanted[0].startswith("{"):
        return _alike_as_json(found, wanted)
    rest = _comparable(found)
    may_skip = False
    for line in wanted:
        if line == ANYTHING:
            may_skip = True
            continue
        (row,) = _comparable([wanted[0], line])[1:]
        places = [place for place, one in enumerate(rest) if _same(one, row)]
        if may_skip and places:
            rest = rest[places[0] :]
        if not rest or not _same(rest.pop(0), row):
            return False
        may_skip = False
    return may_skip or not rest


def _same(found: list[str], wanted: list[str]) -> bool:
    return len(found) == len(wanted) and all(
        re.fullmatch(re.escape(cell).replace(re.escape(ANYTHING), ".*"), one)
        for one, cell in zip(found, wanted, strict=True)
    )


def _comparable(lines: list[str]) -> list[list[str]]:
    """Some columns of a table, or lines without numbers that differ."""
    header = _cells(lines[0]) if lines else []
    is_table = len(header) > 1 and all(one == one.upper() for one in header)
    if not is_table:
        return [[_DIFFERS.sub("", line)] for line in lines]
    chosen = [place for place, one in enumerate(header) if one not in DIFFERING_COLUMNS]
    return [
        [row[place] for place in chosen] if len(row) == len(header) else row
        for row in map(_cells, lines)
    ]


def _cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def _alike_as_json(found: list[str], wanted: list[str]) -> bool:
    try:
        values = json.loads("\n".join(found))
    except ValueError:
        return False
    return alike_values(values, json.loads("\n".join(wanted)))


def alike_values(found: Any, wanted: Any) -> bool:
    if wanted == ANYTHING:
        return True
    if isinstance(wanted, dict):
        names = wanted.keys() - {ANYTHING}
        complete = ANYTHING in wanted or names == found.keys()
        return complete and all(alike_values(found.get(name), wanted[name]) for name in names)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(alike_values, found, wanted))
    return bool(found == wanted)
