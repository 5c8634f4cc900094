"""A failing long seed shrinks to the faults and clients that it takes."""

from __future__ import annotations

import os

import pytest
from tests.simulation.plan import Strike
from tests.simulation.planted import PLANTED
from tests.simulation.short.shrink import signature
from tests.simulation.shrink_long import (
    LongOutcome,
    LongScript,
    run_long,
    run_seed,
    shrink_long,
)

pytestmark = [
    pytest.mark.sim,
    pytest.mark.skipif("SIM_SEEDS" in os.environ, reason="replaying long seeds"),
]

STRIKES = tuple([Strike(number, number / 10, "link") for number in range(1, 41)])
CLIENTS = tuple([f"atomic-{number}" for number in range(8)])
WHOLE = LongScript(0, None, STRIKES, CLIENTS, 4.2)


@pytest.mark.parametrize(
    ("strikes", "clients"),
    [({3, 17}, {2}), (set(), {0, 7}), ({40}, set()), ({1, 2, 39}, {1, 3, 5})],
)
def test_what_is_left_is_what_it_takes(strikes: set[int], clients: set[int]) -> None:
    names = {f"atomic-{number}" for number in clients}
    told: list[str] = []

    def run(script: LongScript) -> LongOutcome:
        it_takes = strikes <= {one.number for one in script.strikes} and names <= set(
            script.clients
        )
        return LongOutcome(script, "Violation: invariant 4: twice" if it_takes else None, "", "")

    shrunk = shrink_long(run(WHOLE), run=run, now=lambda: 0.0, progress=told.append)
    assert {one.number for one in shrunk.script.strikes} == strikes
    assert set(shrunk.script.clients) == names
    assert len(told) == shrunk.run_count


def test_time_is_bounded() -> None:
    seconds = iter(range(1_000))

    def run(script: LongScript) -> LongOutcome:
        return LongOutcome(script, "Violation: invariant 4: twice", "", "")

    shrunk = shrink_long(run(WHOLE), run=run, now=lambda: next(seconds), seconds_max=3)
    assert 1 <= shrunk.run_count <= 3


def test_a_run_done_again_from_what_was_written_down_is_the_same() -> None:
    outcome = run_seed(3)
    assert outcome.failure is None, outcome.traceback
    script = LongScript.from_json(outcome.script.to_json())
    assert script == outcome.script
    assert len(script.strikes) > 10
    assert run_long(script).digest == outcome.digest


def test_a_real_bug_shrinks() -> None:
    """It needs no fault at all, and that is found out at once."""
    with PLANTED["surplus-sends-kept"]():
        found = run_seed(1, checks_servers=False)
        assert found.failure is not None
        shrunk = shrink_long(found, run=lambda one: run_long(one, checks_servers=False), runs_max=3)
        assert signature(shrunk.outcome.failure or "") == signature(found.failure)
        assert found.script.strikes
        assert shrunk.script.strikes == ()
    assert run_long(shrunk.script).failure is None
