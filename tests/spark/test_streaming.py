"""The source and the sink as a user meets them, in a real session."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.world import World
from tests.system.processes import Servers

from magnetar_spark import MagnetarDataSource

pytestmark = pytest.mark.chaos


@pytest.fixture
def world(spark: SparkSession, servers: Servers, tmp_path: Path) -> World:
    return World(servers, tmp_path)


def batch(spark: SparkSession, world: World, **options: Any) -> Any:
    return spark.read.format("magnetar").options(**world.options(**options)).load()


def values(frame: Any) -> list[str]:
    return sorted(row[0].decode() for row in frame.select("value").collect())


def test_spark_finds_the_format_by_itself(spark: SparkSession, world: World) -> None:
    """`magnetar` was not registered by anybody: the module's name is enough."""
    assert MagnetarDataSource.name() == "magnetar"
    assert batch(spark, world, subscribe="in").columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "event_time", "txn_id")
    ]


def test_messages_become_rows(spark: SparkSession, world: World) -> None:
    with world.client() as client:
        producer = client.create_producer("in")
        producer.send(b"plain", b"k", properties={"a": "b"}, event_time_ms=1_234, partition=0)
        with client.transaction() as txn:
            producer.send(b"in a transaction", partition=0, txn=txn)
            producer.send(bytes(6 << 20), b"large", partition=1, txn=txn)
        with client.transaction() as aborted:
            producer.send(b"aborted", partition=0, txn=aborted)
            aborted.abort()
        txn_id = str(txn.txn_id)
    frame = batch(spark, world, subscribe="in", includeHeaders="true")
    plain, committed, large = frame.orderBy("partition", "offset").collect()
    assert (plain.key, plain.value, plain.offset, plain.txn_id) == (b"k", b"plain", 0, None)
    assert [(header.key, header.value) for header in plain.headers] == [("a", b"b")]
    assert plain.event_time.timestamp() == 1.234
    assert plain.timestamp is not None
    assert (committed.value, committed.key, committed.event_time) == (
        b"in a transaction",
        None,
        None,
    )
    assert (committed.offset, committed.headers, committed.txn_id) == (1, None, txn_id)
    assert (large.partition, large.offset, len(large.value)) == (1, 0, 6 << 20)


def test_columns_that_are_named(spark: SparkSession, world: World) -> None:
    world.send(2)
    frame = batch(spark, world, subscribe="in", columns="offset, value")
    assert frame.columns == ["offset", "value"]
    assert sorted(tuple(row) for row in frame.collect()) == [(0, b"m0"), (0, b"m1")]


def test_batch_reads_by_offset_time_pattern_and_partition(
    spark: SparkSession, world: World
) -> None:
    world.send(10, "a")
    boundary_ms = max(message.append_time_ms for at in range(2) for message in _read(world, at)) + 1
    while _clock(world) <= boundary_ms:
        pass
    world.send(4, "b")
    everything = [*(f"a{n}" for n in range(10)), *(f"b{n}" for n in range(4))]
    assert values(batch(spark, world, subscribePattern="i.")) == sorted(everything)
    assert values(batch(spark, world, assign='{"in": [1]}', minPartitions="3")) == sorted(
        one for one in everything if int(one[1]) % 2
    )
    offsets = json.dumps({"in": {"0": 4, "1": -2}})
    ends = json.dumps({"in": {"0": -1, "1": 1}})
    found = values(batch(spark, world, subscribe="in", startingOffsets=offsets, endingOffsets=ends))
    assert found == ["a1", "a8", "b0", "b2"]
    late = values(batch(spark, world, subscribe="in", startingTimestamp=boundary_ms))
    assert late == ["b0", "b1", "b2", "b3"]
    early = values(batch(spark, world, subscribe="in", endingTimestamp=boundary_ms))
    assert early == [f"a{n}" for n in range(10)]
    far = 10_000_000_000_000
    with pytest.raises(PySparkException, match="has no message from"):
        values(batch(spark, world, subscribe="in", startingTimestamp=far))
    by_time = json.dumps({"in": {"0": boundary_ms, "1": far}})
    options = {"startingOffsetsByTimestampStrategy": "latest"}
    assert values(
        batch(spark, world, subscribe="in", startingOffsetsByTimestamp=by_time, **options)
    ) == ["b0", "b2"]


