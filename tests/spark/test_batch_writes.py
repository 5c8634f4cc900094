"""Batch writes that are named by txnAppId and txnVersion: each counts once, and none is dropped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.world import World
from tests.system.processes import Servers

from magnetar_spark.work import name_of_app

pytestmark = pytest.mark.chaos

TOPICS = ("out", "out-too", "out-as-well")
OTHER_ROWS = "is committed with other rows"


@pytest.fixture
def world(spark: SparkSession, servers: Servers, tmp_path: Path) -> World:
    made = World(servers, tmp_path)
    with made.client() as client:
        for topic in TOPICS[1:]:
            client.admin.topics.create(topic, partitions=2)
    return made


def save(world: World, frame: DataFrame, version: int, app_id: str = "job", **options: str) -> None:
    frame.write.format("magnetar").options(
        **world.options(txnAppId=app_id, txnVersion=version, **options)
    ).mode("append").save()


def test_a_version_counts_once(spark: SparkSession, world: World) -> None:
    def write(value: str, version: int, **options: str) -> None:
        save(world, spark.sql(f"select '{value}' as value"), version, topic="out", **options)

    write("first", 1)
    write("first", 1)
    with pytest.raises(PySparkException, match=OTHER_ROWS):
        write("other", 1)
    write("other", 1, failOnReplayMismatch="false")
    write("third", 3)
    with pytest.raises(PySparkException, match="comes before 3, which is committed"):
        write("late", 2)
    assert sorted(world.values()) == [b"first", b"third"]


def test_null_values_and_empty_keys_stay_what_they_are(spark: SparkSession, world: World) -> None:
    rows = [("k", "v"), ("k", None), ("k", ""), (None, None), ("", "v"), ("", None), (None, "v")]
    frame = spark.createDataFrame(rows, "key STRING, value STRING").coalesce(1)
    save(world, frame, 1, topic="out")
    # What is committed has these nulls, and no others.
    save(world, frame, 1, topic="out")
    with pytest.raises(PySparkException, match=OTHER_ROWS):
        save(world, frame.fillna("", ["value"]), 1, topic="out")
    with pytest.raises(PySparkException, match=OTHER_ROWS):
        save(world, frame.fillna("", ["key"]), 1, topic="out")
    found = (
        spark.read.format("magnetar")
        .options(**world.options(subscribe="out"))
        .load()
        .selectExpr("cast(key AS STRING)", "cast(value AS STRING)")
    )
    assert Counter(map(tuple, found.collect())) == Counter(rows)
    with world.client() as client:
        contents = [(one.key, one.value_or_none) for one in client.read("out")]
    encoded = [tuple(None if one is None else one.encode() for one in row) for row in rows]
    assert Counter(contents) == Counter(encoded)


def test_names_tell_apart_what_they_are_made_of() -> None:
    made = [
        name_of_app(app_id, topic)
        for app_id, topic in (
            ("a", None), ("a", "t"), ("a", "t/a"), ("t:a", None), ("a:a", "t"), ("a/a", "t"),
            ("x" * 250, "t"), ("x" * 250, None), ("x" * 251, "t"), ("x" * 250, "u"),
        )
    ]  # fmt: skip
    assert len({*made}) == len(made)
    assert max(map(len, made)) <= 255


@pytest.mark.parametrize(
    "writes", [2, pytest.param(1, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.soak)]
)
def test_writes_of_one_function_to_several_topics(
    spark: SparkSession, world: World, writes: int
) -> None:
    """One txnAppId and txnVersion for all of them, as Delta Lake scopes the pair by table. The
    function fails after each of its writes in turn, and is called again.
    """
    world.send(100)
    fails_after = iter(range(writes))
    complaints = []

    def write(frame: Any, batch_id: int) -> None:
        fails = next(fails_after, None)
        for number, topic in enumerate(TOPICS[:writes]):
            save(world, frame, batch_id, app_id="copy", topic=topic)
            if number == fails:
                raise RuntimeError(f"after write {number}")

    for _ in range(writes + 1):
        query = (
            world.frame(spark)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(world.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(150)
        except StreamingQueryException as error:
            complaints.append(str(error))
    assert len(complaints) == writes
    assert all(f"after write {number}" in one for number, one in enumerate(complaints))
    for topic in TOPICS[:writes]:
        assert Counter(world.values(topic)) == world.sent


def test_two_writes_to_one_topic_need_two_names(spark: SparkSession, world: World) -> None:
    """With one name, the second would be taken for a repeat of the first: it is refused."""
    frame = spark.range(10).selectExpr("cast(id as string) as value")
    save(world, frame, 0, topic="out")
    with pytest.raises(PySparkException, match="give each a txnAppId of its own"):
        save(world, frame.selectExpr("concat('x', value) as value"), 0, topic="out")
    save(world, frame, 0, app_id="another", topic="out")
    assert Counter(world.values()) == Counter([b"%d" % n for n in range(10)] * 2)
