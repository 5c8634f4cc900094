"""docs/spark.md, What happens when Spark repeats a batch, for functions of foreachBatch.

The checkpoint of each query here is too old.

One query of six batches is all that each arrangement of writes needs: a replay that ends as it
should writes nothing, so that the next one, on another copy of the checkpoint, finds what was there
before.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.replays import BATCHES, OTHER_ROWS, TOO_OLD, older
from tests.spark.world import World, ended
from tests.system.processes import Servers

pytestmark = pytest.mark.chaos

ROWS = 10
MORE = 20
# Of a later run, which plans again what its checkpoint has lost.
ROWS_LATER = 25
TOPICS = ("out", "out-too", "out-as-well")


class Writes:
    """What the function does with a batch: a name and a topic for each write."""

    def __init__(self, *names_and_topics: tuple[str, str]) -> None:
        self.all = names_and_topics

    def run(self, spark: SparkSession, world: World, per_trigger: int) -> str | None:
        """Run the query on all that there is.

        Returns:
            How it failed; None when it did not.
        """

        def write(frame: DataFrame, batch_id: int) -> None:
            for app_id, topic in self.all:
                frame.write.format("magnetar").options(
                    **world.options(txnAppId=app_id, txnVersion=batch_id, topic=topic)
                ).mode("append").save()

        writer = (
            world.frame(spark, per_trigger)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(world.checkpoint))
            .trigger(availableNow=True)
        )
        try:
            ended(writer.start)
        except StreamingQueryException as error:
            return str(error)
        return None

    def expected(self, sent: Counter[bytes]) -> dict[str, Counter[bytes]]:
        """Each message once for each write, by topic."""
        found = {topic: Counter[bytes]() for topic in TOPICS}
        for _, topic in self.all:
            found[topic].update(sent)
        return found


def found(world: World) -> dict[str, Counter[bytes]]:
    return {topic: Counter(world.values(topic)) for topic in TOPICS}


ARRANGEMENTS = [
    pytest.param(Writes(*writes), id=name)
    for name, writes in (
        ("1 to 1", [("copy", "out")]),
        ("2 to 1", [("a", "out"), ("b", "out")]),
        ("2 to 2", [("copy", "out"), ("copy", "out-too")]),
        ("3 to 1", [("a", "out"), ("b", "out"), ("c", "out")]),
        ("3 to 2", [("a", "out"), ("b", "out"), ("a", "out-too")]),
        ("3 to 3", [("copy", topic) for topic in TOPICS]),
    )
]


@pytest.mark.soak
@pytest.mark.parametrize("writes", ARRANGEMENTS)
def test_a_function_on_a_checkpoint_that_is_some_batches_old(
    spark: SparkSession, servers: Servers, tmp_path: Path, writes: Writes
) -> None:
    world = World(servers, tmp_path)
    with world.client() as client:
        for topic in TOPICS[1:]:
            client.admin.topics.create(topic, partitions=1)
    world.send(BATCHES * ROWS, "begun")
    assert writes.run(spark, world, ROWS) is None
    committed = writes.expected(world.sent)
    assert found(world) == committed
    newest = world.checkpoint

    def go_on(behind: int, more: str) -> str | None:
        world.checkpoint = tmp_path / f"{behind} old, {more} more"
        shutil.copytree(newest, world.checkpoint)
        older(behind)(world.checkpoint)
        failed = writes.run(spark, world, ROWS_LATER)
        assert found(world) == committed, (behind, more)
        return failed

    # The last batch is planned again as it was; any other is followed by what is committed.
    assert go_on(1, "no") is None
    for behind in range(2, BATCHES):
        assert TOO_OLD in str(go_on(behind, "no")), behind
    world.send(MORE, "more")
    assert OTHER_ROWS in str(go_on(1, "some"))
    for behind in range(2, BATCHES):
        assert TOO_OLD in str(go_on(behind, "some")), behind
    # Whoever has the newest one goes on.
    world.checkpoint = newest
    assert writes.run(spark, world, ROWS_LATER) is None
    assert found(world) == writes.expected(world.sent)
