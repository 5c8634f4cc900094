"""Speculation as Spark does it: a copy overtakes an attempt, which goes on writing all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.spark.cluster import StandaloneCluster
from tests.spark.drivers import Drivers
from tests.spark.faults import EVERY_BATCH
from tests.spark.world import World
from tests.system.processes import BROKER, Servers

# A cluster is six JVMs: a minute.
pytestmark = [pytest.mark.chaos, pytest.mark.soak]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.executor.cores": "1",
    "spark.executor.memory": "500m",
    # Else Spark kills the attempt that lost two to four seconds later, whether it was late or not.
    "spark.python.task.killTimeout": "120s",
}


@pytest.fixture
def cluster(java: None, python_of_spark: None, tmp_path: Path) -> Iterator[StandaloneCluster]:
    made = StandaloneCluster(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    running = Servers(tmp_path, {"MAGNETAR_METRICS_PORT": "0"})
    running.start()
    yield running
    running.stop()


@pytest.fixture
def world(servers: Servers, tmp_path: Path) -> World:
    made = World(servers, tmp_path)
    made.send(300)
    return made


@pytest.fixture
def drivers(world: World) -> Iterator[Drivers]:
    started = Drivers(world)
    yield started
    started.stop()


def test_an_attempt_that_was_overtaken_is_refused(
    cluster: StandaloneCluster,
    drivers: Drivers,
    world: World,
    figure: Callable[[str, str], None],
) -> None:
    """In each of three batches, after the commit; what it had written before is not selected."""
    status = drivers.run(
        "speculated", master=cluster.master, settings=SPECULATION, batch=EVERY_BATCH
    )
    assert status == 0, (drivers.log(), cluster.log())
    world.check()
    attempts = sorted(world.notes("attempts"))
    assert attempts == [f"{batch} {attempt}" for batch in range(3) for attempt in range(2)]
    assert world.notes("late") == [
        f"{batch} {what}" for batch in range(3) for what in ("refused", "wrote nothing")
    ]
    assert set(world.notes("errors")) <= {"CommitRefused", "InvalidTxnState"}
    refusals = world.servers.metric(
        BROKER, 'magnetar_broker_refusals_total{error="InvalidTxnState"}'
    )
    assert refusals >= 3
    figure("refusals of attempts that were overtaken", f"{refusals:.0f}")
