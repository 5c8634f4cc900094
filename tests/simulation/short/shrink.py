"""Shrinks a failing history: the shortest part of its script that still fails in the same way.

Steps, faults and drawn settings are taken away in halves, quarters and so on, and at last one by
one, as long as what is left fails; then pauses go. Chance is bound to names, not to an order, so
that what is left does mostly what it did before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from tests.simulation.short.runner import Outcome, run_script
from tests.simulation.short.script import Script

Part = TypeVar("Part")

RUNS_MAX = 600
SECONDS_MAX = 90.0


@dataclass(frozen=True)
class Shrunk:
    """What is left of a script, and how it fails."""

    script: Script
    outcome: Outcome
    run_count: int


def signature(failure: str) -> str:
    """What two failures have in common that are the same: the kind, and which rule was broken."""
    kind, _, text = failure.partition(": ")
    if kind == "Violation":
        return f"{kind}: {text.partition(':')[0]}"
    if kind == "UnhandledException":
        return kind + text.rpartition(" ")[2]
    return kind


class Failing(Protocol):
    """What came of a run."""

    @property
    def failure(self) -> str | None: ...


AnyScript = TypeVar("AnyScript")
AnyOutcome = TypeVar("AnyOutcome", bound=Failing)


class Shrinker(Generic[AnyScript, AnyOutcome]):
    """Takes parts away, within a budget of runs and time.

    Attributes:
        outcome: the latest failure that is the one in question.
    """

    def __init__(
        self,
        outcome: AnyOutcome,
        run: Callable[[AnyScript], AnyOutcome],
        now: Callable[[], float],
        *,
        runs_max: int = RUNS_MAX,
        seconds_max: float = SECONDS_MAX,
    ) -> None:
        assert outcome.failure is not None, "only what fails can be shrunk"
        self.outcome = outcome
        self.run_count = 0
        self._signature = signature(outcome.failure)
        self._run = run
        self._now = now
        self._runs_max = runs_max
        self._deadline = now() + seconds_max

    def exhausted(self) -> bool:
        return self.run_count >= self._runs_max or self._now() > self._deadline

    def is_same(self, failure: str | None) -> bool:
        return failure is not None and signature(failure) == self._signature

    def fails(self, script: AnyScript) -> bool:
        """Whether it fails in the same way."""
        if self.exhausted():
            return False
        self.run_count += 1
        outcome = self._run(script)
        if not self.is_same(outcome.failure):
            return False
        self.outcome = outcome
        return True

    def fewest(self, parts: Sequence[Part], fails: Callable[[Sequence[Part]], bool]) -> list[Part]:
        """Parts of which none can be left out."""
        kept = list(parts)
        if kept and fails([]):
            return []
        size = len(kept)
        while size >= 1:
            start, smaller = 0, False
            while start < len(kept):
                rest = kept[:start] + kept[start + size :]
                if len(kept) > 1 and fails(rest):
                    kept, smaller = rest, True
                else:
                    start += size
            if size == 1 and not smaller:
                break
            size = max(1, size // 2) if size > 1 or smaller else 0
        return kept


def shrink(
    script: Script,
    outcome: Outcome,
    *,
    run: Callable[[Script], Outcome] = run_script,
    now: Callable[[], float] = time.monotonic,
) -> Shrunk:
    """Make a failing script as short as possible, within a budget of runs and time."""
    shrinker = Shrinker(outcome, run, now)
    while not shrinker.exhausted():
        before = script
        script = _fewer_settings(shrinker, script)
        script = _fewer_faults(shrinker, script)
        script = _fewer_steps(shrinker, script)
        if len(before.steps) == len(script.steps) and len(before.faults) == len(script.faults):
            break
    script = _without_pauses(shrinker, script)
    return Shrunk(script, shrinker.outcome, shrinker.run_count)


def _fewer_settings(shrinker: Shrinker[Script, Outcome], script: Script) -> Script:
    drawn = [(kind, name) for kind, values in script.settings.items() for name in values]

    def with_only(kept: Sequence[tuple[str, str]]) -> Script:
        wanted = set(kept)
        settings: dict[str, dict[str, Any]] = {
            kind: {name: value for name, value in values.items() if (kind, name) in wanted}
            for kind, values in script.settings.items()
        }
        return replace(script, settings=settings)

    return with_only(shrinker.fewest(drawn, lambda kept: shrinker.fails(with_only(kept))))


def _fewer_faults(shrinker: Shrinker[Script, Outcome], script: Script) -> Script:
    steps = [step.number for step in script.steps]
    numbers = [fault.number for fault in script.faults]
    kept = shrinker.fewest(numbers, lambda some: shrinker.fails(script.only(steps, some)))
    return script.only(steps, kept)


def _fewer_steps(shrinker: Shrinker[Script, Outcome], script: Script) -> Script:
    faults = [fault.number for fault in script.faults]
    numbers = [step.number for step in script.steps]
    kept = shrinker.fewest(numbers, lambda some: shrinker.fails(script.only(some, faults)))
    return script.only(kept, faults)


def _without_pauses(shrinker: Shrinker[Script, Outcome], script: Script) -> Script:
    for index, step in enumerate(script.steps):
        if step.pause_s:
            steps = list(script.steps)
            steps[index] = replace(step, pause_s=0.0)
            shorter = replace(script, steps=tuple(steps))
            if shrinker.fails(shorter):
                script = shorter
    return script
