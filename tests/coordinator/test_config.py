"""Settings that cannot work together are refused at once."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_core.config import InvalidConfig
from magnetar_core.cuts.hybrid_clock import AHEAD_MS_MAX
from magnetar_core.process.settings import names_of


@pytest.mark.parametrize(
    "settings",
    [
        {"tcid": 1 << 16},
        {"broker_addresses": ()},
        {"broker_addresses": tuple(f"broker:{port}" for port in range(2_049))},
        {"broker_addresses": ("broker:1", "broker:1")},
        {"broker_names": ("broker-0", "broker-1")},
        {"membership_version": 0},
        {"live_txns_max": 0},
        {"free_space_floor_bytes": -1},
        {"outcome_retention_ms": 15 * 60_000 - 1},
        {"stamp_ahead_ms_max": 0},
        {"stamp_ahead_ms_max": AHEAD_MS_MAX + 1},
    ],
)
def test_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(settings))):
        CoordinatorConfig(**settings)


def test_a_default_is_never_above_its_limit() -> None:
    assert CoordinatorConfig().txn_timeout_ms_default == 60_000
    config = CoordinatorConfig(txn_timeout_ms_max=30_000, outcomes_max=3)
    assert config.txn_timeout_ms_default == 30_000
    assert config.recent_outcomes_max == 3


def test_a_file_sets_no_constants_and_nothing_that_the_list_of_members_says() -> None:
    names = names_of(CoordinatorConfig)
    assert "live_txns_max" in names
    assert not {"constants", "name", "tcid", "membership_version", "cluster_hash"} & set(names)
    assert "txn_ids_ahead" not in names
