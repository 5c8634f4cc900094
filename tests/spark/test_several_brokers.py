"""Spark with two brokers: each partition is read and written at its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from tests.cli.running import Standalone, running_standalone

from magnetar import blocking
from magnetar_spark.clients import close_all
from magnetar_spark.jobs.auditing import audit
from magnetar_spark.jobs.offloading import offload, offload_goal, restore
from magnetar_spark.options.given import SERVERS

pytestmark = pytest.mark.chaos

VALUES = [b"%d" % number for number in range(400)]


@pytest.fixture
def two(spark: SparkSession, tmp_path: Path) -> Iterator[Standalone]:
    """Made after the session, which forks."""
    with running_standalone(tmp_path, "--brokers", "2") as running:
        yield running
        close_all()


def addresses(two: Standalone) -> str:
    return ",".join(one["address"] for one in two.ready()["brokers"])


def values(client: blocking.Client, topic: str) -> Counter[bytes]:
    count = len(client.admin.topics.describe(topic).partitions)
    return Counter(one.value for number in range(count) for one in client.read(topic, number))


def test_all_partitions_are_read_written_audited_and_kept(
    spark: SparkSession, two: Standalone, tmp_path: Path
) -> None:
    servers = addresses(two)
    with blocking.connect(servers) as client:
        for topic in ("in", "out", "batch", "back"):
            client.admin.topics.create(topic, partitions=4)
        assert {one.broker_name for one in client.admin.topics.describe("in").partitions} == {
            "broker-0",
            "broker-1",
        }
        producer = client.create_producer("in")
        for number in range(4):
            with client.transaction() as txn:
                for value in VALUES[number::4]:
                    producer.enqueue(value, key=value, txn=txn)

        options = {SERVERS: servers, "subscribe": "in", "startingOffsets": "earliest"}
        frame = spark.read.format("magnetar").options(**options).load().select("key", "value")
        assert Counter(bytes(row.value) for row in frame.collect()) == Counter(VALUES)
        sink = {SERVERS: servers, "topic": "batch", "txnAppId": "job", "txnVersion": "1"}
        for _ in range(2):
            frame.write.format("magnetar").options(**sink).mode("append").save()
        assert values(client, "batch") == Counter(VALUES)

        stream = spark.readStream.format("magnetar").options(
            **{**options, "maxOffsetsPerTrigger": "150"}
        )
        query = (
            stream.load()
            .select("key", "value")
            .writeStream.format("magnetar")
            .options(**{SERVERS: servers, "topic": "out"})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        assert values(client, "out") == Counter(VALUES)

        named = tuple(servers.split(","))
        report = audit.audit(spark, audit.Request(named))
        assert report.is_clean, report.findings
        assert report.messages == 3 * len(VALUES)

        directory = str(tmp_path / "kept")
        offload.offload(spark, offload_goal.Request(named, "in", directory))
        restore.restore(spark, restore.Request(named, directory, "back"))
        assert values(client, "back") == Counter(VALUES)


def test_a_query_goes_on_when_the_broker_that_is_named_first_is_away(
    spark: SparkSession, two: Standalone
) -> None:
    """The partitions of the other one are read meanwhile."""
    first, second = two.ready()["brokers"]
    with blocking.connect(addresses(two)) as client:
        client.admin.topics.create("t", partitions=2)
        keepers = [one.broker_name for one in client.admin.topics.describe("t").partitions]
        producer = client.create_producer("t")
        for number in range(2):
            producer.send(b"%d" % number, partition=number)
    theirs = keepers.index("broker-1")
    options = {
        SERVERS: f"{first['address']},{second['address']}",
        "assign": f'{{"t": [{theirs}]}}',
        "startingOffsets": "earliest",
    }
    process = psutil.Process(first["pid"])
    process.suspend()
    try:
        frame = spark.read.format("magnetar").options(**options).load()
        assert [bytes(row.value) for row in frame.collect()] == [b"%d" % theirs]
    finally:
        process.resume()
