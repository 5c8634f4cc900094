"""Run many seeds: `python -m tests.simulation.run --seeds 0-9999`.

--family k          seeds of one rule's family
--planted NAME      with a planted bug, until it is found; `--planted all` for every one
--trace             one seed, with a readable trace on standard output
--digest            one seed, its trace's digest only
--stop              stop at the first failure
--no-shrink         do not look for the fewest faults and clients with which the first failure stays
--script FILE       run what was left of a failing seed; with --trace, a readable trace
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from tests.garbage import collect_seldom
from tests.simulation.families import FAMILIES, make_world
from tests.simulation.planted import PLANTED
from tests.simulation.seeds import (
    Failure,
    how_to_replay,
    is_crash_at_once,
    parse_seeds,
    trace_path,
)
from tests.simulation.shrink_long import LongScript, run_long, run_seed, shrink_long
from tests.simulation.world import World

PLANTED_SEEDS_MAX = 1_000
# When so many seeds crash before anybody has done anything, the plant is broken: no bug was found.
AT_ONCE_SEEDS = 3


class Task(NamedTuple):
    seed: int
    family: str | None
    planted: str | None


class Outcome(NamedTuple):
    task: Task
    failure: str | None
    counts: Counter[str]
    faults: Counter[str]
    provoked: Counter[str]
    # It crashed before anybody had done anything.
    at_once: bool = False


def run_one(task: Task) -> Outcome:
    """One seed; failures come back as text."""
    with PLANTED[task.planted]() if task.planted else nullcontext():
        world = make_world(task.family, task.seed) if task.family else World(task.seed)
        # A planted bug is to be seen from outside.
        world.checks_servers = not task.planted
        try:
            result = world.run()
        except BaseException as error:
            headline, text = Failure.of(error)
            at_once = is_crash_at_once(headline, world.history.counts)
            none: Counter[str] = Counter()
            return Outcome(task, f"{text}\n{headline}", none, none, none, at_once)
    failure = None
    if task.family and not task.planted and not FAMILIES[task.family].occurred(world):
        failure = f"rule {task.family} was not put to the test: {world.provoked}"
    return Outcome(task, failure, result.counts, result.faults, result.provoked)


def outcomes(tasks: list[Task], workers: int) -> Iterator[Outcome]:
    """In the order of their seeds when there is one worker, else as they come."""
    if workers == 1:
        collect_seldom()
        yield from map(run_one, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(workers, collect_seldom) as pool:
        yield from pool.imap_unordered(run_one, tasks, chunksize=4)


def run_many(
    tasks: list[Task], workers: int, *, stop: bool, console: Console, shrinks: bool = True
) -> int:
    """Returns the number of failures."""
    totals: dict[str, Counter[str]] = {
        "counts": Counter(),
        "faults": Counter(),
        "provoked": Counter(),
    }
    failures: list[Outcome] = []
    started_at = time.monotonic()
    done = 0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("seeds", total=len(tasks), rate="")
        for outcome in outcomes(tasks, workers):
            done += 1
            rate = done / (time.monotonic() - started_at)
            progress.update(bar, advance=1, rate=f"{rate:.2f} seeds/s, {len(failures)} failures")
            for name in totals:
                totals[name].update(getattr(outcome, name))
            if outcome.failure is not None:
                failures.append(outcome)
                headline = outcome.failure.strip().splitlines()[-1][:200]
                console.print(f"seed {outcome.task.seed}: {headline}", markup=False)
                if stop:
                    break
    for outcome in failures[:3]:
        console.print(outcome.failure, markup=False, highlight=False)
    if failures:
        first = failures[0].task
        console.print(how_to_replay(first.seed, first.family), markup=False)
        seeds = sorted(one.task.seed for one in failures)
        console.print(f"failed seeds: {','.join(map(str, seeds[:200]))}", markup=False)
        if shrinks:
            console.print(shortest(first, console), markup=False, highlight=False)
    _print_totals(console, totals, done, len(failures), time.monotonic() - started_at)
    return len(failures)


def shortest(task: Task, console: Console) -> str:
    """What of a failing seed is enough to fail so, and how to run it; told in lines meanwhile."""
    outcome = run_seed(task.seed, task.family)
    if outcome.failure is None:
        return "done again, it does not fail: the situation was missing"
    with console.status("shrinking") as status:
        shrunk = shrink_long(outcome, progress=lambda text: status.update(f"shrinking, {text}"))
    path = trace_path(f"long-{task.family or 'seed'}-{task.seed}").with_suffix(".json")
    path.write_text(shrunk.script.to_json())
    return (
        f"shrunk in {shrunk.run_count} runs to:\n{shrunk.script}\n{shrunk.outcome.failure}\n"
        f"run this part with: python -m tests.simulation.run --trace --script {path}"
    )


def _print_totals(
    console: Console,
    totals: dict[str, Counter[str]],
    done: int,
    failure_count: int,
    seconds: float,
) -> None:
    table = Table(show_header=True)
    for title in ("what happened", "times", "faults", "times", "provoked", "times"):
        table.add_column(title, justify="right" if title == "times" else "left")
    columns = [sorted(counter.items()) for counter in totals.values()]
    for row in range(max(map(len, columns), default=0)):
        cells: list[str] = []
        for column in columns:
            name, count = column[row] if row < len(column) else ("", "")
            cells += [name, f"{count:,}" if count != "" else ""]
        table.add_row(*cells)
    console.print(table)
    console.print(
        f"{done} seeds in {seconds:.1f} s, {done / seconds:.2f} seeds/s, {failure_count} failures"
    )


def first_found(results: Iterable[Outcome]) -> tuple[Outcome | None, int]:
    """The first failure, and after how many seeds.

    One that crashed at once counts when others do not: it is returned when the first few all do.
    """
    crash: Outcome | None = None
    count = 0
    for outcome in results:
        count += 1
        if outcome.failure is None:
            if crash is not None:
                return crash._replace(at_once=False), count
        elif not outcome.at_once or (crash is None and count > 1):
            return outcome._replace(at_once=False), count
        elif count == AT_ONCE_SEEDS:
            return outcome, count
        else:
            crash = crash or outcome
    return crash, count


def run_planted(names: list[str], workers: int, console: Console) -> int:
    """Plant each bug in turn; returns how many were not found."""
    missed = 0
    for name in names:
        started_at = time.monotonic()
        tasks = [Task(seed, None, name) for seed in range(PLANTED_SEEDS_MAX)]
        found, count = first_found(outcomes(tasks, workers))
        seconds = time.monotonic() - started_at
        if found is not None and found.at_once:
            missed += 1
            headline = (found.failure or "").strip().splitlines()[-1][:160]
            console.print(f"{name}: CRASHES AT ONCE in every seed: {headline}", markup=False)
        elif found is None or found.failure is None:
            missed += 1
            console.print(f"{name}: NOT FOUND in {count} seeds, {seconds:.0f} s")
        else:
            headline = found.failure.strip().splitlines()[-1][:160]
            console.print(
                f"{name}: found after {count} seeds, {seconds:.1f} s: {headline}", markup=False
            )
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-199")
    parser.add_argument("--family", choices=sorted(FAMILIES))
    parser.add_argument("--planted", choices=[*sorted(PLANTED), "all"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--digest", action="store_true")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--script", type=Path)
    options = parser.parse_args()
    console = Console()
    seeds = parse_seeds(options.seeds)
    if options.script is not None:
        script = LongScript.from_json(options.script.read_text())
        print(script, flush=True)
        outcome = run_long(script, out=sys.stdout if options.trace else None)
        print(outcome.traceback or "no failure")
        return 1 if outcome.failure else 0
    if options.digest:
        for seed in seeds:
            print(World(seed).run().digest)
        return 0
    if options.trace:
        out: Any = sys.stdout
        with PLANTED[options.planted]() if options.planted else nullcontext():
            world = (
                make_world(options.family, seeds[0], out=out)
                if options.family
                else World(seeds[0], out=out)
            )
            print(world.run())
        return 0
    if options.planted:
        names = sorted(PLANTED) if options.planted == "all" else [options.planted]
        return run_planted(names, options.workers, console)
    tasks = [Task(seed, options.family, None) for seed in seeds]
    failure_count = run_many(
        tasks,
        options.workers,
        stop=options.stop,
        console=console,
        shrinks=not options.no_shrink,
    )
    return 1 if failure_count else 0


if __name__ == "__main__":
    sys.exit(main())
