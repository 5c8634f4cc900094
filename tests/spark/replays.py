"""Ways in which Spark comes again with a batch: what is done to a checkpoint, and to a driver.

docs/spark.md, What happens when Spark repeats a batch, has a row for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.world import World, ended

BATCHES = 6
ROWS = 100
LAST = BATCHES - 1


class Ends(Enum):
    """How a replay may end: nothing else is allowed."""

    ONCE = auto()
    """Each message counts once."""
    REFUSED = auto()
    """The query fails, says why, and nothing of it was written."""


Outcome = tuple[Ends, str]


class Replay:
    """What a checkpoint of six batches of 100 rows loses before the query goes on.

    Args:
        without: how that ends, and what is said of a refusal, when nothing new has come.
        with_more: the same with more messages; as without, unless it is given.
    """

    def __init__(
        self,
        lost: str,
        damage: Callable[[Path], None],
        without: Outcome,
        with_more: Outcome | None = None,
    ) -> None:
        self.lost = lost
        self.damage = damage
        self.without = without
        self.with_more = with_more or without


def lose(*files: tuple[str, int]) -> Callable[[Path], None]:
    """These files, as ("offsets", 5)."""

    def damage(checkpoint: Path) -> None:
        for kind, number in files:
            lost = checkpoint / kind / str(number)
            assert lost.exists(), lost
            lost.unlink()
            (checkpoint / kind / f".{number}.crc").unlink(missing_ok=True)

    return damage


def older(batches: int, *kinds: str) -> Callable[[Path], None]:
    """These directories as they were so many batches ago; all, unless they are named."""
    numbers = range(BATCHES - batches, BATCHES)
    return lose(*((kind, number) for kind in kinds or ("offsets", "commits") for number in numbers))


def lose_metadata(checkpoint: Path) -> None:
    (checkpoint / "metadata").unlink()
    (checkpoint / ".metadata.crc").unlink(missing_ok=True)


def begin(spark: SparkSession, world: World) -> None:
    """Six batches of 100 rows."""
    world.send(BATCHES * ROWS, "begun")
    query = world.run(spark)
    assert [one.numInputRows for one in query.recentProgress] == [ROWS] * BATCHES
    world.check()


def go_on(
    spark: SparkSession, world: World, *, per_trigger: int = 250, topic: str = "out", **sink: str
) -> str | None:
    """The query again, on all that there is: in batches of 250 rows, not of 100.

    Returns:
        How it failed; None when it did not.
    """
    frame = world.frame(spark, per_trigger)
    try:
        ended(lambda: world.start(spark, frame=frame, topic=topic, **sink))
    except PySparkException as error:
        return f"{error} {error.getCondition()}"
    return None


def check(spark: SparkSession, world: World, replay: Replay, *, more: int) -> None:
    """
    Args:
        more: messages that come before the query goes on: what is planned again takes them, too.
    """
    begin(spark, world)
    replay.damage(world.checkpoint)
    if more:
        world.send(more, "more")
    ends, complaint = replay.with_more if more else replay.without
    before = Counter(world.values())
    failed = go_on(spark, world)
    if ends is Ends.ONCE:
        assert failed is None, failed
        world.check()
        return
    # However often it is tried.
    for found in (failed, go_on(spark, world)):
        assert found is not None, "it was not refused"
        assert complaint in found, found
        assert Counter(world.values()) == before


OTHER_ROWS = "is committed with other rows"
TOO_OLD = "the checkpoint is older than the topic"

ONCE: Outcome = (Ends.ONCE, "")
REFUSED_TOO_OLD: Outcome = (Ends.REFUSED, TOO_OLD)
REPLAYS = [
    Replay("nothing", lambda checkpoint: None, ONCE),
    # What is done is done again, and found to be done.
    Replay("commits 5", lose(("commits", LAST)), ONCE),
    Replay("commits 4", lose(("commits", LAST - 1)), ONCE),
    Replay("commits 0", lose(("commits", 0)), ONCE),
    *(
        Replay(f"commits of {behind} batches", older(behind, "commits"), ONCE)
        for behind in range(2, BATCHES + 1)
    ),
    Replay("offsets 0", lose(("offsets", 0)), ONCE),
    # Batch 5 is planned again: as it was, or with more rows.
    Replay("1 batch", older(1), ONCE, (Ends.REFUSED, OTHER_ROWS)),
    # An earlier one is repeated, or planned again.
    *(
        Replay(f"{behind} batches", older(behind), REFUSED_TOO_OLD)
        for behind in range(2, BATCHES + 1)
    ),
    *(
        Replay(f"offsets of {behind} batches", older(behind, "offsets"), REFUSED_TOO_OLD)
        for behind in range(1, BATCHES)
    ),
    # Spark says so itself.
    Replay("offsets 4", lose(("offsets", LAST - 1)), (Ends.REFUSED, "batch 4 doesn't exist")),
    Replay("all offsets", older(BATCHES, "offsets"), (Ends.REFUSED, "assertion failed")),
    Replay("metadata", lose_metadata, (Ends.REFUSED, "METADATA")),
]
