"""Run the tests of a mutant's folder, the nearest first, until a test fails."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.overlay import environment

# What takes minutes and asks another question than these runs do.
LEFT_OUT = ("test_fuzz.py", "test_kill.py")
_MARKS = "not soak and not compose"
# Real processes, with which most tests of these components have to do.
_REAL = ("pipeline",)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?: - (.*))?$", re.MULTILINE)


class CannotTest(Exception):
    """No test has run, through no fault of the mutant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What the tests of its folder saw of a mutant.

    Attributes:
        found: the test that failed.
        complete: all were run, or one failed.
    """

    seconds: float
    found: str | None = None
    failure: str | None = None
    complete: bool = True


def nearest_first(mutant: Mutant) -> list[Path]:
    """Test files: those that find it, or else those that speak most of the changed module."""
    if mutant.tests:
        return [ROOT / test for test in mutant.tests]
    module = mutant.source.stem
    word = re.compile(rf"\b{module}\b|\b{module.title().replace('_', '')}\b")

    def distance(path: Path) -> tuple[bool, int, str]:
        return module not in path.stem, -len(word.findall(path.read_text())), path.name

    files = [one for one in mutant.tests_folder.rglob("test_*.py") if one.name not in LEFT_OUT]
    return sorted(files, key=distance)


def run_tests(mutant: Mutant, folder: Path, seconds_max: float) -> Tested:
    """A test counts that fails again by itself, and does not without the mistake.

    Others fail by chance, as for want of time on a busy machine.
    """
    started_at = time.monotonic()
    marks = _MARKS if mutant.component in _REAL else f"{_MARKS} and not chaos"
    files = [str(one.relative_to(ROOT)) for one in nearest_first(mutant)]
    passed_over: list[str] = []
    while True:
        left = seconds_max - (time.monotonic() - started_at)
        if left <= 0:
            return Tested(seconds=time.monotonic() - started_at, complete=False)
        output = _pytest(files, passed_over, folder, left, marks)
        seconds = time.monotonic() - started_at
        if output is None:
            return Tested(seconds=seconds, complete=False)
        failed = _FAILED.search(output)
        if failed is None:
            return Tested(seconds=seconds)
        name, failure = failed.group(1), failed.group(2) or ""
        limit = max(left, 60.0)
        if _fails(name, folder, limit, marks) and not _fails(name, None, limit, marks):
            return Tested(seconds=seconds, found=name, failure=failure[:300])
        passed_over.append(name)


def _fails(name: str, folder: Path | None, seconds_max: float, marks: str) -> bool:
    output = _pytest([name], [], folder, seconds_max, marks)
    return output is not None and _FAILED.search(output) is not None


def _pytest(
    what: list[str], passed_over: list[str], folder: Path | None, seconds_max: float, marks: str
) -> str | None:
    """Its output; None when it did not end in time.

    Raises:
        CannotTest: it could not run what it was given.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-rfE",
        "--tb=no",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-n", "0", "-o", "faulthandler_timeout=0", "-m", marks]
    command += [f"--deselect={one}" for one in passed_over]
    with subprocess.Popen(
        [*command, *what],
        cwd=ROOT,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # With what the tests start, so that nothing is left when time is up.
        start_new_session=True,
    ) as process:
        try:
            output = process.communicate(timeout=seconds_max)[0]
            if process.returncode not in (0, 1):
                # It would look as if the mistake were found by nobody.
                raise CannotTest(f"pytest ended with status {process.returncode}: {output[-500:]}")
            return output
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
