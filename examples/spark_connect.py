"""Shouts words from topic to topic through Spark Connect: this machine needs no Java.

    magnetar standalone --data-dir ./data
    SPARK=$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
    PYSPARK_PYTHON=$(which python) $SPARK/sbin/start-connect-server.sh --master 'local[2]'
    python examples/spark_connect.py --checkpoint $PWD/checkpoint
    $SPARK/sbin/stop-connect-server.sh

Here: `pip install 'magnetar[spark-connect]'`; where the Connect server and its executors run:
`magnetar[spark]`, and `magnetar[spark-connect]` for `--in-batches`. `--remote 'local[2]'` starts a
server in this process. The checkpoint's directory is the server's, and the broker's address is one
that the server reaches too. Start it again with the same checkpoint: it goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from magnetar import MagnetarError, blocking


class Shouting:
    """The part of this program that runs on the server.

    Args:
        servers: options that say where the broker is.
        checkpoint: a directory of the server's. It names what foreachBatch does, too: should it be
            removed, take another, since versions begin with 0 again.
    """

    def __init__(self, spark: SparkSession, servers: dict[str, str], checkpoint: str) -> None:
        self._spark = spark
        self._servers = servers
        self._checkpoint = checkpoint

    def write_words(self, words: list[str], topic: str) -> None:
        """One transaction: all of them or none. Without a name, each call writes them again."""
        frame = self._spark.createDataFrame([(word,) for word in words], "value STRING")
        frame.write.format("magnetar").options(**self._servers).option("topic", topic).mode(
            "append"
        ).save()

    def _words(self, topic: str) -> DataFrame:
        return (
            self._spark.readStream.format("magnetar")
            .options(**self._servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("key", "upper(cast(value AS string)) AS value")
        )

    def shout(self, source: str, target: str) -> StreamingQuery:
        """From topic to topic, up to what there is now."""
        query = (
            self._words(source)
            .writeStream.format("magnetar")
            .options(**self._servers)
            .option("topic", target)
            .option("checkpointLocation", f"{self._checkpoint}/shout")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def shout_in_batches(self, source: str, target: str) -> StreamingQuery:
        """The same by a function that runs on the server, with names that make it count once."""
        options = {
            **self._servers,
            "topic": target,
            "txnAppId": f"{self._checkpoint}/shout-in-batches",
        }

        # It is sent to the server: it takes along values, and neither the session nor this object.
        def write(frame: DataFrame, batch_id: int) -> None:
            frame.write.format("magnetar").options(**options).option("txnVersion", batch_id).mode(
                "append"
            ).save()

        query = (
            self._words(source)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", f"{self._checkpoint}/shout-in-batches")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def count(self, topic: str) -> dict[str, int]:
        """Return how often each word is in a topic."""
        frame = (
            self._spark.read.format("magnetar")
            .options(**self._servers)
            .option("subscribe", topic)
            .load()
        )
        rows = frame.selectExpr("cast(value AS string) AS word").groupBy("word").count().collect()
        return {row["word"]: row["count"] for row in sorted(rows)}


def offsets_behind(query: StreamingQuery) -> int | None:
    """Return the lag of the last batch; None without one, and for one repeated after a restart."""
    progress = query.lastProgress
    ends = json.loads(progress.sources[0].latestOffset or "null") if progress is not None else None
    return ends["@magnetar"]["maxOffsetsBehindLatest"] if ends else None


def session(remote: str) -> SparkSession:
    """Make it before the first client when it starts a server of its own: that forks."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.remote(remote).getOrCreate()


def make_topics(broker: str, topics: list[str]) -> None:
    with blocking.connect(broker) as client:
        there = {one.topic for one in client.admin.topics.list()}
        for topic in topics:
            if topic not in there:
                client.admin.topics.create(topic, partitions=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", default=["to", "be", "or", "not", "to", "be"])
    parser.add_argument("--remote", default="sc://127.0.0.1:15002")
    parser.add_argument("--broker", default="127.0.0.1:6650")
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="DIRECTORY",
        help="where the server writes down how far the queries have come",
    )
    parser.add_argument(
        "--in-batches", action="store_true", help="by foreachBatch, too: the server needs pandas"
    )
    arguments = parser.parse_args()
    try:
        spark = session(arguments.remote)
        make_topics(arguments.broker, ["words", "shouts", "shouts-in-batches"])
        shouting = Shouting(
            spark, {"magnetar.bootstrap.servers": arguments.broker}, arguments.checkpoint
        )
        shouting.write_words(arguments.words, "words")
        query = shouting.shout("words", "shouts")
        print("shouts:", shouting.count("shouts"))
        print("behind by", offsets_behind(query))
        if arguments.in_batches:
            shouting.shout_in_batches("words", "shouts-in-batches")
            print("in batches:", shouting.count("shouts-in-batches"))
        spark.stop()
    except (MagnetarError, PySparkException) as error:
        sys.exit(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


if __name__ == "__main__":
    main()
