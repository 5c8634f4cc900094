"""Settings that cannot work together are refused at once."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_core.config import InvalidConfig
from magnetar_core.cuts.hybrid_clock import AHEAD_MS_MAX


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
        {"txn_timeout_ms_default": 15 * 60_000 + 1},
        {"expiry_check_interval_ms": 15 * 60_000 + 1},
        {"retry_delay_ms_min": 10_001},
        {"outcome_retention_ms": 15 * 60_000 - 1},
        {"stamp_ahead_ms_max": 0},
        {"stamp_ahead_ms_max": AHEAD_MS_MAX + 1},
    ],
)
def test_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(settings))):
        CoordinatorConfig(**settings)


def test_the_defaults_work() -> None:
    assert CoordinatorConfig().txn_timeout_ms_default == 60_000
