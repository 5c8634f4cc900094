"""Seeds, families and determinism. `SIM_SEEDS=4471` replays a seed and keeps its trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.families import FAMILIES, make_world
from tests.simulation.seeds import how_to_replay, seeds_from_env, trace_path
from tests.simulation.world import World

pytestmark = pytest.mark.sim

SEEDS = seeds_from_env("SIM_SEEDS", count=8)
FAMILY_SEEDS = range(2)
not_when_replaying = pytest.mark.skipif("SIM_SEEDS" in os.environ, reason="replaying seeds")


@pytest.mark.parametrize("seed", SEEDS)
def test_invariants_hold(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    if len(SEEDS) == 1:
        path = trace_path(seed)
        with capsys.disabled():
            print(f"\ntrace: {path}")
            with path.open("w") as out:
                print(World(seed, out=out).run())
        return
    try:
        World(seed).run()
    except BaseException as error:
        error.add_note(how_to_replay(seed))
        raise


@not_when_replaying
@pytest.mark.parametrize("seed", FAMILY_SEEDS)
@pytest.mark.parametrize("rule", sorted(FAMILIES))
def test_every_rule_is_provoked_and_holds(rule: str, seed: int) -> None:
    world = make_world(rule, seed)
    try:
        world.run()
    except BaseException as error:
        error.add_note(how_to_replay(seed, rule))
        raise
    assert FAMILIES[rule].occurred(world), f"rule {rule} was not put to the test: {world.provoked}"


@not_when_replaying
def test_a_seed_holds_enough_to_mean_something() -> None:
    result = World(26).run()
    crashes = result.counts["server crashes"] + result.counts["client crashes"]
    assert result.counts["transactions"] >= 100
    assert crashes >= 5


@not_when_replaying
# With several brokers, and with owners that change.
@pytest.mark.parametrize("seed", [4, 2])
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    """In this process, after others, and in a new one, whatever order their sets have."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.run", "--digest", "--seeds", str(seed)],
        cwd=Path(__file__).parents[2],
        # Its sets have another order: the hash seed of this process is random.
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == World(seed).run().digest
