"""Reports of a comparison, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.quick.compare import Comparison, Spread, Verdict, why_not_judged
from benchmarks.quick.figures import ALL, CALIBRATION_REFERENCE_S, PROCESSES
from benchmarks.quick.kept import Figures, to_plain

STYLES = {Verdict.SLOWER: "red", Verdict.FASTER: "green"}
# Wider than any line: in a file or a pipe it is never folded.
WIDTH = 1_000


def print_comparison(
    kept: Figures | None, today: Figures, rows: Sequence[Comparison], notes: Sequence[str]
) -> None:
    """Print a table of the rows that are of account, and what moved."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDTH
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("workload", "measured"):
        table.add_column(name, no_wrap=True)
    for name in ("kept", "today", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    shown_before = None
    for row in rows:
        if row.is_small:
            continue
        workload = row.key.workload
        table.add_row(
            "" if workload == shown_before else workload,
            measured(row),
            "" if row.kept is None else spread(row.kept),
            spread(row.today),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.verdict.value,
            style=STYLES.get(row.verdict),
        )
        shown_before = workload
    console.print(table)
    console.print()
    for line in (*summary(kept, today, rows), *notes):
        console.print(line)


def measured(row: Comparison) -> str:
    """Return the name of a row's measure, with its unit."""
    is_cost = row.key.measure in (*PROCESSES, ALL)
    return f"{row.key.measure}, us each" if is_cost else row.key.measure


def spread(found: Spread) -> str:
    """The median, and the least and greatest round: 1.31 (1.28..1.40)."""
    digits = 0 if found.median >= 100 else 1 if found.median >= 10 else 2
    shown = f"{found.median:,.{digits}f}"
    return f"{shown} ({found.least:,.{digits}f}..{found.greatest:,.{digits}f})"


def summary(kept: Figures | None, today: Figures, rows: Sequence[Comparison]) -> Iterator[str]:
    """The circumstances, and what moved, in sentences."""
    yield (
        "us: processor time for each message or transaction, as where a calibration pass takes "
        f"{CALIBRATION_REFERENCE_S * 1e3:g} ms; here it took {today.calibration_ms:.1f}. "
        "Others: ratios of two workloads of the same round. Median (least..greatest) of the rounds."
    )
    if kept is None:
        return
    yield f"Kept: {kept.date}, commit {kept.commit}, {kept.python}, cores: {kept.cores}."
    yield f"Today: {today.date}, commit {today.commit}, {today.python}, cores: {today.cores}."
    reason = why_not_judged(kept, today)
    if reason is not None:
        yield f"The kept figures are not judged: {reason}. --kept FILE --keep makes others."
        return
    if kept.cores != today.cores:
        yield "Elapsed times depend on the number of cores, which is another one today."
    wide = sum(row.today.is_wide for row in rows if not row.is_small)
    if wide:
        yield f"Rows whose rounds differ so much that they say little: {wide}. Is the machine busy?"
    for verdict in (Verdict.SLOWER, Verdict.FASTER):
        found = [row for row in rows if row.verdict is verdict]
        if found:
            named = (f"{row.key.workload}: {row.key.measure} {_times(row)}" for row in found)
            yield f"{verdict.value}: {'; '.join(named)}"
    if not any(row.verdict in STYLES for row in rows):
        yield "Nothing moved."


def plain(
    kept: Figures | None, today: Figures, rows: Sequence[Comparison], notes: Sequence[str]
) -> dict[str, Any]:
    """All of it, for JSON."""
    return {
        "kept": None if kept is None else to_plain(kept),
        "today": to_plain(today),
        "rows": [
            {
                "workload": row.key.workload,
                "measure": row.key.measure,
                "kept": None if row.kept is None else asdict(row.kept),
                "today": asdict(row.today),
                "ratio": row.ratio,
                "verdict": row.verdict.value,
                "is_small": row.is_small,
            }
            for row in rows
        ],
        "notes": [*summary(kept, today, rows), *notes],
    }


def _times(row: Comparison) -> str:
    return "(was nothing)" if row.ratio is None else f"{row.ratio:.2f}"
