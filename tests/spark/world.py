"""Topics that the SDK fills and reads, and queries between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader
from tests.system.processes import Servers

from magnetar import blocking

SERVERS = "magnetar.bootstrap.servers"
PATIENCE_S = 300
STARTS_MAX = 10
SOURCE_NOT_STARTED = "Python worker failed to connect back"


class World:
    """A cluster, and topics "in" and "out" with 2 and 3 partitions."""

    def __init__(self, servers: Servers, directory: Path) -> None:
        self.servers = servers
        self.address = servers.address
        self.directory = directory
        self.fault_dir = directory / "fault"
        self.fault_dir.mkdir()
        self.checkpoint = directory / "checkpoint"
        self.sent: Counter[bytes] = Counter()
        with self.client() as client:
            client.admin.topics.create("in", partitions=2)
            client.admin.topics.create("out", partitions=3)

    def client(self) -> blocking.Client:
        return blocking.connect(self.address)

    def send(self, count: int, prefix: str = "m", topic: str = "in") -> None:
        values = [f"{prefix}{number}".encode() for number in range(count)]
        with self.client() as client:
            producer = client.create_producer(topic)
            for partition in range(2):
                producer.send_many(values[partition::2], partition=partition)
            producer.flush()
        self.sent.update(values)

    def values(self, topic: str = "out") -> list[bytes]:
        with self.client() as client:
            return [
                message.value
                for partition in range(client.admin.topics.describe(topic).partitions.__len__())
                for message in client.read(topic, partition)
            ]

    def check(self) -> None:
        """Source equals sink, and no duplicate."""
        found = Counter(self.values())
        assert found == self.sent, _difference(found, self.sent)

    def reader(self, spark: SparkSession, **options: Any) -> DataStreamReader:
        return spark.readStream.format("magnetar").options(
            **self.options(**{"subscribe": "in", **options})
        )

    def options(self, **more: Any) -> dict[str, str]:
        return {SERVERS: self.address, **{name: str(text) for name, text in more.items()}}

    def frame(self, spark: SparkSession, per_trigger: int = 100) -> DataFrame:
        reader = self.reader(spark, startingOffsets="earliest", maxOffsetsPerTrigger=per_trigger)
        return reader.load().select("key", "value")

    def start(
        self,
        spark: SparkSession,
        fault: str = "none",
        *,
        frame: DataFrame | None = None,
        topic: str = "out",
        **sink: str,
    ) -> StreamingQuery:
        """All that there is, in batches of 100, with a fault in the second one."""
        frame = self.frame(spark) if frame is None else frame
        return (
            frame.writeStream.format("magnetar-faulty")
            .options(
                **self.options(topic=topic, **sink),
                **{"fault": fault, "fault.dir": str(self.fault_dir), "fault.batch": "1"},
            )
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, spark: SparkSession, fault: str = "none") -> StreamingQuery:
        return ended(lambda: self.start(spark, fault))

    def notes(self, name: str) -> list[str]:
        path = self.fault_dir / name
        return path.read_text().splitlines() if path.exists() else []


def ended(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that has come to its end.

    Spark waits ten seconds for the process of a query's source, however busy the machine is, and
    fails the query when it has not come: then nothing was read or written, and it is started again.

    Raises:
        StreamingQueryException: it has failed.
    """
    for _ in range(STARTS_MAX):
        query = start()
        try:
            assert query.awaitTermination(PATIENCE_S), "it has not ended"
        except StreamingQueryException as error:
            if SOURCE_NOT_STARTED not in str(error):
                raise
        else:
            return query
    raise AssertionError(f"Spark has not started the source's process, {STARTS_MAX} times")


def _difference(found: Counter[bytes], expected: Counter[bytes]) -> str:
    return f"missing: {_some(expected - found)}; too many: {_some(found - expected)}"


def _some(counted: Iterable[bytes]) -> str:
    ordered = sorted(counted)
    return f"{len(ordered)}, {ordered[:5]}"
