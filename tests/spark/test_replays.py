"""docs/spark.md, What happens when Spark repeats a batch: exactly once or a refusal, never silence.

In `make test` what has gone wrong once; all the rest in the soak. What is done to a checkpoint is
in tests/spark/replays.py, drivers that are killed in test_drivers.py, and functions of foreachBatch
in test_batch_writes.py.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.replays import OTHER_ROWS, REPLAYS, Replay, begin, check, go_on, lose
from tests.spark.world import World
from tests.system.processes import Servers

pytestmark = pytest.mark.chaos

QUICK = {("1 batch", 300), ("commits 5", 300)}


def cases() -> list[Any]:
    return [
        pytest.param(
            replay,
            more,
            id=f"{replay.lost}, {more} more",
            marks=[] if (replay.lost, more) in QUICK else [pytest.mark.soak],
        )
        for replay in REPLAYS
        for more in (300, 0)
    ]


@pytest.fixture
def world(spark: SparkSession, servers: Servers, tmp_path: Path) -> World:
    return World(servers, tmp_path)


@pytest.mark.parametrize(("replay", "more"), cases())
def test_a_checkpoint_loses(spark: SparkSession, world: World, replay: Replay, more: int) -> None:
    check(spark, world, replay, more=more)


@pytest.mark.soak
def test_as_many_rows_of_the_same_size_are_not_the_same(spark: SparkSession, world: World) -> None:
    """A limit is shared out by how much each partition has, so the batch that is planned again has
    as many rows, and other ones.
    """

    def send(partition: int, count: int) -> None:
        values = [b"%d-%03d" % (partition, number) for number in range(count)]
        with world.client() as client:
            producer = client.create_producer("in")
            producer.send_many(values, partition=partition)
            producer.flush()
        world.sent.update(values)

    send(0, 200)
    assert go_on(spark, world, per_trigger=100) is None
    world.check()
    # The second of two batches.
    lose(("offsets", 1), ("commits", 1))(world.checkpoint)
    before = Counter(world.values())
    send(1, 100)
    failed = go_on(spark, world, per_trigger=100)
    assert failed is not None
    both = r"committed with other rows: (rows=100 bytes=500) checksum=\w+; this run has \1"
    assert re.search(both, failed), failed
    assert Counter(world.values()) == before
    # Told that it does not matter, the query takes what is committed for these.
    assert go_on(spark, world, per_trigger=100, failOnReplayMismatch="false") is None


@pytest.mark.soak
@pytest.mark.parametrize("first", ["out", "out-too"])
def test_a_copy_of_a_checkpoint_is_no_query_of_its_own(
    spark: SparkSession, world: World, first: str
) -> None:
    """Two queries, one identity: with the same target they share the work, with two targets the
    second to commit a batch is refused.
    """
    with world.client() as client:
        client.admin.topics.create("out-too", partitions=2)
    begin(spark, world)
    original, copy = world.checkpoint, world.directory / "copy"
    shutil.copytree(original, copy)
    world.send(200, "more")
    world.checkpoint = copy
    assert go_on(spark, world, topic=first) is None
    world.checkpoint = original
    failed = go_on(spark, world)
    if first == "out":
        # The same rows, in the same batches.
        assert failed is None
        world.check()
    else:
        assert failed is not None
        assert OTHER_ROWS in failed
        found = Counter(world.values()) + Counter(world.values("out-too"))
        assert found == world.sent


@pytest.mark.soak
def test_a_copy_that_reads_on_in_other_steps_is_refused(spark: SparkSession, world: World) -> None:
    begin(spark, world)
    original, copy = world.checkpoint, world.directory / "copy"
    shutil.copytree(original, copy)
    world.send(200, "more")
    world.checkpoint = copy
    assert go_on(spark, world) is None
    world.check()
    world.checkpoint = original
    failed = go_on(spark, world, per_trigger=50)
    assert failed is not None
    assert OTHER_ROWS in failed
    world.check()


@pytest.mark.soak
def test_a_query_that_gives_other_rows_each_time(spark: SparkSession, world: World) -> None:
    """Repeated with the same input, it is refused: which rows count is not for us to guess."""

    def run(**sink: str) -> str | None:
        frame = world.frame(spark).selectExpr("key", "concat(value, '/', uuid()) as value")
        query = world.start(spark, frame=frame, **sink)
        try:
            query.awaitTermination(150)
        except Exception as error:
            return str(error)
        return None

    world.send(100)
    assert run() is None
    before = Counter(world.values())
    lose(("commits", 0))(world.checkpoint)
    failed = run()
    assert failed is not None
    assert "as with rand()" in failed
    assert run(failOnReplayMismatch="false") is None
    assert Counter(world.values()) == before
