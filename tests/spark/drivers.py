"""Queries that have a driver of their own: a process, with its JVM."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.sessions import kill_session
from tests.spark.conftest import ROOT
from tests.spark.driver import PATIENCE_S
from tests.spark.world import World


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
        planted = {
            "fault": fault,
            "fault.dir": str(world.fault_dir),
            "fault.batch": str(batch),
        }
        told = {
            "master": master,
            "settings": settings or {},
            "fault_dir": str(world.fault_dir),
            "checkpoint": str(world.checkpoint),
            "source": {
                **world.options(
                    subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=100
                ),
                **planted,
            },
            "sink": {**world.options(topic="out"), **planted},
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
        return self.start(fault, **options).wait(PATIENCE_S)  # type: ignore[arg-type]

    def log(self) -> str:
        return (self._world.directory / "driver.log").read_text()[-4000:]

    def stop(self) -> None:
        for process in self._started:
            kill_session(process)
