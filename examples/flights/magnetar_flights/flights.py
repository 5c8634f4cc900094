"""Flights: how they are read, what becomes of each, and what should come out of all of them.

It reads a file, and does no other I/O. The workers transform lines; `expected` computes the same
from the file by column names, with none of the workers' code, so that a mistake in one shows
against the other.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import islice
from pathlib import Path

# fmt: off
COLUMNS = [
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time",
    "sched_arr_time", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "air_time",
    "distance", "hour", "minute", "time_hour",
]
# fmt: on
# What tells a flight from all others.
IDENTITY = ("year", "month", "day", "carrier", "flight", "origin", "sched_dep_time")
MISSING = "NA"

_DEP_TIME, _ARR_DELAY, _CARRIER, _ORIGIN, _DEST = map(
    COLUMNS.index, ("dep_time", "arr_delay", "carrier", "origin", "dest")
)
_IDENTITY = tuple(map(COLUMNS.index, IDENTITY))


class NotFlights(Exception):
    """The file has other columns, or no rows."""


@dataclass(slots=True)
class Columns:
    """Messages for one topic: keys and values side by side."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)

    def add(self, key: str, value: str) -> None:
        self.keys.append(key.encode())
        self.values.append(value.encode())

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Results:
    """Results of some flights: each flight is in one of the two, exactly once.

    Attributes:
        delays: origin-destination -> identity and arrival delay in minutes; NA when diverted.
        cancellations: carrier -> identity.
    """

    delays: Columns
    cancellations: Columns


@dataclass(frozen=True, slots=True)
class Expected:
    """The messages, "key value", that each topic must hold, each once."""

    flight_count: int
    delays: Counter[bytes]
    cancellations: Counter[bytes]


def read_lines(path: Path, limit: int | None) -> list[bytes]:
    """The file's rows as they are, without the header.

    Raises:
        NotFlights: another file.
    """
    with path.open("rb") as file:
        header = next(file, b"").decode(errors="replace").strip().split(",")
        if header != COLUMNS:
            raise NotFlights(f"{path} is not a list of flights: its first line is {header[:5]}...")
        lines = [line.rstrip(b"\r\n") for line in islice(file, limit)]
    if not lines:
        raise NotFlights(f"{path} has no flights")
    return lines


def as_messages(lines: Iterable[bytes]) -> Columns:
    """Input messages: a row under the flight's identity."""
    messages = Columns()
    for row, line in _rows(lines):
        messages.keys.append(_identity(row).encode())
        messages.values.append(line)
    return messages


def transform(lines: Iterable[bytes]) -> Results:
    """Turn lines into delays and cancellations, as a worker does."""
    results = Results(Columns(), Columns())
    for row, _ in _rows(lines):
        if row[_DEP_TIME] == MISSING:
            results.cancellations.add(row[_CARRIER], _identity(row))
        else:
            route = f"{row[_ORIGIN]}-{row[_DEST]}"
            results.delays.add(route, f"{_identity(row)} {row[_ARR_DELAY]}")
    return results


def expected(path: Path, limit: int | None) -> Expected:
    """The same for the whole file, directly."""
    delays: Counter[bytes] = Counter()
    cancellations: Counter[bytes] = Counter()
    with path.open(newline="") as file:
        for flight in islice(csv.DictReader(file), limit):
            identity = ",".join(flight[name] for name in IDENTITY)
            if flight["dep_time"] == "NA":
                cancellations[f"{flight['carrier']} {identity}".encode()] += 1
            else:
                route = f"{flight['origin']}-{flight['dest']}"
                delays[f"{route} {identity} {flight['arr_delay']}".encode()] += 1
    return Expected(delays.total() + cancellations.total(), delays, cancellations)


def expected_windows(path: Path, limit: int | None) -> dict[str, bytes]:
    """Return the expected windows of each route and day; values as `canonical` makes them."""
    days: dict[tuple[str, date], list[dict[str, str]]] = {}
    with path.open(newline="") as file:
        for flight in islice(csv.DictReader(file), limit):
            day = date(int(flight["year"]), int(flight["month"]), int(flight["day"]))
            days.setdefault((f"{flight['origin']}-{flight['dest']}", day), []).append(
                {name: flight[name] for name in ("dep_time", "arr_delay")}
            )
    return {
        f"{route} {day}T00:00:00": canonical(_window(route, day, flights))
        for (route, day), flights in days.items()
    }


def canonical(window: object) -> bytes:
    """One text for equal windows."""
    return json.dumps(window, sort_keys=True).encode()


def _window(route: str, day: date, flights: list[dict[str, str]]) -> dict[str, object]:
    delays = [int(flight["arr_delay"]) for flight in flights if flight["arr_delay"] != "NA"]
    return {
        "route": route,
        "window_start": f"{day}T00:00:00",
        "window_end": f"{day + timedelta(days=1)}T00:00:00",
        "flights": len(flights),
        "cancelled": sum(flight["dep_time"] == "NA" for flight in flights),
        "arrived": len(delays),
        "arrival_delay_sum": sum(delays),
        "arrival_delay_mean": sum(delays) / len(delays) if delays else None,
        "arrival_delay_max": max(delays, default=None),
    }


def _rows(lines: Iterable[bytes]) -> Iterator[tuple[list[str], bytes]]:
    kept = list(lines)
    return zip(csv.reader(line.decode() for line in kept), kept, strict=True)


def _identity(row: list[str]) -> str:
    return ",".join([row[at] for at in _IDENTITY])
