"""Try mutants: `python -m tests.mutants`. What is each mistake found by, and how fast?

named               those of the catalogue
sample              places of all functions that a seed chooses, with ordinary mistakes

--only NAME         this mutant; may be given several times
--component NAME    those of one component; may be given several times
--count N, --seed N how many places, and which
--histories N       of the code as it is, to learn which lines each executes
--seconds N         of processor time at most for the histories of each mutant; 0: no simulation
--test-seconds N    at most for the tests of its folder; 0: no tests
--survivors-of FILE only those that survived what was written there with --json
--all-tests         run the tests of what the simulation has found, too
--jobs N            mutants tried at once; all cores unless given
--json FILE         write everything there, too
--list              names and mistakes only

Status 1 when a mutant survived, 2 when one does not apply. The sources must not change meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from tests.mutants.baseline import Baseline, kept_in
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import TESTS_OF, Mutant, MutantFailed
from tests.mutants.report import report, write_json
from tests.mutants.sample import sample
from tests.mutants.trial import Budget, Trial, try_mutant

HISTORIES = 3_000
# The sample that is compared from one release to the next.
SAMPLE_COUNT = 1_000
SAMPLE_SEED = 4471


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console = Console()
    every = CATALOGUE if options.which == "named" else sample(options.count, options.seed)
    chosen = [
        one
        for one in every
        if (not options.only or one.name in options.only)
        and (not options.component or one.component in options.component)
    ]
    if options.survivors_of:
        trials_before = json.loads(options.survivors_of.read_text())["trials"]
        left = {one["name"] for one in trials_before if one["survives"]}
        chosen = [one for one in chosen if one.name in left]
    if options.only and len(chosen) < len(set(options.only)):
        print(f"not all of these names exist: {', '.join(options.only)}", file=sys.stderr)
        return 2
    if options.list:
        for one in chosen:
            print(f"{one.component:12} {one.name:48} {one.mistake}")
        return 0
    for one in chosen:
        try:
            _ = one.mutated
        except MutantFailed as error:
            print(error, file=sys.stderr)
            return 2
    budget = Budget(
        cpu_seconds=options.seconds,
        test_seconds=options.test_seconds,
        always_tests=options.all_tests,
    )
    baseline = Baseline()
    trials: list[Trial] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    try:
        with Progress(*columns, console=console) as progress:
            if budget.cpu_seconds and any(one.is_simulated for one in chosen):
                _run_baseline(baseline, options.histories, options.jobs, progress)
            _run_trials(chosen, baseline, budget, options.jobs, options.json, progress, trials)
    except KeyboardInterrupt:
        console.print("stopped; this is what was tried")
    for line in report(trials, baseline):
        print(line)
    return 1 if any(trial.survives for trial in trials) else 0


def _run_baseline(baseline: Baseline, count: int, jobs: int, progress: Progress) -> None:
    path = kept_in(count)
    bar = progress.add_task("without a mistake", total=count)
    if baseline.load(path):
        progress.update(bar, completed=count)
        return
    baseline.record(count, jobs, lambda: progress.advance(bar))
    baseline.save(path)


def _run_trials(
    chosen: list[Mutant],
    baseline: Baseline,
    budget: Budget,
    jobs: int,
    json_path: Path | None,
    progress: Progress,
    trials: list[Trial],
) -> None:
    bar = progress.add_task("mutants", total=len(chosen))
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(try_mutant, one, baseline, budget) for one in chosen]
        try:
            for future in as_completed(futures):
                trials.append(future.result())
                progress.update(bar, advance=1)
                if json_path is not None:
                    # A long run that is stopped has told what it knows.
                    write_json(json_path, trials, baseline)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("which", choices=("named", "sample"))
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--count", type=int, default=SAMPLE_COUNT)
    parser.add_argument("--seed", type=int, default=SAMPLE_SEED)
    parser.add_argument("--component", action="append", choices=list(TESTS_OF))
    parser.add_argument("--histories", type=int, default=HISTORIES)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--test-seconds", type=float, default=120.0)
    parser.add_argument("--survivors-of", type=Path, metavar="FILE")
    parser.add_argument("--all-tests", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
