"""Cuts under faults: whatever restarts and jumps, sums never change."""

from __future__ import annotations

import pytest
from tests.client.cuts.cluster import Cluster, run
from tests.client.cuts.transfers import Violation, audited
from tests.mutants.planting import planted

from magnetar import Client

CUTS = 8
# One of them notices each planted bug; nearly always the first does.
PLANTED_SEEDS = range(4, 16)


def audit(seed: int) -> int:
    """Run a seed; return how many partitions went on while cuts were taken."""
    left_out = 0

    async def scenario(cluster: Cluster, client: Client) -> None:
        nonlocal left_out
        auditor = await audited(cluster, client, cuts=CUTS)
        # The first ones may be taken before anything is committed: at seed 147 two of them.
        assert all(entries for _, entries in auditor.cuts[CUTS // 2 :])
        left_out = auditor.left_out

    run(scenario, seed=f"transfers {seed}")
    return left_out


@pytest.mark.parametrize("seed", range(4))
def test_sums_never_change(seed: int) -> None:
    assert audit(seed) > 0, "nothing happened while cuts were taken"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 400))
def test_sums_never_change_with_many_seeds(seed: int) -> None:
    audit(seed)


@pytest.mark.parametrize(
    "name",
    [
        "stamps-not-heard",
        "cut-awaits-nothing",
        "cut-is-not-read",
        "stamps-without-a-bound",
        "marker-forgets-its-stamp",
    ],
)
def test_planted_bugs_are_found(name: str) -> None:
    with planted(name):
        for seed in PLANTED_SEEDS:
            try:
                audit(seed)
            except Violation:
                return
    raise AssertionError("nobody noticed")
