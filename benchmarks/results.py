"""Figures, and how they are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the table.

    Attributes:
        scale: the number that the variant varies: transactions at once, bytes of a message, or
            entries stored.
        per_s: transactions or messages in a second; None where only latency was measured.
        mb_per_s: payload alone, in units of 10^6 bytes.
        p50_ms, p99_ms: of what `latency_of` names.
        cpu_us: of client, broker and coordinator for each transaction or message.
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
    ceilings: tuple[str, ...] = ()


def line_name(workload: str, variant: str) -> str:
    return f"{workload}, {variant}"


def quantile(sorted_values: Sequence[float], fraction: float) -> float:
    """Of at least one value, in ascending order."""
    return sorted_values[min(int(len(sorted_values) * fraction), len(sorted_values) - 1)]


def latencies_ms(seconds: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    seconds.sort()
    return quantile(seconds, 0.5) * 1000, quantile(seconds, 0.99) * 1000


def print_table(results: Sequence[Result]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("workload")
    table.add_column("variant")
    for name in ("per second", "MB/s"):
        table.add_column(name, justify="right")
    table.add_column("latency of")
    for name in ("p50 ms", "p99 ms", "CPU us each"):
        table.add_column(name, justify="right")
    for one in results:
        table.add_row(
            one.workload,
            one.variant,
            _shown(one.per_s, 0),
            _shown(one.mb_per_s, 1),
            one.latency_of or "",
            _shown(one.p50_ms, 2),
            _shown(one.p99_ms, 2),
            "" if one.cpu_us is None else " + ".join(f"{some:.0f}" for some in one.cpu_us),
        )
    # Wide enough for every line, wherever it goes.
    Console(width=110).print(table)


def print_json(results: Sequence[Result]) -> None:
    print(json.dumps([asdict(one) for one in results], indent=2))


def _shown(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
