"""Words that leave before what they rest on is durable are seen, frame by frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.planting import replaced
from tests.simulation.short.runner import run_history

from magnetar_coordinator.runtime import Runtime

SEEDS = 20


def at_once(runtime: Any, callback: Callable[[], None]) -> None:
    callback()


@pytest.mark.sim
@pytest.mark.parametrize("profile", ["transactions", "identities", "sequences"])
def test_who_speaks_before_it_is_durable_is_seen(profile: str) -> None:
    with replaced(Runtime, "when_durable", at_once):
        failures = (
            run_history(seed, profile, checks_servers=False).failure for seed in range(SEEDS)
        )
        found = next((one for one in failures if one is not None), "")
    assert "invariant a: " in found
