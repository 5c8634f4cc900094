"""Exactly once, whatever becomes of drivers and executors: each query has a driver of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import ROOT
from tests.spark.world import World
from tests.system.processes import Servers

MESSAGES = 300
KILLED = -signal.SIGKILL

# Each starts drivers of their own, JVMs and all: minutes.
pytestmark = [pytest.mark.chaos, pytest.mark.soak]


class Drivers:
    """Each in a process group of its own, which ends with the test."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._started: list[subprocess.Popen[str]] = []

    def start(
        self,
        fault: str = "none",
        *,
        master: str = "local[2,4]",
        batch: int = 1,
        settings: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        world = self._world
        told = {
            "master": master,
            "settings": settings or {},
            "fault_dir": str(world.fault_dir),
            "checkpoint": str(world.checkpoint),
            "source": world.options(
                subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=100
            ),
            "sink": {
                **world.options(topic="out"),
                "fault": fault,
                "fault.dir": str(world.fault_dir),
                "fault.batch": str(batch),
            },
        }
        with (world.directory / "driver.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver", json.dumps(told)],
                stdout=log,
                stderr=log,
                text=True,
                cwd=ROOT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def run(self, fault: str, **options: object) -> int:
        return self.start(fault, **options).wait(150)  # type: ignore[arg-type]

    def log(self) -> str:
        return (self._world.directory / "driver.log").read_text()[-4000:]

    def stop(self) -> None:
        for process in self._started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


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


@pytest.mark.parametrize(
    ("fault", "visible"), [("driver_killed_after", 200), ("driver_killed", 100)]
)
def test_a_driver_is_killed(
    spark: SparkSession, drivers: Drivers, world: World, fault: str, visible: int
) -> None:
    """After the sink's commit, and in the middle of a batch; another one goes on."""
    assert drivers.run(fault) == KILLED, drivers.log()
    assert len(world.values()) == visible
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
