"""Money that moves between accounts in two topics, and the sums that a batch read finds."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql.datasource import InputPartition
from tests.waiting import wait_until

from magnetar import Cut, blocking
from magnetar_core.cuts import cuts
from magnetar_spark.options.source import source_options
from magnetar_spark.source import BatchReader

SERVERS = "magnetar.bootstrap.servers"
TOPICS = ("current", "savings")
PARTITIONS = 2
# Topic, partition, offset, value.
Row = tuple[str, int, int, bytes]


class Bank:
    """Each transfer takes from an account of "current", and adds to one of "savings"."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = blocking.connect(address)
        for topic in TOPICS:
            self.client.admin.topics.create(topic, partitions=PARTITIONS)
        self._producers = [self.client.create_producer(topic) for topic in TOPICS]
        self.transfers = 0

    @classmethod
    @contextmanager
    def of_a_test(cls, address: str) -> Iterator[Bank]:
        """Its topics are deleted afterwards: other tests use these servers."""
        made = cls(address)
        yield made
        for topic in TOPICS:
            made.client.admin.topics.delete(topic, force=True)
        made.close()

    def transfer(self, amount: int = 1) -> None:
        taken, added = self._producers
        number = self.transfers
        with self.client.transaction() as txn:
            taken.send(self.value(-amount), partition=number % PARTITIONS, txn=txn)
            added.send(self.value(amount), partition=number // PARTITIONS % PARTITIONS, txn=txn)
        self.transfers += 1

    def value(self, amount: int) -> bytes:
        """Return the value of a message that adds an amount."""
        return b"%d" % amount

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Transfers go on meanwhile, in a thread of their own."""
        end = threading.Event()
        errors: list[BaseException] = []

        def work() -> None:
            try:
                while not end.is_set():
                    self.transfer()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
        assert not errors, errors

    def wait_for_more(self, count: int = 1) -> None:
        wanted = self.transfers + count
        wait_until(lambda: self.transfers >= wanted, 120)

    def cut(self) -> Cut:
        return self.client.cut(TOPICS)

    def options(self, **more: Any) -> dict[str, str]:
        return {
            SERVERS: self.address,
            "subscribe": ",".join(TOPICS),
            **{name: str(text) for name, text in more.items()},
        }

    def reader(self, **options: Any) -> BatchReader:
        given = {name: text for name, text in self.options(**options).items() if text}
        return BatchReader(source_options(given, streaming=False))

    def read(self, **options: Any) -> list[Row]:
        """What a batch read with these options finds; an empty option is left out."""
        reader = self.reader(**options)
        return rows_of(reader, reader.partitions())

    def close(self) -> None:
        self.client.close()


def rows_of(reader: BatchReader, partitions: Sequence[InputPartition]) -> list[Row]:
    """Read as tasks do, which get copies of reader and partition."""
    rows: list[Row] = []
    for one in partitions:
        task, partition = pickle.loads(pickle.dumps((reader, one)))
        for batch in task.read(partition):
            found = batch.select(["topic", "partition", "offset", "value"]).to_pylist()
            rows += [(row["topic"], row["partition"], row["offset"], row["value"]) for row in found]
    return rows


def values(rows: Sequence[Row]) -> list[int]:
    return sorted(int(value) for _, _, _, value in rows)


def changed(cut: Cut, *, topics: Any = None, partitions: Any = None, **more: Any) -> str:
    """The token of another cut, made from a cut.

    Args:
        topics: other facts of each topic.
        partitions: other facts of each partition.
        more: other facts of the cut.
    """
    made = {
        name: cuts.TopicCut(
            one.topic_id, tuple(place._replace(**(partitions or {})) for place in one.partitions)
        )._replace(**(topics or {}))
        for name, one in cut.taken.topics.items()
    }
    return str(Cut(cut.taken._replace(topics=made, **more)))


def with_ends_of(cut: Cut, later: Cut, **more: Any) -> str:
    """The token of a cut that was closed at one moment, and had its ends read much later."""
    made = {
        name: one._replace(
            partitions=tuple(
                place._replace(end_offset=last.end_offset)
                for place, last in zip(
                    one.partitions, later.taken.topics[name].partitions, strict=True
                )
            )
        )
        for name, one in cut.taken.topics.items()
    }
    return str(Cut(cut.taken._replace(topics=made, **more)))
