"""Exactly once, whatever breaks: source equals sink, and no duplicate.

Each query copies 300 messages in three batches of 100, and the second batch meets the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.world import World
from tests.system.processes import BROKER, COORDINATOR, Servers

MESSAGES = 300

pytestmark = pytest.mark.chaos


@pytest.fixture
def world(spark: SparkSession, servers: Servers, tmp_path: Path) -> World:
    made = World(servers, tmp_path)
    made.send(MESSAGES)
    return made


def test_nothing_breaks(spark: SparkSession, world: World) -> None:
    query = world.run(spark)
    assert [one.numInputRows for one in query.recentProgress] == [100, 100, 100]
    world.check()


@pytest.mark.parametrize("fault", ["task_raises", "worker_exits"])
def test_a_task_fails_twice(spark: SparkSession, world: World, fault: str) -> None:
    """What an attempt has written counts only if the attempt won."""
    world.run(spark, fault)
    attempts = {f"{task} {attempt}" for task in range(2) for attempt in range(3)}
    assert set(world.notes("attempts")) == attempts
    world.check()


def test_a_stage_fails_for_good_and_the_query_is_restarted(
    spark: SparkSession, world: World
) -> None:
    (world.fault_dir / "fails").touch()
    with pytest.raises(StreamingQueryException, match="for good"):
        world.run(spark, "stage_fails")
    assert world.notes("aborts") == ["1"]
    assert len(world.values()) == 100
    (world.fault_dir / "fails").unlink()
    world.run(spark, "stage_fails")
    world.check()


@pytest.mark.parametrize(
    ("fault", "told"), [("source_killed", ""), ("source_told_to_end", "told to end (SIGTERM)")]
)
def test_the_process_of_the_source_is_killed(
    spark: SparkSession, world: World, fault: str, told: str
) -> None:
    """Spark has no word for what it does not hear; docs/spark.md says what an empty one means."""
    source = spark.readStream.format("magnetar-faulty").options(
        **world.options(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=100),
        **{"fault": fault, "fault.dir": str(world.fault_dir), "fault.batch": "1"},
    )
    frame = source.load().select("key", "value")
    with pytest.raises(StreamingQueryException) as raised:
        world.start(spark, frame=frame).awaitTermination(60)
    assert told in str(raised.value)
    assert len(world.values()) == 100
    world.start(spark, frame=frame).awaitTermination(60)
    world.check()


def test_an_exception_after_a_commit_that_succeeded(spark: SparkSession, world: World) -> None:
    """Spark then aborts, and the abort must not undo the decision."""
    with pytest.raises(StreamingQueryException, match="after a commit that succeeded"):
        world.run(spark, "raises_after")
    assert world.notes("aborts") == ["1"]
    assert len(world.values()) == 200
    world.run(spark)
    world.check()


@pytest.mark.parametrize(("fault", "count"), [("reply_lost", 1), ("reply_lost_twice", 2)])
def test_a_commits_reply_is_lost(spark: SparkSession, world: World, fault: str, count: int) -> None:
    world.run(spark, fault)
    assert world.notes("lost") == ["a reply"] * count
    world.check()


@pytest.mark.parametrize("kind", [BROKER, COORDINATOR])
def test_a_server_is_killed_in_the_middle_of_a_batch(
    spark: SparkSession, world: World, kind: str, wait_for: Callable[[Path], None]
) -> None:
    query = world.start(spark, "server_killed")
    wait_for(world.fault_dir / "reached")
    world.servers.kill(kind)
    (world.fault_dir / "killed").touch()
    world.servers.start(kind)
    query.awaitTermination(120)
    world.check()


def test_a_zombie_is_refused(
    spark: SparkSession, world: World, figure: Callable[[str, str], None]
) -> None:
    """What it sent before the commit is not selected; what it sends later is not taken."""
    world.run(spark, "zombie")
    world.check()
    began, *after = world.notes("zombies")
    assert began == "began"
    assert after[-1] == "refused SequenceCommitted"
    assert set(after[:-1]) == {"refused InvalidTxnState"}
    figure("refusals of a zombie", str(len(after)))
