"""Runs the cluster of compose.yaml in network namespaces, with faults, and reads its records.

python -m tests.namespaces.run --seed 7 --seconds 120 --directory /tmp/run
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.namespaces import network, services
from tests.namespaces.records import Record, read_records
from tests.namespaces.world import Report

from magnetar_cli.check.history.judging import Report as HistoryReport
from magnetar_cli.check.history.judging import judge

# Beyond the seconds of the faults: the start, the end, and what is read then, on a busy machine.
MORE_S = 600.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run that came to its end. `history`: what the servers' histories say."""

    report: Report
    history: HistoryReport
    records: list[Record]


def missing() -> str:
    """Why there can be no run here; empty: there can."""
    return services.missing() or network.missing()


def run(directory: Path, *, seed: int, seconds: float, pause_s: float) -> Recorded:
    """Let it run. Nothing is left of it afterwards but files, whatever happens.

    Args:
        pause_s: how long a teller or a reader waits between two things, on average.
    """
    log = directory / "world.log"
    world = [
        *(sys.executable, "-m", "tests.namespaces.world", "--directory", str(directory)),
        *("--seed", str(seed), "--seconds", str(seconds), "--pause-s", str(pause_s)),
    ]
    with log.open("ab") as said:
        process = subprocess.Popen(
            network.inside(*world),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=services.environment(),
            cwd=services.ROOT,
            # Of its own, for Machines.take_precedence().
            start_new_session=True,
        )
    try:
        status = process.wait(seconds + MORE_S)
    finally:
        # Whoever is killed here takes all of its processes with it.
        process.kill()
        process.wait()
    assert status == 0, f"seed {seed}, see {directory}:\n{log.read_text()[-8_000:]}"
    history = judge([str(directory)])
    # Hundreds of megabytes that nobody looks at after a run that came to its end.
    for volume in filter(Path.is_dir, directory.iterdir()):
        shutil.rmtree(volume)
    report = Report(**json.loads((directory / "report.json").read_text()))
    return Recorded(report, history, read_records(directory.glob("*.jsonl")))


def main() -> None:
    from tests.namespaces.checker import check

    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True, type=Path, help="a new one")
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--seconds", default=120.0, type=float)
    parser.add_argument("--pause-s", default=0.3, type=float)
    chosen = parser.parse_args()
    reason = missing()
    if reason:
        sys.exit(reason)
    chosen.directory.mkdir(parents=True)
    recorded = run(
        chosen.directory, seed=chosen.seed, seconds=chosen.seconds, pause_s=chosen.pause_s
    )
    print(recorded.report)
    print(recorded.history)
    print(check(recorded.records))


if __name__ == "__main__":
    main()
