"""A failing history shrinks to the part of it that fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulation.planted import PLANTED
from tests.simulation.short.catalogue import make_script
from tests.simulation.short.runner import Outcome, run_history, run_script
from tests.simulation.short.script import Script
from tests.simulation.short.shrink import shrink, signature

pytestmark = pytest.mark.sim

SOUND = run_history(0, "by turns")


def failing(text: str) -> Outcome:
    return replace(SOUND, failure=text)


@pytest.mark.parametrize(
    ("steps", "faults"), [({3, 7}, {2}), ({1}, set()), (set(), {1, 3}), ({2, 4, 8}, {1, 2, 3})]
)
def test_what_is_left_is_what_it_takes(steps: set[int], faults: set[int]) -> None:
    whole = make_script(0, "chains")
    fault = make_script(2, "identities").faults[0]
    whole = replace(whole, faults=tuple([replace(fault, number=n) for n in (1, 2, 3)]))
    assert len(whole.steps) >= 8

    def run(script: Script) -> Outcome:
        has_steps = steps <= {step.number for step in script.steps}
        has_faults = faults <= {fault.number for fault in script.faults}
        return failing("Violation: invariant 4: twice") if has_steps and has_faults else SOUND

    shrunk = shrink(whole, run(whole), run=run, now=lambda: 0.0)
    assert {step.number for step in shrunk.script.steps} == steps
    assert {one.number for one in shrunk.script.faults} == faults
    assert not any(shrunk.script.settings.values())
    assert not any(step.pause_s for step in shrunk.script.steps)


def test_another_failure_is_not_what_is_looked_for() -> None:
    whole = make_script(0, "transactions")

    def run(script: Script) -> Outcome:
        if len(script.steps) == len(whole.steps):
            return failing("Violation: invariant 4: twice")
        return failing("Violation: invariant 2: lost")

    shrunk = shrink(whole, run(whole), run=run, now=lambda: 0.0)
    assert len(shrunk.script.steps) == len(whole.steps)
    assert signature(shrunk.outcome.failure or "") == "Violation: invariant 4"


def test_a_real_bug_shrinks_to_a_few_steps() -> None:
    with PLANTED["surplus-sends-kept"]():
        outcomes = (run_history(seed, "hand made", checks_servers=False) for seed in range(60))
        found = next(outcome for outcome in outcomes if outcome.failure is not None)
        shrunk = shrink(make_script(found.seed, found.profile), found)
        assert shrunk.outcome.failure is not None
        assert signature(shrunk.outcome.failure) == signature(found.failure or "")
        assert len(shrunk.script.steps) <= 2
        assert run_script(shrunk.script).failure is not None
    assert run_script(shrunk.script).failure is None
