"""A bound on time counts the time in which nothing was wrong with those who had a part in it."""

from __future__ import annotations

import pytest
from tests.simulation.short.calm import EVERYBODY, FOR_EVER, GRACE_SECONDS, Calm


class Clock:
    now = 0.0

    def time(self) -> float:
        return self.now


def test_a_crash_is_over_when_its_server_is_up() -> None:
    clock = Clock()
    calm = Calm(clock.time)
    calm.trouble(["broker"], FOR_EVER)
    clock.now = 3.0
    assert calm.seconds(["broker"], 0.0) == 0.0
    calm.over("broker")
    clock.now = 10.0
    assert calm.seconds(["broker"], 0.0) == 7.0 - GRACE_SECONDS
    assert calm.seconds(["coordinator"], 0.0) == 10.0


@pytest.mark.parametrize("troubled", ["broker", EVERYBODY])
def test_a_partition_goes_on_when_a_server_inside_comes_up(troubled: str) -> None:
    """Nobody reaches a server that crashes and comes up while it is cut off."""
    clock = Clock()
    calm = Calm(clock.time)
    calm.trouble([troubled], 25.0)
    calm.trouble(["broker"], FOR_EVER)
    clock.now = 3.0
    calm.over("broker")
    clock.now = 24.0
    assert calm.seconds(["client", "broker"], 0.0) == 0.0
    clock.now = 30.0
    assert calm.seconds(["client", "broker"], 0.0) == 5.0 - GRACE_SECONDS
