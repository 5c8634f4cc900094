"""The comparison as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.peers.figures import QUANTILES, Figure, Line, gathered
from benchmarks.peers.system import DURABILITIES

RIGHT = (
    "per second",
    "best",
    "server CPU s / million",
    "client CPU s / million",
    "server MiB",
    "others' CPUs",
)
SINGLE = "restart"
WRONG_COUNT = "of {expected:,} messages, {arrived:,} arrived"


def print_table(figures: Sequence[Figure]) -> None:
    """Medians of all rounds; with several, the least and the greatest in brackets."""
    # Wider than any line: it is never folded, wherever it goes.
    Console(width=1_000).print(table(figures))


def table(figures: Sequence[Figure]) -> Table:
    """A line for each system, durability and way of each variant, and one for each latency."""
    made = Table(box=None, pad_edge=False)
    for name in ("row", "variant", "system", "durability", "client"):
        made.add_column(name, no_wrap=True)
    for name in RIGHT:
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("latency of", no_wrap=True)
    for name in QUANTILES:
        made.add_column(f"{name} ms", justify="right", no_wrap=True)
    made.add_column("", no_wrap=True)
    for line in gathered(figures):
        names = line.latency_names()
        made.add_row(*_beginning(line), *_latency(line, names[:1]), _remark(line))
        for name in names[1:]:
            made.add_row(*[""] * (5 + len(RIGHT)), *_latency(line, [name]))
    return made


def _beginning(line: Line) -> list[str]:
    first = line.first
    # A restart is a single one: it has no rate, and millions of them mean nothing.
    each = first.row != SINGLE
    return [
        first.row,
        first.variant,
        first.system.capitalize(),
        DURABILITIES[first.durability],
        first.way,
        _shown(line, "per_s", 0) if each else "",
        f"{line.best_per_s():,.0f}" if each else "",
        f"{line.median('server_cpu_s_per_million'):,.2f}" if each else "",
        f"{line.median('client_cpu_s_per_million'):,.2f}" if each else "",
        f"{max(line.values('memory_mib')):,.0f}",
        f"{line.median('others_cpus'):.2f}",
    ]


def _latency(line: Line, names: Sequence[str]) -> list[str]:
    if not names:
        return [""] * (1 + len(QUANTILES))
    return [names[0], *(f"{line.latency_ms(names[0], one):,.2f}" for one in QUANTILES)]


def _remark(line: Line) -> str:
    for one in line.rounds:
        if not one.is_whole:
            return WRONG_COUNT.format(expected=one.expected, arrived=one.arrived)
    return ""


def _shown(line: Line, attribute: str, digits: int) -> str:
    values = line.values(attribute)
    shown = f"{line.median(attribute):,.{digits}f}"
    if len(values) > 1:
        shown += f" ({min(values):,.{digits}f}-{max(values):,.{digits}f})"
    return shown
