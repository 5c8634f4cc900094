"""Cuts under faults: whatever restarts and jumps, sums never change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.client.cuts.cluster import Cluster, run
from tests.client.cuts.planted import everything_read, nothing_awaited
from tests.client.cuts.transfers import Violation, audited

from magnetar import Client
from magnetar_broker.log.entries import MarkerEntry
from magnetar_coordinator.metadata_store import TransactionMetadataStore
from magnetar_core.cuts.hybrid_clock import HybridClock

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


def _nothing_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HybridClock, "hear", lambda self, stamp, time_ms: None)


def _no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionMetadataStore, "reserve_stamps", lambda self, stamp: None)


def _no_stamps_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markers of which only memory knows the stamp."""
    to_bytes = MarkerEntry.to_bytes

    def forgetful(self: MarkerEntry) -> bytes:
        copy = MarkerEntry(
            self.entry_id,
            self.count,
            self.append_time_ms,
            self.txn_id,
            self.writers,
            self.stored_bytes,
        )
        return to_bytes(copy)

    monkeypatch.setattr(MarkerEntry, "to_bytes", forgetful)


@pytest.mark.parametrize(
    "plant",
    [_nothing_heard, nothing_awaited, everything_read, _no_bound, _no_stamps_stored],
)
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in PLANTED_SEEDS:
        try:
            audit(seed)
        except Violation:
            return
    raise AssertionError("nobody noticed")
