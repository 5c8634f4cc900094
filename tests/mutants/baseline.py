"""Histories of the code as it is: what comes of each, and which lines it executes.

They are run once and kept in a directory of the project, under a name that follows from the text
of the sources and of the simulation.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import select
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.mutants.histories import HISTORY_SECONDS_MAX, History, history, share
from tests.mutants.mutant import ROOT
from tests.mutants.overlay import environment

FOLDER = ROOT / ".mutants"
SOURCES = ("core", "storage", "cluster", "broker", "coordinator", "client", "tests/simulation")
KEPT_MAX = 4
# Without a line for so long, whatever else the machine does: the history does not end.
SILENCE_SECONDS_MAX = 20 * HISTORY_SECONDS_MAX


class Ran(NamedTuple):
    """One history, and what came of it."""

    history: History
    digest: str
    failure: str | None
    cpu_seconds: float
    # It ended before anybody had done anything.
    at_once: bool = False


class Baseline:
    """What is known of the code without a mistake.

    Attributes:
        ran: by number.
        lines: by file and line, a bit for each history that executed it.
        imported: what is executed by imports, whatever history follows.
    """

    def __init__(self) -> None:
        self.ran: list[Ran] = []
        self.lines: dict[str, dict[int, int]] = {}
        self.imported: dict[str, set[int]] = {}

    @property
    def failures(self) -> list[Ran]:
        """Histories that fail without any mistake: what they say of mutants does not count."""
        return [one for one in self.ran if one.failure is not None]

    def record(self, count: int, jobs: int, ran: Callable[[], None] = lambda: None) -> None:
        """Run the first so many; `ran` is called for each of them, by any thread."""
        results: dict[int, Ran] = {}
        masks: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        imported: dict[str, set[int]] = defaultdict(set)
        lock = threading.Lock()

        def take(line: Any) -> None:
            with lock:
                if isinstance(line, list):
                    number, digest, failure, seconds, _ = line
                    results[number] = Ran(history(number), digest, failure, seconds)
                    ran()
                    return
                for file, by_line in line["lines"].items():
                    for number, mask in by_line.items():
                        masks[file][int(number)] |= int(mask, 16)
                for file, by_line in line["imported"].items():
                    imported[file].update(map(int, by_line))

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda job: _record(job, jobs, count, take), range(jobs)))
        self.ran = [results[number] for number in range(count)]
        self.lines = {file: dict(by_line) for file, by_line in masks.items()}
        self.imported = dict(imported)

    def save(self, path: Path) -> None:
        body = {
            "ran": [[one.digest, one.failure, one.cpu_seconds] for one in self.ran],
            "lines": {
                file: {line: f"{mask:x}" for line, mask in by_line.items()}
                for file, by_line in self.lines.items()
            },
            "imported": {file: sorted(lines) for file, lines in self.imported.items()},
        }
        path.parent.mkdir(exist_ok=True)
        whole = path.with_suffix(".part")
        with gzip.open(whole, "wt", compresslevel=3) as file:
            json.dump(body, file)
        whole.rename(path)
        others = sorted(path.parent.glob("*.json.gz"), key=lambda one: one.stat().st_mtime)
        for old in others[:-KEPT_MAX]:
            old.unlink()

    def load(self, path: Path) -> bool:
        """Whether it was there."""
        if not path.exists():
            return False
        with gzip.open(path, "rt") as file:
            body = json.load(file)
        self.ran = [Ran(history(number), *one) for number, one in enumerate(body["ran"])]
        self.lines = {
            file: {int(line): int(mask, 16) for line, mask in by_line.items()}
            for file, by_line in body["lines"].items()
        }
        self.imported = {file: set(lines) for file, lines in body["imported"].items()}
        return True


def kept_in(count: int) -> Path:
    """Where so many histories of the sources as they are now are kept."""
    whole = hashlib.sha256(f"{count} {sys.version}".encode())
    files = [one for folder in SOURCES for one in (ROOT / folder).rglob("*.py")]
    files += [Path(__file__).with_name(f"{one}.py") for one in ("histories", "recording")]
    for file in sorted(files):
        whole.update(f"{file.relative_to(ROOT)}\n".encode())
        whole.update(file.read_bytes())
    return FOLDER / f"{whole.hexdigest()[:20]}.json.gz"


def _record(job: int, jobs: int, count: int, take: Callable[[Any], None]) -> None:
    arguments = [str(one) for one in (job, jobs, count)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.recording", *arguments],
            cwd=ROOT,
            env=environment(None),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            # One for each history, and one with the lines.
            for _ in range(len(share(job, jobs, count)) + 1):
                take(json.loads(read_line(process.stdout, errors)))
        finally:
            process.kill()


class ProcessFailed(Exception):
    """A process that runs histories ended, or says nothing more."""


def read_line(lines: IO[str], errors: IO[str]) -> str:
    """Raises: ProcessFailed: there is none."""
    ready, _, _ = select.select([lines], [], [], SILENCE_SECONDS_MAX)
    line = lines.readline() if ready else ""
    if line:
        return line
    errors.seek(0)
    said = errors.read().strip().splitlines() or ["it said nothing more"]
    raise ProcessFailed(f"the process failed: {said[-1] if ready else 'it does not end'}"[:300])
