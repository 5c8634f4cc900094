"""Synthetic flights, and what a transform must make of them, computed directly.

The lateness is computed here by Spark's documented rule, apart from the job: what a batch has seen
moves the watermark of the next one, and a batch drops what the one before it closed.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from magnetar_flights.flights import COLUMNS

EPOCH = datetime(1970, 1, 1)
START = datetime(2013, 3, 1)
NOT_FLIGHTS = (
    b"",
    b"year,month,day",
    ",".join(COLUMNS).encode(),
    b"\xff\xfe\x00",
    b"," * 100_000,
    b'"' * 31,
    b"x" * 300_000,
)


@dataclass(frozen=True)
class Flight:
    scheduled: datetime
    origin: str = "EWR"
    dest: str = "IAH"
    delay: int | None = 5
    is_cancelled: bool = False
    number: int = 1

    def row(self, **changed: str) -> bytes:
        at = self.scheduled
        cells = dict.fromkeys(COLUMNS, "1") | {
            "year": str(at.year),
            "month": str(at.month),
            "day": str(at.day),
            "sched_dep_time": str(100 * at.hour + at.minute),
            "dep_time": "NA" if self.is_cancelled else "517",
            "arr_delay": "NA" if self.delay is None else str(self.delay),
            "flight": str(self.number),
            "carrier": "UA",
            "origin": self.origin,
            "dest": self.dest,
        }
        return ",".join((cells | changed)[name] for name in COLUMNS).encode()


def damaged_rows() -> list[bytes]:
    """Nearly flights: a column too few or many, a date that is none, words for numbers."""
    whole = Flight(START)
    row = whole.row()
    return [
        row.rpartition(b",")[0],
        row + b",more",
        row + b"\n" + row,
        whole.row(sched_dep_time="2400"),
        whole.row(sched_dep_time="1275"),
        whole.row(sched_dep_time="NA"),
        whole.row(month="2", day="30"),
        whole.row(year="soon"),
        whole.row(arr_delay="late"),
        whole.row(dep_time=""),
        whole.row(origin=""),
        whole.row(dest="NA"),
    ]


def odd_rows() -> list[bytes]:
    """Flights all the same: quoted, and with the line end of another system."""
    flight = Flight(START)
    return [flight.row(carrier='"U,A"', origin='"EWR"'), flight.row() + b"\r\n"]


def some_flights(count: int, random: Random, days: int, shuffle_minutes: int) -> list[Flight]:
    """In the order of departure, but for some that come later by up to so many minutes."""
    minutes = days * 1_440
    times = sorted(random.randrange(minutes) for _ in range(count))
    order = sorted(times, key=lambda one: one + random.randrange(shuffle_minutes + 1))
    return [
        Flight(
            START + timedelta(minutes=one),
            random.choice(("EWR", "JFK", "LGA")),
            random.choice(("IAH", "MIA")),
            None if random.random() < 0.1 else random.randrange(-60, 500),
            random.random() < 0.05,
            number,
        )
        for number, one in enumerate(order)
    ]


@dataclass
class Totals:
    """Of one window and route."""

    flights: int = 0
    cancelled: int = 0
    delays: list[int] = field(default_factory=list)


@dataclass
class Direct:
    """The computation, batch after batch."""

    window: timedelta
    late_by: timedelta
    totals: dict[tuple[str, datetime], Totals] = field(default_factory=dict)
    late: list[bytes] = field(default_factory=list)
    malformed: list[bytes] = field(default_factory=list)
    watermark: datetime = EPOCH
    _before: datetime = EPOCH
    _latest: datetime = EPOCH

    def batch(self, rows: Iterable[bytes]) -> None:
        latest = self._latest
        for row in rows:
            flight = _flight_of(row)
            if flight is None:
                self.malformed.append(row)
                continue
            latest = max(latest, flight.scheduled)
            start = flight.scheduled - (flight.scheduled - EPOCH) % self.window
            if start + self.window <= self._before:
                self.late.append(row)
                continue
            one = self.totals.setdefault((f"{flight.origin}-{flight.dest}", start), Totals())
            one.flights += 1
            one.cancelled += flight.is_cancelled
            one.delays += [] if flight.delay is None else [flight.delay]
        self._latest = latest
        self._move()

    def batches(self, rows: list[bytes], size: int) -> None:
        """All that is there, and then the batch without rows by which Spark closes windows."""
        for begin in range(0, len(rows), size):
            self.batch(rows[begin : begin + size])
        if self.watermark != self._before:
            self._move()

    def _move(self) -> None:
        self._before = self.watermark
        self.watermark = max(self.watermark, self._latest - self.late_by)

    def messages(self, *, closed_only: bool = False) -> dict[str, dict[str, object]]:
        return {
            f"{route} {start.isoformat()}": {
                "route": route,
                "window_start": start.isoformat(),
                "window_end": (start + self.window).isoformat(),
                "flights": one.flights,
                "cancelled": one.cancelled,
                "arrived": len(one.delays),
                "arrival_delay_sum": sum(one.delays),
                "arrival_delay_mean": sum(one.delays) / len(one.delays) if one.delays else None,
                "arrival_delay_max": max(one.delays, default=None),
            }
            for (route, start), one in self.totals.items()
            if not closed_only or start + self.window <= self.watermark
        }


def _flight_of(row: bytes) -> Flight | None:
    """By Python's own reader of CSV; None for what is no flight."""
    try:
        ((*cells,),) = csv.reader(io.StringIO(row.decode().rstrip("\r\n")), strict=True)
        of = dict(zip(COLUMNS, cells, strict=True))
        time = int(of["sched_dep_time"])
        at = datetime(int(of["year"]), int(of["month"]), int(of["day"]), *divmod(time, 100))
        delay = None if of["arr_delay"] == "NA" else int(of["arr_delay"])
        if of["dep_time"] != "NA":
            int(of["dep_time"])
    except (ValueError, csv.Error):
        return None
    if len(of["origin"]) != 3 or len(of["dest"]) != 3:
        return None
    return Flight(at, of["origin"], of["dest"], delay, of["dep_time"] == "NA")


def last_of_each(messages: Iterable[tuple[bytes | None, bytes]]) -> dict[str, dict[str, object]]:
    """What counts of updates: a key's last message.

    A message that does not say more than the one before it was written twice, and fails.
    """
    last: dict[str, dict[str, object]] = {}
    for key, value in messages:
        assert key is not None
        one = json.loads(value)
        before = last.get(key.decode(), {"flights": 0})
        assert before["flights"] < one["flights"], (key, before, one)
        last[key.decode()] = one
    return last
