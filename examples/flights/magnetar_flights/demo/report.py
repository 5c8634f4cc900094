"""The display for the user: bars and events while the demo runs, tables at the end."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from magnetar_flights.demo.killer import DRIVER, WORKER, Kill
from magnetar_flights.demo.verify import Check

# Without a terminal: a line for each such part of a stage; in a drawing, which has to be short.
SHARE_PER_LINE, SHARE_PER_LINE_DRAWN = 0.25, 1.0
# In characters, without a terminal, and of a drawing, which must be read at the width of a page.
WIDTH, DRAWN_WIDTH = 160, 124


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTotals:
    """The figures of Spark's part, for both drivers together."""

    window_count: int
    batch_count: int
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The figures of a run.

    Attributes:
        committed_count: how many transactions the workers committed, without the loader's.
        expired_count: how many of the aborted transactions a killed worker had left open.
        spark: the figures of Spark's part; None if it was left out.
    """

    flight_count: int
    load_txn_count: int
    load_s: float
    committed_count: int
    aborted_count: int
    expired_count: int
    output_count: int
    process_s: float
    spark: SparkTotals | None
    elapsed_s: float


class Display:
    """Shows progress: bars on a terminal, a few lines elsewhere."""

    def __init__(self, *, is_drawn: bool = False) -> None:
        self.console = Console(highlight=False, emoji=False)
        self.share_per_line = SHARE_PER_LINE
        if is_drawn:
            self.share_per_line = SHARE_PER_LINE_DRAWN
            # Without bars: a drawing would have each of their steps.
            self.console = Console(
                highlight=False, emoji=False, force_terminal=False, record=True, width=DRAWN_WIDTH
            )
        elif not self.console.is_terminal:
            self.console.width = WIDTH
        self._progress = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._started_s = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the bars as they are; later output appears below."""
        if self._progress.live.is_started:
            self._progress.stop()

    def draw(self, path: Path) -> None:
        """Draw all that was printed as a terminal, in an SVG file that needs nothing else."""
        drawing = self.console.export_svg(title="make demo", unique_id="demo")
        # A page that shows the file loads no fonts for it.
        path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL))

    @property
    def elapsed_s(self) -> float:
        """The time since the start of the demo, in seconds."""
        return time.monotonic() - self._started_s

    def say(self, text: str) -> None:
        """Print a line."""
        self._progress.console.print(f"[dim]{self.elapsed_s:6.1f} s[/]  {text}", soft_wrap=True)

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Stage]:
        """Begin a stage with this number of messages."""
        stage = Stage(self, self._progress, name, total)
        yield stage
        stage.at(total)
        self._progress.stop_task(stage.task)

    def kill(self, kill: Kill) -> None:
        """Print a kill and the recovery from it."""
        again = "its replacement" if kill.kind in (WORKER, DRIVER) else "the next transaction"
        self.say(
            f"[red]killed[/] the {kill.kind} (process {kill.pid}) with {kill.open_count} open "
            f"{'transaction' if kill.open_count == 1 else 'transactions'}; "
            f"[green]{again} committed after {kill.recovery_s:.2f} s[/]"
            + (f"; {kill.joined} has joined" if kill.joined else "")
        )


class Stage:
    """The progress of a stage."""

    def __init__(self, display: Display, progress: Progress, name: str, total: int) -> None:
        self.task: TaskID = progress.add_task(name, total=total)
        self._display = display
        self._progress = progress
        self._name = name
        self._total = total
        self._done = 0
        self._told_share = 0.0

    def advance(self, count: int) -> None:
        """Count messages."""
        self.at(self._done + count)

    def at(self, done: int) -> None:
        """Set how many messages are done."""
        self._done = done
        self._progress.update(self.task, completed=done)
        if self._display.console.is_terminal:
            return
        share = done / self._total
        per_line = self._display.share_per_line
        if share >= self._told_share + per_line or (share >= 1 > self._told_share):
            self._told_share = share - share % per_line
            self._display.say(f"{self._name}: {done:,} of {self._total:,}")


def print_report(
    console: Console, totals: Totals, kills: Sequence[Kill], checks: Sequence[Check]
) -> None:
    """Print the tables at the end."""
    console.print()
    console.print(_figures(totals, kills))
    console.print()
    console.print(_verdicts(checks))
    for check in checks:
        for difference in check.differences:
            console.print(f"  {check.claim}: {difference}", style="red", markup=False)


def _figures(totals: Totals, kills: Sequence[Kill]) -> Table:
    table = Table(title="What happened", title_justify="left", show_header=False)
    table.add_column()
    table.add_column()
    load_rate = totals.flight_count / totals.load_s
    table.add_row(
        "Flights loaded",
        f"{totals.flight_count:,} in {totals.load_txn_count:,} transactions, "
        f"{totals.load_s:.1f} s: {load_rate:,.0f} messages/s",
    )
    table.add_row("Transactions committed", f"{totals.committed_count:,}")
    table.add_row(
        "Transactions aborted",
        f"{totals.aborted_count:,}, {totals.expired_count:,} of them expired with a killed worker",
    )
    messages_rate = totals.output_count / totals.process_s
    txn_rate = totals.committed_count / totals.process_s
    table.add_row("Messages out", f"{totals.output_count:,} in {totals.process_s:.1f} s")
    table.add_row(
        "Rate, with the kills",
        f"{messages_rate:,.0f} messages/s, {txn_rate:,.0f} transactions/s",
    )
    if totals.spark is not None:
        spark = totals.spark
        table.add_row(
            "Windows by Spark",
            f"{spark.window_count:,} in {spark.batch_count:,} batches, {spark.elapsed_s:.1f} s, "
            "with two starts",
        )
    table.add_section()
    for kill in kills:
        table.add_row(
            f"Recovery, {kill.kind} killed",
            f"{kill.recovery_s:.2f} s  ({kill.open_count} open when it was killed)",
        )
    table.add_section()
    table.add_row("All together", f"{totals.elapsed_s:.1f} s")
    return table


def _verdicts(checks: Sequence[Check]) -> Table:
    table = Table(title="What came out", title_justify="left")
    table.add_column("Check")
    table.add_column("Found")
    table.add_column("Verdict", no_wrap=True)
    for check in checks:
        verdict = "[green]holds[/]" if check.holds else "[bold red]FAILS[/]"
        if check.is_left_out:
            verdict = "[yellow]left out[/]"
        table.add_row(check.claim, check.found, verdict)
    return table
