"""Exactly once, whatever becomes of drivers and executors: each query has a driver of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.drivers import Drivers
from tests.spark.world import World
from tests.system.processes import Servers

MESSAGES = 300
KILLED = -signal.SIGKILL

# Each starts drivers of their own, JVMs and all: minutes.
pytestmark = [pytest.mark.chaos, pytest.mark.soak]


@pytest.fixture
def world(servers: Servers, tmp_path: Path) -> World:
    made = World(servers, tmp_path)
    made.send(MESSAGES)
    return made


@pytest.fixture
def drivers(java: None, python_of_spark: None, world: World) -> Iterator[Drivers]:
    started = Drivers(world)
    yield started
    started.stop()


@pytest.mark.parametrize("more", [0, 200])
@pytest.mark.parametrize(
    ("fault", "batch", "visible"),
    [
        # Before Spark has written down what the batch consists of, and after it has.
        ("driver_killed_planning", 1, 100),
        ("driver_killed_planned", 1, 100),
        # With some rows sent, with all of them sent, and with all of them committed.
        ("driver_killed", 1, 100),
        ("driver_killed_before", 1, 100),
        ("driver_killed_after", 1, 200),
        # After Spark has written down that the batch before is done.
        ("driver_killed_planning", 2, 200),
    ],
)
def test_a_driver_is_killed(
    spark: SparkSession,
    drivers: Drivers,
    world: World,
    fault: str,
    batch: int,
    visible: int,
    more: int,
) -> None:
    """At each step of the second batch; another one goes on, and may find more to read."""
    assert drivers.run(fault, batch=batch) == KILLED, drivers.log()
    assert len(world.values()) == visible
    world.send(more, "more")
    world.run(spark)
    world.check()


def test_two_drivers_share_a_checkpoint(
    spark: SparkSession, drivers: Drivers, world: World
) -> None:
    """One of them ends, sooner or later: Spark sees it in the log, or the sink's transaction is
    gone. A third one ends what they have left.
    """
    both = [drivers.start("two_drivers", batch=0), drivers.start("two_drivers", batch=0)]
    for one in both:
        one.wait(150)
    assert len(set(world.notes("inside"))) >= 2, drivers.log()
    world.run(spark)
    world.check()
