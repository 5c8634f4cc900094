"""`make spec`: checks all configurations of the models, and finds all planted mistakes."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.spec.runs import RUNS
from tests.spec.runs.run import Run
from tests.spec.tlc import Finding, check, find_tlc


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen runs, print what each found, and return 1 if one found something else."""
    parser = argparse.ArgumentParser(prog="python -m tests.spec", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a run; all without one")
    parser.add_argument("--trace", action="store_true", help="print what TLC says of each run")
    asked = parser.parse_args(arguments)
    by_name = {run.name: run for run in RUNS}
    if unknown := [name for name in asked.names if name not in by_name]:
        parser.error(f"there is no run {', '.join(unknown)}; there are {', '.join(by_name)}")
    tlc = find_tlc()
    if tlc is None:
        return 0
    chosen = [by_name[name] for name in asked.names] or list(RUNS)
    width = max(len(run.name) for run in chosen)
    print(f"{'run':{width}}  {'states':>8}  {'steps':>5}  {'CPU s':>5}  found")
    failed = 0
    for run in chosen:
        with tempfile.TemporaryDirectory() as directory:
            finding = check(tlc, run, Path(directory))
        print(_line(run, finding, width), flush=True)
        if asked.trace or not finding.is_expected(run):
            print(finding.output, file=sys.stderr)
        failed += not finding.is_expected(run)
    if failed:
        print(f"{failed} of {len(chosen)} runs did not find what they have to", file=sys.stderr)
    return int(failed > 0)


def _line(run: Run, finding: Finding, width: int) -> str:
    found = finding.violated or "nothing"
    if not finding.is_expected(run):
        found += f", and not {run.finds or 'nothing'}"
    numbers = f"{finding.states:>8,}  {finding.steps:>5}  {finding.cpu_s:>5.0f}"
    return f"{run.name:{width}}  {numbers}  {found}"
