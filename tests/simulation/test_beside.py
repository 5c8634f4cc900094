"""What goes on beside a broker that is away has bounds, for brokers that are able to do it."""

from __future__ import annotations

import pytest
from tests.simulation.history import Violation
from tests.simulation.short.catalogue import VERBS
from tests.simulation.short.script import Fault, Script, Step
from tests.simulation.world import World


def _world() -> World:
    """The third of three brokers falls, and a producer goes on at the others."""
    arguments = {
        "topic": "mix",
        "settings": {"topic": "mix", "linger_ms": 0.0},
        "count": 3,
        "gap_s": 0.5,
        "away": "broker-2",
    }
    away = {"server": "broker-2", "seconds": 10.0, "silent": False}
    kinds = ("broker", "coordinator", "client", "topic", "constants")
    script = Script(
        seed="1",
        profile="beside",
        scenarios=(),
        topics={"mix": 6},
        broker_count=3,
        coordinator_count=1,
        settings={kind: {} for kind in kinds},
        steps=(Step(1, "producer", "beside", arguments),),
        faults=(Fault(1, 1, 0.0, "away", away),),
    )
    return World(script, VERBS)


@pytest.mark.parametrize("cut_off_s", [2.0, 3.0])
def test_a_follower_that_met_the_first_broker_late_hears_of_transactions_late(
    cut_off_s: float,
) -> None:
    """Short seed 37415: coordinators tell it of transactions once a second."""
    world = _world()
    world.excuse_cut_off(["broker-1"], cut_off_s)
    world.network.partition("broker", "broker-1", cut_off_s)
    world.run()
    # What it is asked for afterwards has its bound.
    assert 0 < world.provoked["beside a broker that is away"] < 6


def test_what_brokers_that_serve_do_has_its_bound() -> None:
    world = _world()
    world.run()
    assert world.provoked["beside a broker that is away"] == 6


def test_a_follower_that_serves_has_no_excuse() -> None:
    world = _world()
    world.loop.call_later(1.0, world.network.hold_up, "producer", "broker-1", 3.0)
    with pytest.raises(Violation, match=r"invariant time: a .* with broker-2 away"):
        world.run()
