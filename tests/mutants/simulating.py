"""Hold the histories of a mutant against those of the code as it is."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.mutants.baseline import Baseline, ProcessFailed, Ran, read_line
from tests.mutants.histories import History
from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.overlay import environment
from tests.mutants.reach import Choice, Reach, further, reach

# Long histories begin when the short ones have had so much processor time.
SHORT_SECONDS_FIRST = 1.0
# When so many fall before anybody has done anything, all do.
AT_ONCE_HISTORIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the simulation saw of a mutant.

    Attributes:
        reached: histories of the baseline that execute what is changed.
        active: the first history that ran differently; None: all ran as ever.
        found: the one in which a checker complained, and what it said.
        everywhere: every history that was run crashed at once: no checker was needed.
        histories, cpu_seconds: how much was run until then, or in all.
    """

    reached: int
    histories: int
    cpu_seconds: float
    active: str | None = None
    found: str | None = None
    failure: str | None = None
    everywhere: bool = False


class Process:
    """Runs histories one by one; it is started with the first."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def run(self, one: History) -> Ran:
        if self._process is None:
            self._start()
        process, errors = self._process, self._errors
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        assert errors is not None
        try:
            process.stdin.write(json.dumps(one) + "\n")
            process.stdin.flush()
            return Ran(one, *json.loads(read_line(process.stdout, errors)))
        except (ProcessFailed, BrokenPipeError) as error:
            self.end()
            return Ran(one, "", str(error), 0.0, at_once=True)

    def _start(self) -> None:
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._errors = self._stack.enter_context(errors)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.histories"],
            cwd=ROOT,
            env=environment(self._folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        self._stack.close()


@contextmanager
def _process(folder: Path | None) -> Iterator[Process]:
    process = Process(folder)
    try:
        yield process
    finally:
        process.end()


def simulate(mutant: Mutant, baseline: Baseline, folder: Path, cpu_seconds_max: float) -> Simulated:
    """Run histories with the mistake, until one fails that does not fail without.

    First those of the baseline that execute what is changed; then further ones, of the kinds that
    do so most often.
    """
    there = reach(mutant, baseline)
    count, spent = 0, 0.0
    active: str | None = None
    # What crashed at once, as all before it.
    crash: Simulated | None = None
    with _process(folder) as changed, _process(None) as sound:
        for choice in _choices(there, baseline):
            if spent >= cpu_seconds_max:
                break
            one = changed.run(choice.history)
            choice.took(one.cpu_seconds)
            count, spent = count + 1, spent + one.cpu_seconds
            known = baseline.ran[choice.number] if choice.number is not None else None
            if active is None and known is not None and known.digest != one.digest:
                active = str(one.history)
            if crash is not None and not one.at_once:
                return crash
            if one.failure is None:
                continue
            if known is None:
                known = sound.run(one.history)
            if known.failure is None:
                found = Simulated(
                    reached=len(there.numbers),
                    histories=count,
                    cpu_seconds=spent,
                    active=active or str(one.history),
                    found=str(one.history),
                    failure=one.failure,
                    everywhere=one.at_once and count == AT_ONCE_HISTORIES,
                )
                if not one.at_once or (crash is None and count > 1) or found.everywhere:
                    return found
                crash = crash or found
    return crash or Simulated(
        reached=len(there.numbers), histories=count, cpu_seconds=spent, active=active
    )


class _Stream:
    """Histories that take about equally long, and the processor time that they had."""

    def __init__(self, numbers: list[int], cpu_seconds: float) -> None:
        self.numbers = iter(numbers)
        self.cpu_seconds = cpu_seconds

    def took(self, seconds: float) -> None:
        self.cpu_seconds += seconds


def _choices(there: Reach, baseline: Baseline) -> Iterator[Choice]:
    """Short ones and long ones get equal shares of the time."""
    ran = baseline.ran
    short = [one for one in there.numbers if ran[one].history.is_short]
    long = [one for one in there.numbers if not ran[one].history.is_short]
    streams = [_Stream(short, 0.0), _Stream(long, SHORT_SECONDS_FIRST)]
    while streams:
        stream = min(streams, key=lambda one: one.cpu_seconds)
        number = next(stream.numbers, None)
        if number is None:
            streams.remove(stream)
            continue
        yield Choice(ran[number].history, number, stream.took)
    for history in further(there, baseline):
        yield Choice(history, None, lambda _: None)
