"""Run many histories over all cores: `python -m tests.simulation --seeds 0-99999`.

--profile NAME      what histories are made of, by default "any"; `--profiles` lists them
--workers N         processes; all cores unless given
--stop              stop at the first failure
--trace             one seed: its script and a readable trace on standard output
--digest            seeds one after the other: the digests of their traces only
--no-shrink         do not look for the shortest part of a failing history that still fails
--planted NAME      with a planted bug, until it is found; or all of them. Each has a profile that
                    finds it soon; the profile "owners that change" has bugs of its own
--script FILE       run what was left of a failing history
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from tests.garbage import collect_seldom
from tests.simulation.planted import PLANTED, PROFILE_OF
from tests.simulation.planted_owners import PLANTED_OWNERS
from tests.simulation.planting import Plant
from tests.simulation.seeds import is_crash_at_once, parse_seeds, trace_path
from tests.simulation.short.catalogue import PROFILES, make_script
from tests.simulation.short.runner import Outcome, run_history, run_script
from tests.simulation.short.script import Script
from tests.simulation.short.shrink import shrink

# Histories that a worker runs before it says what came of them.
CHUNK = 20
FAILURES_SHOWN = 3
# When so many histories crash before anybody has done anything, the plant is broken: no bug was
# found.
AT_ONCE_SEEDS = 3


class _Chunk(NamedTuple):
    """What some histories amounted to; failures one by one."""

    histories: int
    cpu_seconds: float
    counts: Counter[str]
    faults: Counter[str]
    active: Counter[str]
    scenarios: Counter[str]
    failures: list[Outcome]


class _Task(NamedTuple):
    seeds: list[int]
    profile: str


def _run_chunk(task: _Task) -> _Chunk:
    result = _Chunk(len(task.seeds), 0.0, Counter(), Counter(), Counter(), Counter(), [])
    started_at = time.process_time()
    for seed in task.seeds:
        outcome = run_history(seed, task.profile)
        result.counts.update(outcome.counts)
        result.faults.update(outcome.faults)
        result.active.update(outcome.active)
        result.scenarios.update(outcome.scenarios)
        if outcome.failure is not None:
            result.failures.append(outcome)
    # All included: also what is collected between two of them.
    return result._replace(cpu_seconds=time.process_time() - started_at)


def _chunks(tasks: list[_Task], workers: int) -> Iterator[_Chunk]:
    if workers == 1:
        collect_seldom()
        yield from map(_run_chunk, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(workers, collect_seldom) as pool:
        yield from pool.imap_unordered(_run_chunk, tasks)


def run_many(
    seeds: list[int],
    profile: str,
    workers: int,
    *,
    stop: bool,
    console: Console,
    shrinks: bool = True,
) -> list[Outcome]:
    """Returns the failures, in the order of their seeds."""
    tasks = [_Task(seeds[at : at + CHUNK], profile) for at in range(0, len(seeds), CHUNK)]
    totals = _Chunk(0, 0.0, Counter(), Counter(), Counter(), Counter(), [])
    started_at = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("histories", total=len(seeds), rate="")
        for chunk in _chunks(tasks, workers):
            totals = totals._replace(
                histories=totals.histories + chunk.histories,
                cpu_seconds=totals.cpu_seconds + chunk.cpu_seconds,
            )
            for name in ("counts", "faults", "active", "scenarios"):
                getattr(totals, name).update(getattr(chunk, name))
            totals.failures.extend(chunk.failures)
            for failed in chunk.failures:
                where = ", ".join(failed.scenarios)
                console.print(
                    f"seed {failed.seed} ({where}): {(failed.failure or '')[:200]}", markup=False
                )
            rate = totals.histories / (time.monotonic() - started_at)
            progress.update(
                bar, advance=chunk.histories, rate=f"{rate:.0f}/s, {len(totals.failures)} failures"
            )
            if stop and totals.failures:
                break
    failures = sorted(totals.failures, key=lambda one: int(one.seed))
    _print_failures(console, failures)
    if failures and shrinks:
        console.print(shortest(failures[0]), markup=False, highlight=False)
    _print_totals(console, totals, time.monotonic() - started_at)
    return failures


def _print_failures(console: Console, failures: list[Outcome]) -> None:
    for outcome in failures[:FAILURES_SHOWN]:
        console.print(outcome.traceback, markup=False, highlight=False)
    if failures:
        console.print(f"replay with: {how_to_replay(failures[0])}", markup=False)
        numbers = ",".join(failure.seed for failure in failures[:200])
        console.print(f"failed seeds: {numbers}", markup=False)


def shortest(outcome: Outcome) -> str:
    """The shortest part of a failing history that still fails, and how to run it."""
    shrunk = shrink(make_script(outcome.seed, outcome.profile), outcome)
    path = trace_path(f"{outcome.profile}-{outcome.seed}".replace(" ", "-")).with_suffix(".json")
    path.write_text(shrunk.script.to_json())
    return (
        f"shrunk in {shrunk.run_count} runs to:\n{shrunk.script}\n{shrunk.outcome.failure}\n"
        f"run this part with: python -m tests.simulation --trace --script {path}"
    )


def how_to_replay(outcome: Outcome) -> str:
    profile = "" if outcome.profile == "any" else f" --profile '{outcome.profile}'"
    return f"python -m tests.simulation --trace{profile} --seeds {outcome.seed}"


def _print_totals(console: Console, totals: _Chunk, seconds: float) -> None:
    table = Table(show_header=True)
    shown = {
        "scenarios": totals.scenarios,
        "what happened": totals.counts,
        "faults": totals.faults,
        "situations": totals.active,
    }
    for title in shown:
        table.add_column(title)
        table.add_column("times", justify="right")
    columns = [sorted(counter.items()) for counter in shown.values()]
    for row in range(max(map(len, columns), default=0)):
        cells: list[str] = []
        for column in columns:
            name, count = column[row] if row < len(column) else ("", "")
            cells += [str(name), f"{count:,}" if count != "" else ""]
        table.add_row(*cells)
    console.print(table)
    each = totals.cpu_seconds / max(1, totals.histories)
    console.print(
        f"{totals.histories} histories in {seconds:.1f} s, "
        f"{totals.histories / seconds:.1f} a second, "
        f"{each * 1000:.1f} ms of processor time each, {len(totals.failures)} failures"
    )


class Finding(NamedTuple):
    """How a history failed, and whether before anybody had done anything."""

    failure: str
    at_once: bool


def first_found(results: Iterable[tuple[str | None, bool]]) -> tuple[Finding | None, int]:
    """The first failure, and after how many histories.

    One that crashed at once counts when others do not: it is returned when the first few all do.
    """
    crash: str | None = None
    count = 0
    for failure, at_once in results:
        count += 1
        if failure is None:
            if crash is not None:
                return Finding(crash, at_once=False), count
        elif not at_once or (crash is None and count > 1):
            return Finding(failure, at_once=False), count
        elif count == AT_ONCE_SEEDS:
            return Finding(failure, at_once=True), count
        else:
            crash = crash or failure
    return (None if crash is None else Finding(crash, at_once=False)), count


def _plants(profile: str | None) -> dict[str, Plant]:
    return PLANTED_OWNERS if profile == "owners that change" else PLANTED


def _with_plant(name: str, profile: str, seeds: list[int]) -> Iterator[tuple[str | None, bool]]:
    plant = _plants(profile)[name]
    for seed in seeds:
        with plant():
            # It is to be seen from outside.
            outcome = run_history(seed, profile, checks_servers=False)
        yield outcome.failure, is_crash_at_once(outcome.failure, outcome.counts)


def _is_found(name: str, profile: str, seeds: list[int]) -> bool:
    """Say after how many histories a planted bug is found."""
    started_at = time.process_time()
    found, count = first_found(_with_plant(name, profile, seeds))
    seconds = time.process_time() - started_at
    if found is None or found.at_once:
        told = "NOT FOUND" if found is None else f"CRASHES AT ONCE: {found.failure[:160]}"
        print(f"{name}: {told} in {count} histories, {seconds:.1f} s", flush=True)
        return False
    headline = found.failure.splitlines()[0][:160]
    print(f"{name}: found after {count} histories, {seconds:.1f} s: {headline}", flush=True)
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-999")
    parser.add_argument("--profile", choices=list(PROFILES))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--digest", action="store_true")
    parser.add_argument("--profiles", action="store_true")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--planted")
    parser.add_argument("--script", type=Path)
    options = parser.parse_args(arguments)
    console = Console()
    if options.profiles:
        print("\n".join(PROFILES))
        return 0
    seeds = parse_seeds(options.seeds)
    if options.planted:
        plants = _plants(options.profile)
        if options.planted not in (*plants, "all"):
            parser.error(f"no such bug is planted; there are {', '.join(sorted(plants))}")
        planted = list(plants) if options.planted == "all" else [options.planted]
        return sum(
            not _is_found(name, options.profile or PROFILE_OF[name], seeds) for name in planted
        )
    profile = options.profile or "any"
    if options.digest:
        for seed in seeds:
            print(run_history(seed, profile).digest)
        return 0
    if options.script is not None or options.trace:
        script = (
            Script.from_json(options.script.read_text())
            if options.script is not None
            else make_script(seeds[0], profile)
        )
        print(script, flush=True)
        outcome = run_script(script, out=sys.stdout if options.trace else None)
        print(outcome.traceback or "no failure")
        return 1 if outcome.failure else 0
    failures = run_many(
        seeds,
        profile,
        options.workers,
        stop=options.stop,
        console=console,
        shrinks=not options.no_shrink,
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
