"""All public methods, with good and bad arguments, cancelled and closed at any await.

Several callers share a client, its producers and so its batches, and its transactions. Each of
their calls ends, in success or with an error for applications; each message that was accepted is
stored, once and as it was given, or its caller, a flush or the commit of its transaction hears of
it.

`FUZZED_SEED=4471` replays a seed, `FUZZED_CALLS=1000000` makes so many calls. A script that fails
is shrunk.
"""

from __future__ import annotations

import os

import pytest
from tests.client.fuzzing.play import failure_of, shrunk
from tests.client.fuzzing.script import METHODS, draw

STEPS = 100
CALLS = int(os.environ.get("FUZZED_CALLS", "20000"))
SEED = os.environ.get("FUZZED_SEED")
SEEDS = range(CALLS // STEPS) if SEED is None else (int(SEED),)
CALLS_OF_A_SOAK = 1_000_000


def check(seed: int) -> None:
    """Play the script of a seed; show the shortest one that fails in the same way."""
    script = draw(seed, STEPS)
    if failure_of(script) is None:
        return
    short = shrunk(script)
    steps = "\n".join(map(str, short.steps))
    pytest.fail(f"FUZZED_SEED={seed}: {failure_of(short)}\n{steps}\n")


@pytest.mark.parametrize("seed", SEEDS)
def test_each_call_ends_and_no_message_is_lost_silently(seed: int) -> None:
    check(seed)


@pytest.mark.soak
def test_a_million_calls() -> None:
    for seed in range(len(SEEDS), CALLS_OF_A_SOAK // STEPS):
        check(seed)


def test_every_class_of_the_sdk_is_called() -> None:
    called = {(step.kind, step.method) for seed in range(200) for step in draw(seed, STEPS).steps}
    assert called == {(kind, name) for kind, names in METHODS.items() for name in names}
