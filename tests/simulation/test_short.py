"""Short histories: every scenario holds, happens, and is the same on every run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.simulation.short.catalogue import SCENARIOS, make_script
from tests.simulation.short.command import how_to_replay, shortest
from tests.simulation.short.runner import Outcome, run_history, run_script
from tests.simulation.short.script import Script

pytestmark = [
    pytest.mark.sim,
    pytest.mark.skipif("SIM_SEEDS" in os.environ, reason="replaying long seeds"),
]

SEEDS = range(25)
# Situations without which a scenario proves nothing, over all its seeds together.
NEEDED: dict[str, tuple[str, ...]] = {
    "transactions": ("lazy began",),
    "unheard": ("unheard",),
    "chains": ("plain parked",),
    "in order": ("came again",),
    "crowd": ("came again",),
    "large messages": ("large messages", "large messages consumed"),
    "dead letters": ("dead letters",),
    "crews": ("processed", "processed dead letters"),
    "acks by hand": ("unconsumed came",),
    "idle client": ("administrator aborted",),
    "identities": ("identified commits",),
    "sequences": ("sequence replayed", "sequence too old"),
    "strangers": ("stranger's id issued", "publish refused", "publish as refused"),
    "damaged rows": ("data loss told", "consumer told", "given up"),
    "made anew": (
        "a late deletion of a topic",
        "a late deletion of a subscription",
        "a late deletion of a group",
        "a late deletion of a name",
        "a deletion refused",
    ),
    "members by hand": ("acked as a member", "emptied by hand", "intruder refused"),
    "keys moving": ("acked what was kept",),
    "coordinator away": ("begins beside a dead coordinator",),
    "ledgers": ("ledger lives", "meddling refused"),
    "owners that change": (
        "claims",
        "handed over",
        "abandoned",
        "fenced",
        "members killed",
        "members frozen",
        "stopped in order",
        "drains",
        "pins",
    ),
    "several brokers": (
        "topics made at a follower",
        "topics found",
        "lives checked",
        "topics unknown while cut off",
        "deletions refused",
        "sent to their brokers",
        "beside a broker that is away",
    ),
}


def describe(outcome: Outcome) -> str:
    replay = f"replay with: {how_to_replay(outcome)}"
    return f"{outcome.failure}\n{outcome.traceback}\n{shortest(outcome)}\n{replay}"


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_every_scenario_holds(scenario: str) -> None:
    active: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = run_history(seed, scenario)
        assert outcome.failure is None, describe(outcome)
        active.update(outcome.active)
    missing = [name for name in NEEDED.get(scenario, ()) if not active[name]]
    assert not missing, f"{scenario} never came to {missing}: {active}"


def test_the_same_seed_gives_the_same_trace() -> None:
    """In this process and in another, whatever order their sets have."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--short", "--digest", "--seeds", "0-9"],
        cwd=Path(__file__).parents[2],
        # Its sets have another order: the hash seed of this process is random.
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [run_history(seed).digest for seed in range(10)]


def test_a_script_is_data() -> None:
    """What is written down and read again runs as what was made from the seed."""
    for seed in range(5):
        script = make_script(seed)
        again = Script.from_json(script.to_json())
        assert str(again) == str(script)
        assert run_script(again).digest == run_script(script).digest


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_every_part_of_a_script_runs(scenario: str) -> None:
    """A step whose premise is missing does nothing."""
    for seed in range(3):
        script = make_script(seed, scenario)
        steps = [one.number for one in script.steps]
        faults = [one.number for one in script.faults]
        for part in (steps[::2], steps[1::2], steps[3:], []):
            outcome = run_script(script.only(part, faults))
            assert outcome.failure is None, f"{outcome.failure}\n{outcome.traceback}"
