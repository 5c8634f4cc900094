"""Long histories, rules and determinism. `SIM_SEEDS=4471` replays a seed and keeps its trace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.simulation.run import how_to_replay, shortest
from tests.simulation.seeds import seeds_from_env, trace_path
from tests.simulation.short.catalogue import SCENARIOS, make_script
from tests.simulation.short.rules import RULES
from tests.simulation.short.runner import Outcome, run_history, run_script
from tests.simulation.short.script import Script

pytestmark = pytest.mark.sim
not_when_replaying = pytest.mark.skipif("SIM_SEEDS" in os.environ, reason="replaying seeds")

LONG_SEEDS = seeds_from_env("SIM_SEEDS", count=8)
SEEDS = range(25)
RULE_SEEDS = range(5)
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
    "members by hand": (
        "acked as a member",
        "emptied by hand",
        "intruder refused",
        "p one of two ended",
    ),
    "keys moving": ("acked what was kept",),
    "coordinator away": ("begins beside a dead coordinator",),
    "ledgers": ("ledger lives", "meddling refused"),
    "jobs": ("o sequences",),
    "terminations": ("o terminated",),
    "surveyors": ("cut read again",),
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
    "growing topics": (
        "topics grown",
        "transactions over a growth",
        "cuts of a growing topic",
        "subscriptions of a grown topic",
    ),
}


def describe(outcome: Outcome) -> str:
    replay = f"replay with: {how_to_replay(outcome)}"
    return f"{outcome.failure}\n{outcome.traceback}\n{shortest(outcome)}\n{replay}"


@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_long_histories_hold(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    if len(LONG_SEEDS) > 1:
        outcome = run_history(seed, "long")
        assert outcome.failure is None, describe(outcome)
        return
    path = trace_path(seed)
    with capsys.disabled():
        print(f"\ntrace: {path}")
        with path.open("w") as out:
            outcome = run_history(seed, "long", out=out)
        print(outcome)
    assert outcome.failure is None


@not_when_replaying
def test_a_long_history_holds_enough_to_mean_something() -> None:
    outcome = run_history(3, "long")
    assert outcome.counts["transactions"] >= 80
    assert sum(outcome.faults[kind] for kind in ("crash", "power cut", "client crash")) >= 5
    assert {"observe", "inspect", "survey", "work"} <= {
        step.verb for step in make_script(3, "long").steps
    }


@not_when_replaying
@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_is_provoked_and_holds(rule: str) -> None:
    active = active_in(f"rule {rule}", RULE_SEEDS)
    missing = [name for name in RULES[rule].needed if not active[name]]
    assert not missing, f"rule {rule} was not put to the test: {missing} of {active}"


def active_in(profile: str, seeds: range) -> Counter[str]:
    """What came about in histories of a profile, which hold."""
    active: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_history(seed, profile)
        assert outcome.failure is None, describe(outcome)
        active.update(outcome.active)
    return active


@not_when_replaying
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_every_scenario_holds(scenario: str) -> None:
    active = active_in(scenario, SEEDS)
    missing = [name for name in NEEDED.get(scenario, ()) if not active[name]]
    assert not missing, f"{scenario} never came to {missing}: {active}"


@not_when_replaying
@pytest.mark.parametrize(("profile", "seeds"), [("any", range(10)), ("long", range(2))])
def test_the_same_seed_gives_the_same_trace(profile: str, seeds: range) -> None:
    """In this process and in another, whatever order their sets have."""
    what = [f"--profile={profile}", f"--seeds={seeds[0]}-{seeds[-1]}"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--digest", *what],
        cwd=Path(__file__).parents[2],
        # Its sets have another order: the hash seed of this process is random.
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [run_history(seed, profile).digest for seed in seeds]


@not_when_replaying
def test_a_script_is_data() -> None:
    """What is written down and read again runs as what was made from the seed."""
    for seed, profile in [*((seed, "any") for seed in range(5)), (0, "long"), (0, "rule h")]:
        script = make_script(seed, profile)
        again = Script.from_json(script.to_json())
        assert str(again) == str(script)
        assert run_script(again).digest == run_script(script).digest


@not_when_replaying
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_every_part_of_a_script_runs(scenario: str) -> None:
    """A step whose premise is missing does nothing."""
    for seed in range(3):
        script = make_script(seed, scenario)
        steps = [step.number for step in script.steps]
        faults = [fault.number for fault in script.faults]
        for part in (steps[::2], steps[1::2], steps[3:], []):
            outcome = run_script(script.only(part, faults))
            assert outcome.failure is None, f"{outcome.failure}\n{outcome.traceback}"
