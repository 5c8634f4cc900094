"""Hold the histories of a mutant against those of the code as it is."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from tests.mutants.histories import HISTORY_SECONDS_MAX, history
from tests.mutants.mutant import ROOT
from tests.mutants.overlay import environment

# Without a line for so long, whatever else the machine does: the history does not end.
SILENCE_SECONDS_MAX = 20 * HISTORY_SECONDS_MAX


class Ran(NamedTuple):
    """One history, as tests.mutants.histories prints it."""

    number: int
    digest: str
    failure: str | None
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the simulation saw of a mutant.

    Attributes:
        active: the first history that ran differently; None: all ran as ever.
        found: the one in which a checker complained, and what it said.
        histories, cpu_seconds: how much was run until then, or in all.
    """

    histories: int
    cpu_seconds: float
    active: str | None = None
    found: str | None = None
    failure: str | None = None


@contextlib.contextmanager
def _histories(folder: Path | None, first: int, end: int) -> Iterator[Iterator[Ran]]:
    """Run some in another process; it is ended when the caller has seen enough."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.histories", str(first), str(end)],
            cwd=ROOT,
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield _read(process.stdout, first, end, errors)
        finally:
            process.kill()


def _read(lines: IO[str], first: int, end: int, errors: IO[str]) -> Iterator[Ran]:
    for number in range(first, end):
        ready, _, _ = select.select([lines], [], [], SILENCE_SECONDS_MAX)
        line = lines.readline() if ready else ""
        if not line:
            errors.seek(0)
            said = errors.read().strip().splitlines() or ["it said nothing more"]
            why = said[-1] if ready else "it does not end"
            yield Ran(number, "", f"the process failed: {why}"[:300], 0.0)
            return
        yield Ran(*json.loads(line))


class Baseline:
    """Histories of the code as it is, as many as the budget allows."""

    def __init__(self) -> None:
        self.ran: list[Ran] = []

    def run(self, histories_max: int, cpu_seconds_max: float) -> Iterator[Ran]:
        spent = 0.0
        with _histories(None, 0, histories_max) as ran:
            for one in ran:
                self.ran.append(one)
                spent += one.cpu_seconds
                yield one
                if spent >= cpu_seconds_max:
                    return

    @property
    def failures(self) -> list[Ran]:
        """Seeds that fail without any mistake: what they say of mutants does not count."""
        return [one for one in self.ran if one.failure is not None]


def simulate(baseline: Baseline, folder: Path, cpu_seconds_max: float) -> Simulated:
    """Run the same histories with the mistake, until one fails that does not fail without."""
    spent, count = 0.0, 0
    active: str | None = None
    with _histories(folder, 0, len(baseline.ran)) as ran:
        for sound, one in zip(baseline.ran, ran, strict=False):
            spent, count = spent + one.cpu_seconds, count + 1
            if active is None and one.digest != sound.digest:
                active = str(history(one.number))
            if one.failure is not None and sound.failure is None:
                name = str(history(one.number))
                return Simulated(
                    histories=count,
                    cpu_seconds=spent,
                    active=active or name,
                    found=name,
                    failure=one.failure,
                )
            if spent >= cpu_seconds_max:
                break
    return Simulated(histories=count, cpu_seconds=spent, active=active)
