"""`make spec`: checks the models, finds all planted mistakes, and follows recorded histories.

A run named "trace: NAME" follows a recorded history. One named "changes: NAME" changes it in all
ways of `changes`, and says at which event TLC and the follower refuse it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.spec.following import follow
from tests.spec.plays import PLANS, Plan
from tests.spec.runs import RUNS
from tests.spec.runs.run import Run
from tests.spec.sensitivity import is_explained, verdicts
from tests.spec.tlc import check, find_tlc
from tests.spec.traces import translate


class Result(NamedTuple):
    """Result of a run.

    Attributes:
        line: for the table, behind the name.
        output: all that TLC printed, or the verdicts.
    """

    line: str
    is_expected: bool
    output: str


Work = Callable[[Path, Path], Result]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen runs, print what each found, and return 1 if one found something else."""
    parser = argparse.ArgumentParser(prog="python -m tests.spec", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a run; all without one")
    parser.add_argument("--trace", action="store_true", help="print what TLC says of each run")
    asked = parser.parse_args(arguments)
    by_name: dict[str, Work] = {run.name: partial(_search, run) for run in RUNS}
    by_name |= {f"trace: {name}": partial(_follow, plan) for name, plan in PLANS.items()}
    by_name |= {f"changes: {name}": partial(_change, plan) for name, plan in PLANS.items()}
    if unknown := [name for name in asked.names if name not in by_name]:
        parser.error(f"there is no run {', '.join(unknown)}; there are {', '.join(by_name)}")
    tlc = find_tlc()
    if tlc is None:
        return 0
    chosen = asked.names or list(by_name)
    width = max(map(len, chosen))
    print(f"{'run':{width}}  {'states':>8}  {'steps':>5}  {'CPU s':>5}  found")
    failed = 0
    for name in chosen:
        with tempfile.TemporaryDirectory() as directory:
            result = by_name[name](tlc, Path(directory))
        print(f"{name:{width}}  {result.line}", flush=True)
        if asked.trace or not result.is_expected:
            print(result.output, file=sys.stderr)
        failed += not result.is_expected
    if failed:
        print(f"{failed} of {len(chosen)} runs did not find what they have to", file=sys.stderr)
    return int(failed > 0)


def _search(run: Run, tlc: Path, directory: Path) -> Result:
    finding = check(tlc, run, directory)
    found = finding.violated or "nothing"
    is_expected = finding.is_expected(run)
    if not is_expected:
        found += f", and not {run.finds or 'nothing'}"
    line = f"{finding.states:>8,}  {finding.steps:>5}  {finding.cpu_s:>5.0f}  {found}"
    return Result(line, is_expected, finding.output)


def _follow(plan: Plan, tlc: Path, directory: Path) -> Result:
    recorded = plan.record()
    history = translate(recorded)
    found = follow(tlc, history, directory)
    numbers = f"{found.states:>8,}  {len(history.records):>5}  {found.cpu_s:>5.0f}"
    if found.refused is None and not found.violated:
        return Result(f"{numbers}  nothing", True, found.output)
    what = found.violated
    if found.refused is not None:
        place = history.places[found.refused]
        what = f"event {place} is refused: {recorded.noted[place].event}"
    return Result(f"{numbers}  {what}", False, found.output)


def _change(plan: Plan, tlc: Path, directory: Path) -> Result:
    judged = verdicts(tlc, plan.record(), directory)
    counts = Counter(one.agreement for one in judged)
    wrong = [one for one in judged if not is_explained(one)]
    text = ", ".join(f"{agreement} {count}" for agreement, count in counts.most_common())
    line = f"{len(judged):>8,}  {'':>5}  {'':>5}  refused by {text}"
    return Result(line, not wrong, "\n".join(map(str, wrong or judged)))
