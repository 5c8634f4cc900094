"""Bugs of owners that change are found, each in the histories after which it was found before."""

from __future__ import annotations

import os

import pytest
from tests.simulation.planted_owners import first_found

pytestmark = [
    pytest.mark.sim,
    pytest.mark.skipif("SIM_SEEDS" in os.environ, reason="replaying seeds"),
]
# Those that few histories find; --profile "owners that change" --planted all tries all.
SEEDS = {
    "claims-outlive-leases": range(10),
    "store-does-not-fence": range(60),
    "two-owners": range(20),
    "lease-ignored": range(20),
    "questions-without-lease": range(20),
    "another-epoch-enters": range(30),
    "watermark-not-stored": range(20),
    "lease-counted-from-answer": range(105, 115),
    "links-stay": range(10),
}


# Tried by `make test`: one that no other scenario finds, and those that the newest checkers find.
FIRST = ("lease-counted-from-answer", "links-stay", "two-owners", "watermark-not-stored")


@pytest.mark.parametrize(
    "name",
    [
        name if name in FIRST else pytest.param(name, marks=pytest.mark.soak)
        for name in sorted(SEEDS)
    ],
)
def test_a_planted_bug_is_found(name: str) -> None:
    assert first_found(name, SEEDS[name]) is not None