def _read(world: World, partition: int) -> Any:
    with world.client() as client:
        return list(client.read("in", partition))


def _clock(world: World) -> int:
    with world.client() as client:
        client.create_producer("out").send(b"tick", partition=2)
        return [one.append_time_ms for one in client.read("out", 2)][-1]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribe": "nowhere"}, "there is no topic 'nowhere'"),
        ({"subscribe": "in", "startingOffsets": '{"in": {"0": 1}}'}, "Not named: in 1"),
        (
            {"subscribe": "in", "startingOffsets": '{"in": {"0": 99, "1": 0}}'},
            "99 is beyond",
        ),
        ({"subscribe": "in", "minPartitions": "none"}, "whole number"),
        ({"subscribe": "in", "columns": "value,colour"}, "names 'colour'; there are: key, value"),
        ({"subscribe": "in", "columns": "headers"}, "set includeHeaders"),
        ({"subscribe": "in", "columns": "key,key"}, "names one twice"),
        ({"subscribe": "in", "columns": "key,,value"}, "a list as 'key,value'"),
    ],
)
def test_what_cannot_be_read_is_said(
    spark: SparkSession, world: World, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(PySparkException, match=complaint):
        batch(spark, world, **options).count()


@pytest.mark.parametrize(
    ("query", "options", "complaint"),
    [
        ("select 1 as other", {"topic": "out"}, "needs a column 'value'"),
        ("select 'a' as value", {}, "name a topic"),
        ("select 1 as value", {"topic": "out"}, "of type int"),
        ("select 'a' as value, 1L as partition", {"topic": "out"}, "of type bigint"),
        ("select 'a' as value, 'b' as keys", {"topic": "out"}, "does not know the column 'keys'"),
        ("select 'a' as value, array('a') as headers", {"topic": "out"}, "the sink takes array"),
        ("select 'a' as value", {"topic": "out", "acks": "all"}, "unknown option 'acks'"),
        ("select 'a' as value", {"topic": "nowhere"}, "there is no topic 'nowhere'"),
        ("select 'a' as value, 7 as partition", {"topic": "out"}, "'partition' says 7"),
    ],
)
def test_what_cannot_be_written_is_said(
    spark: SparkSession, world: World, query: str, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(PySparkException, match=complaint):
        spark.sql(query).write.format("magnetar").options(**world.options(**options)).mode(
            "append"
        ).save()
    assert world.values() == []


def test_what_is_wrong_is_said_first(spark: SparkSession, world: World) -> None:
    """And not behind the trace of one of Spark's workers, whichever it is."""

    def save(query: str, **options: Any) -> None:
        frame = spark.sql(query).write.format("magnetar")
        frame.options(**world.options(topic="out", **options)).mode("append").save()

    def stream(name: str, *more: str, **sink: Any) -> None:
        query = (
            world.reader(spark, startingOffsets="earliest")
            .load()
            .selectExpr("value", *more)
            .writeStream.format("magnetar")
            .options(**world.options(topic="out", **sink))
            .option("checkpointLocation", str(world.directory / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    def lost() -> None:
        """Planned before the topic goes, and read afterwards."""
        with world.client() as client:
            client.admin.topics.create("going")
            client.create_producer("going").send(b"gone")
            frame = batch(spark, world, subscribe="going")
            assert frame.count() == 1
            client.admin.topics.delete("going")
        frame.count()

    world.send(1)
    nowhere = "select 'b' as value, 7 as partition"
    save("select 'a' as value", txnAppId="app", txnVersion=1)
    for fails, kind, complaint in (
        (partial(save, "select 'a' as value", acks="all"), "Option", "unknown option 'acks'"),
        (batch(spark, world, subscribe="nowhere").count, "Option", "no topic 'nowhere'"),
        # Of a task that reads, a task that writes, and what commits for all of them.
        (lost, "", "going partition 0: "),
        (partial(save, nowhere), "Sink", "'partition' says 7"),
        (
            partial(save, "select 'b' as value", txnAppId="app", txnVersion=1),
            "Sink",
            "is committed with other rows",
        ),
        (partial(stream, "option", acks="all"), "Option", "unknown option 'acks'"),
        (partial(stream, "task", "7 as partition"), "Sink", "'partition' says 7"),
    ):
        with pytest.raises(PySparkException) as raised:
            fails()
        told = str(raised.value)
        first = next(line for line in told.splitlines() if complaint in line)
        assert re.search(rf"magnetar_spark\.errors\.({kind}Error|OffsetsLost): ", first), told
        assert "Traceback" not in told[: told.index(complaint)], told
        assert 'File "' not in told[: told.index(complaint)], told
    assert world.values() == [b"a"]


def test_views_have_options_and_tables_do_not(spark: SparkSession, world: World) -> None:
    """Spark gives a table's options to no Python source: it is told what to use instead."""
    world.send(10)
    options = ", ".join(
        f"'{name}' '{text}'" for name, text in world.options(subscribe="in").items()
    )
    spark.sql(f"create or replace temporary view messages using magnetar options ({options})")
    assert spark.sql("select count(*) from messages").head() == (10,)
    spark.sql(f"create table stored_messages using magnetar options ({options})")
    try:
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
            spark.sql("select count(*) from stored_messages").collect()
    finally:
        spark.sql("drop table stored_messages")


def test_only_append(spark: SparkSession, world: World) -> None:
    frame = spark.sql("select 'a' as value")
    with pytest.raises(PySparkException, match="a log is appended to"):
        frame.write.format("magnetar").options(**world.options(topic="out")).mode(
            "overwrite"
        ).save()
    counts = (
        world.reader(spark)
        .load()
        .groupBy("partition")
        .count()
        .selectExpr("cast(count as string) as value")
    )
    for mode, complaint in (("complete", "outputMode"), ("update", "Update mode")):
        query = (
            counts.writeStream.format("magnetar")
            .options(**world.options(topic="out"))
            .option("checkpointLocation", f"{world.checkpoint}-{mode}")
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        with pytest.raises(StreamingQueryException, match=complaint):
            query.awaitTermination(60)


def test_rows_become_messages(spark: SparkSession, world: World) -> None:
    spark.sql(
        """
        select * from values
            ('a', 'in', null, 'k', timestamp_millis(5), array(struct('n', cast('x' as binary)))),
            ('b', 'out', 2, 'k', null, null),
            ('c', 'out', 0, null, null, array())
        as rows(value, topic, partition, key, timestamp, headers)
        """
    ).selectExpr(
        "value", "topic", "partition", "key", "timestamp",
        "cast(headers as array<struct<key: string, value: binary>>) as headers",
    ).write.format("magnetar").options(
        **world.options(compression="zstd")
    ).mode("append").save()  # fmt: skip
    (first,) = [one for at in range(2) for one in _read(world, at)]
    assert (first.value, first.key, first.event_time_ms) == (b"a", b"k", 5)
    assert first.properties == {"n": "x"}
    assert first.txn_id is not None
    with world.client() as client:
        found = {at: [one.value for one in client.read("out", at)] for at in range(3)}
        assert found == {0: [b"c"], 1: [], 2: [b"b"]}
        # A name that nobody asks for again is not kept.
        assert [one.value for one in client.read("out", 2)] == [b"b"]


def test_for_each_batch(spark: SparkSession, world: World) -> None:
    """A function that fails after it has written is called again, and writes nothing then."""
    world.send(50)
    options = world.options(topic="out", txnAppId="copy")
    failures = iter([True])

    def write(frame: Any, batch_id: int) -> None:
        frame.write.format("magnetar").options(**options).option("txnVersion", str(batch_id)).mode(
            "append"
        ).save()
        if next(failures, False):
            raise RuntimeError("after the write")

    def run() -> None:
        query = (
            world.frame(spark)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(world.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)

    with pytest.raises(StreamingQueryException, match="after the write"):
        run()
    run()
    world.check()


def test_latest_is_settled_once(spark: SparkSession, world: World) -> None:
    """The first batch fails, and what was sent before the query began is still not read."""
    world.send(10, "before")
    world.sent.clear()
    frame = world.reader(spark, startingOffsets="latest").load().select("key", "value")
    # Nothing to read: the first batch is empty, and says where the query begins.
    world.start(spark, frame=frame).awaitTermination(60)
    world.send(20, "after")
    (world.fault_dir / "fails").touch()
    with pytest.raises(StreamingQueryException, match="for good"):
        world.start(spark, "stage_fails", frame=frame).awaitTermination(60)
    world.send(20, "later")
    (world.fault_dir / "fails").unlink()
    world.start(spark, frame=frame).awaitTermination(60)
    world.check()


def test_limits_lag_and_new_partitions(spark: SparkSession, world: World) -> None:
    world.send(100)
    frame = (
        world.reader(spark, startingOffsets="earliest", maxOffsetsPerTrigger=40, minPartitions=3)
        .load()
        .select("value")
    )
    query = world.start(spark, frame=frame)
    query.awaitTermination(60)
    assert [one.numInputRows for one in query.recentProgress] == [40, 40, 20]
    lags = [
        json.loads(one.sources[0].latestOffset)["@magnetar"]["maxOffsetsBehindLatest"]
        for one in query.recentProgress
    ]
    assert lags == [30, 10, 0]
    world.check()


def test_new_topics_of_a_pattern_and_a_minimum(spark: SparkSession, world: World) -> None:
    world.send(6)
    frame = (
        spark.readStream.format("magnetar")
        .options(
            **world.options(
                subscribePattern="in.*",
                startingOffsets="earliest",
                minOffsetsPerTrigger=5,
                maxTriggerDelay="1h",
            )
        )
        .load()
        .select("value")
    )
    query = (
        frame.writeStream.format("magnetar")
        .options(**world.options(topic="out"))
        .option("checkpointLocation", str(world.checkpoint))
        .start()
    )
    try:
        query.processAllAvailable()
        world.check()
        with world.client() as client:
            client.admin.topics.create("in-too", partitions=2)
        sent = world.sent.copy()
        world.send(4, "few", topic="in-too")
        query.processAllAvailable()
        assert len(world.values()) == sent.total()
        world.send(4, "more", topic="in-too")
        query.processAllAvailable()
        world.check()
    finally:
        query.stop()


def test_lost_offsets_are_an_error_unless_told_otherwise(spark: SparkSession, world: World) -> None:
    world.send(10)
    frame = world.frame(spark)
    world.start(spark, frame=frame).awaitTermination(60)
    with world.client() as client:
        client.admin.topics.delete("in")
        client.admin.topics.create("in", partitions=2)
    world.send(30, "anew")
    with pytest.raises(StreamingQueryException, match="deleted, or made anew: in"):
        world.start(spark, frame=frame).awaitTermination(60)
    lenient = (
        world.reader(spark, startingOffsets="earliest", failOnDataLoss="false")
        .load()
        .select("key", "value")
    )
    world.start(spark, frame=lenient).awaitTermination(60)
    world.check()


def test_a_topic_that_was_deleted(spark: SparkSession, world: World) -> None:
    """When a batch that is repeated was to read it, and then for good."""
    with world.client() as client:
        client.admin.topics.create("gone", partitions=2)

    def run(*, fail_on_data_loss: bool, fault: str = "none") -> None:
        frame = (
            world.reader(
                spark,
                startingOffsets="earliest",
                failOnDataLoss=str(fail_on_data_loss).lower(),
                subscribe="in,gone",
            )
            .load()
            .select("key", "value")
        )
        query = world.start(spark, fault, frame=frame)
        assert query.awaitTermination(150)

    world.send(10, "first")
    run(fail_on_data_loss=True)
    world.send(10, "second")
    expected = world.sent.copy()
    world.send(10, "gone", topic="gone")
    world.sent = expected
    (world.fault_dir / "fails").touch()
    with pytest.raises(StreamingQueryException, match="for good"):
        run(fail_on_data_loss=True, fault="stage_fails")
    with world.client() as client:
        client.admin.topics.delete("gone")
    with pytest.raises(StreamingQueryException, match="Some messages may be lost"):
        run(fail_on_data_loss=True)
    run(fail_on_data_loss=False)
    world.check()


def test_an_old_checkpoint_is_refused(spark: SparkSession, world: World, tmp_path: Path) -> None:
    import shutil

    world.send(100)
    world.run(spark)
    copy = tmp_path / "copy"
    shutil.copytree(world.checkpoint, copy)
    for number in range(2):
        world.send(100, f"more{number}-")
        world.run(spark)
    shutil.rmtree(world.checkpoint)
    shutil.copytree(copy, world.checkpoint)
    with pytest.raises(StreamingQueryException, match="the checkpoint is older"):
        world.run(spark)
    world.check()
