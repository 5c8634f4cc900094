"""A query that runs while its source and sink get partitions, and jobs over the change."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.world import World
from tests.system.processes import Servers
from tests.waiting import wait_until

from magnetar import blocking
from magnetar_spark.jobs.auditing import audit
from magnetar_spark.jobs.offloading import offload, offload_goal, restore

pytestmark = [pytest.mark.chaos, pytest.mark.soak]

PATIENCE_S = 240.0


@pytest.fixture
def world(spark: SparkSession, servers: Servers, tmp_path: Path) -> World:
    return World(servers, tmp_path)


def send(world: World, client: blocking.Client, prefix: str, partitions: int) -> None:
    values = [f"{prefix}{number}".encode() for number in range(120)]
    with client.create_producer("in") as producer:
        for partition in range(partitions):
            some = values[partition::partitions]
            producer.send_many(some, keys=some, partition=partition)
    world.sent.update(values)


def used(client: blocking.Client, topic: str) -> set[int]:
    """The partitions that hold messages."""
    found = client.admin.topics.list_offsets(topic)
    return {one.partition for one in found.partitions if one.end_offset}


def test_a_running_query_picks_new_partitions_up(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    named = (world.address,)
    request = offload_goal.Request(named, "in", str(tmp_path / "kept"))
    with world.client() as client:
        send(world, client, "before", 2)
        old = client.cut("in")
        offload.offload(spark, request)
        query = (
            world.frame(spark)
            .writeStream.format("magnetar")
            .options(**world.options(topic="out"))
            .option("checkpointLocation", str(world.checkpoint))
            .trigger(processingTime="500 milliseconds")
            .start()
        )
        try:
            wait_until(lambda: len(world.values()) >= len(world.sent), PATIENCE_S)
            client.admin.topics.alter("in", partitions=5, keys_move=True)
            client.admin.topics.alter("out", partitions=7, keys_move=True)
            send(world, client, "after", 5)
            wait_until(lambda: len(world.values()) >= len(world.sent), PATIENCE_S)
        finally:
            query.stop()
        world.check()
        assert used(client, "in") == set(range(5))
        assert used(client, "out") > {0, 1, 2}
        # What was taken before goes on, or stays as it was.
        offload.offload(spark, request)
        client.admin.topics.create("back", partitions=5)
        restore.restore(spark, restore.Request(named, request.directory, "back"))
        assert Counter(world.values("back")) == world.sent
        earlier = spark.read.format("magnetar").options(**world.options(subscribe="in", cut=old))
        assert len(earlier.load().collect()) == 120
        later = {**world.options(subscribe="in", cut="now"), "since": str(old)}
        assert spark.read.format("magnetar").options(**later).load().count() == 120
        assert audit.audit(spark, audit.Request(named)).is_clean
        assert audit.audit(spark, audit.Request(named, topics=("in",), at=str(old))).is_clean
