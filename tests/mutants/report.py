"""The report of a run: a table, a summary, and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.mutants.baseline import Baseline
from tests.mutants.trial import Trial, Verdict

_ORDER = list(Verdict)


def report(trials: list[Trial], baseline: Baseline) -> Iterator[str]:
    """Lines. Survivors come last, where they are seen, each with its mistake."""
    in_order = sorted(trials, key=lambda one: (_ORDER.index(one.verdict), one.mutant.name))
    rows = [("mutant", "component", "verdict", "histories", "seconds", "by")]
    rows += [
        (one.mutant.name, one.mutant.component, one.verdict.value, *_cells(one)) for one in in_order
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        name, component, verdict, histories, seconds, by = row
        yield (
            f"{name:{widths[0]}}  {component:{widths[1]}}  {verdict:{widths[2]}}"
            f"  {histories:>{widths[3]}}  {seconds:>{widths[4]}}  {by}"
        ).rstrip()
    yield ""
    for trial in in_order:
        mutant = trial.mutant
        if trial.verdict is Verdict.NOBODY:
            yield f"{mutant.name}: {mutant.mistake} Nobody sees it: {mutant.unseen_because}"
        if trial.contradicts:
            yield f"{mutant.name}: somebody sees it, so this is wrong: {mutant.unseen_because}"
    for trial in in_order:
        if trial.survives:
            yield f"{trial.mutant.name}: {trial.mutant.mistake}"
    yield from summary(trials, baseline)


def _cells(trial: Trial) -> tuple[str, str, str]:
    """Histories, seconds, and what found it or what it did."""
    verdict, simulated, tested = trial.verdict, trial.simulated, trial.tested
    histories = str(simulated.histories) if simulated is not None else ""
    seconds = f"{simulated.cpu_seconds:.1f}" if simulated is not None else ""
    if verdict is Verdict.SIMULATION:
        assert simulated is not None
        where = "every history, at once" if simulated.everywhere else simulated.found
        return histories, seconds, f"{where}: {simulated.failure}"[:160]
    by = f"runs differently in {simulated.active}" if simulated and simulated.active else ""
    if tested is None:
        return histories, seconds, by
    if tested.found is not None:
        return histories, f"{tested.seconds:.1f}", f"{tested.found}{f' ({by})' if by else ''}"
    if not tested.complete:
        by = f"{by}; the tests were not run to their end" if by else "tests not run to their end"
    return histories, seconds, by


def summary(trials: list[Trial], baseline: Baseline) -> Iterator[str]:
    counts = Counter(trial.verdict for trial in trials)
    yield f"{len(trials)} mutants: " + ", ".join(
        f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]
    )
    active = [trial for trial in trials if trial.is_active and trial.verdict is not Verdict.NOBODY]
    found = [one.simulated for one in active if one.simulated and one.simulated.found]
    share = f" ({len(found) / len(active):.0%})" if active else ""
    yield f"{len(active)} active in the simulation, which found {len(found)} of them{share}"
    everywhere = sum(one.everywhere for one in found)
    if everywhere:
        yield f"{everywhere} of these crash at once in every history: no checker was needed"
    if found:
        seconds = sorted(one.cpu_seconds for one in found)
        yield (
            f"in {median(seconds):.1f} s of processor time (median), {seconds[-1]:.1f} s (worst);"
            f" {sum(one > 60 for one in seconds)} took more than 60 s"
        )
    if baseline.ran:
        spent = sum(one.cpu_seconds for one in baseline.ran)
        yield (
            f"without a mistake: {len(baseline.ran)} histories in {spent:.0f} s of processor time;"
            f" {len(baseline.failures)} of them fail and do not count"
        )


def write_json(path: Path, trials: list[Trial], baseline: Baseline) -> None:
    body = {
        "histories": len(baseline.ran),
        "histories_that_fail_without_a_mistake": len(baseline.failures),
        "trials": [trial.to_json() for trial in trials],
    }
    path.write_text(json.dumps(body, indent=1) + "\n")
