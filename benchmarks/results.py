"""Figures, and how they are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the table, measured once.

    Attributes:
        scale: the number that the variant varies: transactions at once, bytes of a message, or
            entries stored.
        per_s: transactions or messages in a second; None where only latency was measured.
        mb_per_s: payload alone, in units of 10^6 bytes.
        p50_ms, p99_ms: of what `latency_of` names.
        cpu_us: of client, broker and coordinator for each transaction or message.
        bytes_each: of broker and coordinator, resident, for each transaction.
        ceilings: names of the lines whose payload rate is the most that this one could reach.
    """

    workload: str
    variant: str
    scale: int | None = None
    per_s: float | None = None
    mb_per_s: float | None = None
    latency_of: str | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    cpu_us: tuple[float, ...] | None = None
    bytes_each: tuple[float, ...] | None = None
    ceilings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return line_name(self.workload, self.variant)


def line_name(workload: str, variant: str) -> str:
    return f"{workload}, {variant}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table, with all of its repetitions; there is at least one."""

    repetitions: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """The first repetition: for the attributes that all repetitions share."""
        return self.repetitions[0]

    def values(self, attribute: str) -> list[float]:
        """Return the values of an attribute, of each repetition that has one."""
        found = [getattr(one, attribute) for one in self.repetitions]
        return [one for one in found if one is not None]

    def median(self, attribute: str) -> float | None:
        values = self.values(attribute)
        return median(values) if values else None

    def medians(self, attribute: str) -> list[float]:
        """Return the median for each process, of an attribute with a number for each."""
        found = [getattr(one, attribute) for one in self.repetitions]
        return [median(each) for each in zip(*(one for one in found if one), strict=True)]


def gathered(results: Sequence[Result]) -> list[Line]:
    """The repetitions of each line, in the order in which lines were first measured."""
    lines: dict[tuple[str, str | None], list[Result]] = {}
    for result in results:
        lines.setdefault((result.name, result.latency_of), []).append(result)
    return [Line(tuple(repetitions)) for repetitions in lines.values()]


def ceiling_lines(line: Line, lines: Sequence[Line]) -> list[Line]:
    """Return the measured ceilings with which a line is compared."""
    return [one for one in lines if one.first.name in line.first.ceilings]


def quantile(sorted_values: Sequence[float], fraction: float) -> float:
    """Return a quantile of at least one value, in ascending order."""
    return sorted_values[min(int(len(sorted_values) * fraction), len(sorted_values) - 1)]


def latencies_ms(seconds: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    seconds.sort()
    return quantile(seconds, 0.5) * 1000, quantile(seconds, 0.99) * 1000


def print_table(results: Sequence[Result]) -> None:
    """Medians; with several repetitions, the least and the greatest in brackets."""
    lines = gathered(results)
    table = Table(box=None, pad_edge=False)
    table.add_column("workload", no_wrap=True)
    table.add_column("variant", no_wrap=True)
    for name in ("per second", "MB/s", "of the ceiling"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("latency of", no_wrap=True)
    for name in ("p50 ms", "p99 ms", "CPU us each", "bytes each"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            line.first.workload,
            line.first.variant,
            _shown(line, "per_s", 0),
            _shown(line, "mb_per_s", 1),
            _ratios(line, lines),
            line.first.latency_of or "",
            _shown(line, "p50_ms", 2),
            _shown(line, "p99_ms", 2),
            " + ".join(f"{some:.{0 if some >= 10 else 2}f}" for some in line.medians("cpu_us")),
            " + ".join(f"{some:,.0f}" for some in line.medians("bytes_each")),
        )
    # Wider than any line: it is never folded, wherever it goes.
    Console(width=1_000).print(table)


def to_json(results: Sequence[Result]) -> str:
    """Every repetition of every line, in the order of measurement."""
    return json.dumps([asdict(result) for result in results], indent=2)


def from_json(text: str) -> list[Result]:
    """Read results that to_json wrote."""
    return [
        Result(**{name: _restored(value) for name, value in one.items()})
        for one in json.loads(text)
    ]


def _restored(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _shown(line: Line, attribute: str, digits: int) -> str:
    values = line.values(attribute)
    if not values:
        return ""
    shown = f"{median(values):,.{digits}f}"
    if len(values) > 1:
        shown += f" ({min(values):,.{digits}f}-{max(values):,.{digits}f})"
    return shown


def _ratios(line: Line, lines: Sequence[Line]) -> str:
    """Return the ratio of medians to each ceiling, with its name if there are several."""
    rate = line.median("mb_per_s")
    ceilings = ceiling_lines(line, lines)
    shown = []
    for ceiling in ceilings:
        most = ceiling.median("mb_per_s")
        if rate is not None and most:
            name = f" {ceiling.first.workload}" if len(ceilings) > 1 else ""
            shown.append(f"{rate / most:.2f}{name}")
    return ", ".join(shown)
