"""A data source that reads ranges of offsets, each to its last message or not at all.

Unlike the source for queries, it also finds offsets that no message has. A message that was sent in
parts belongs to the range in which it begins, so ranges may be split anywhere.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import astuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from magnetar import blocking
from magnetar.message import MessageColumns
from magnetar_spark.arrow_out import RecordBatches
from magnetar_spark.clients import client_of
from magnetar_spark.errors import UNREADABLE, OffsetsLost
from magnetar_spark.jobs.reading import Lost, Removed, read_all
from magnetar_spark.planning import Range
from magnetar_spark.schema import source_schema
from magnetar_spark.source import RangePartition


def messages_of(spark: SparkSession, servers: Sequence[str], ranges: Sequence[Range]) -> DataFrame:
    """Return all messages of the ranges, with headers: a task for each range, in order."""
    spark.dataSource.register(WholeRanges)
    told = {"servers": list(servers), "ranges": [astuple(one) for one in ranges]}
    return spark.read.format(WholeRanges.name()).options(told=json.dumps(told)).load()


class WholeRanges(DataSource):
    """The data source; only this module makes it, and its option is not an interface."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "magnetar-whole-ranges"

    def schema(self) -> StructType:
        """Return the columns."""
        return source_schema(include_headers=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        told = json.loads(self.options["told"])
        return WholeReader(tuple(told["servers"]), [Range(*one) for one in told["ranges"]])


class WholeReader(DataSourceReader):
    """Reads ranges, with a task for each range."""

    def __init__(self, servers: tuple[str, ...], ranges: Sequence[Range]) -> None:
        self._servers = servers
        self._ranges = ranges

    def partitions(self) -> Sequence[InputPartition]:
        """Return the range of each task."""
        return [RangePartition(one) for one in self._ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of a task; called in executors."""
        if not isinstance(partition, RangePartition):
            return  # Of nothing to read, Spark makes a partition of its own.
        wanted = partition.range
        made = RecordBatches(wanted.topic, wanted.partition, include_headers=True)
        for columns in read_whole(client_of(self._servers), wanted):
            yield made.of(columns)


def read_whole(client: blocking.Client, wanted: Range) -> Iterator[MessageColumns]:
    """Yield the messages that begin in a range, in order.

    Raises:
        OffsetsLost: an offset of the range belongs to no message, or cannot be read.
        ChecksumMismatch: a batch is damaged.
        InvalidArgument: a batch is damaged.
    """
    topic, partition = wanted.topic, wanted.partition
    at = wanted.start
    try:
        for pieces in client.read_ahead(topic, partition, at, wanted.end, topic_id=wanted.topic_id):
            for columns in pieces:
                if columns.first_offset != at:
                    _check_hole(client, wanted, at, columns.first_offset)
                at = columns.last_offset + 1
                yield columns
        if at < wanted.end:
            _check_hole(client, wanted, at, wanted.end)
    except UNREADABLE as error:
        raise OffsetsLost(f"{topic} partition {partition}: {error}") from error


def _check_hole(client: blocking.Client, wanted: Range, first: int, end: int) -> None:
    if first > end or not _is_within_a_message(client, wanted, first, end):
        raise OffsetsLost(
            f"{wanted.topic} partition {wanted.partition}: "
            + (
                f"no message has the offsets from {first} to {end - 1}"
                if first < end
                else f"several messages have the offsets from {end} to {first - 1}"
            )
            + f"; `magnetar pipeline audit {wanted.topic}` looks closer"
        )


def _is_within_a_message(client: blocking.Client, wanted: Range, first: int, end: int) -> bool:
    """Whether a message that begins before the range has these offsets.

    Looks ever further back for the message before them.
    """
    if first != wanted.start or first == 0:
        return False
    step = 1
    while True:
        start = max(0, first - step)
        columns = client.read_columns(wanted.topic, wanted.partition, start, first)
        before = deque(columns, maxlen=1)
        if before or start == 0:
            return bool(before) and before[0].last_offset + 1 >= end
        step *= 2


def losses_in(client: blocking.Client, wanted: Range) -> list[tuple[int, int]]:
    """Return the lost part of a range: the first offset, and the offset after the last.

    Raises:
        MagnetarError: the servers cannot be reached.
    """
    losses: list[tuple[int, int]] = []
    at = wanted.start

    def lose(end: int) -> None:
        if losses and losses[-1][1] == at:
            losses[-1] = (losses[-1][0], end)
        else:
            losses.append((at, end))

    for piece in read_all(client, wanted):
        if isinstance(piece, Lost | Removed):
            if piece.next_offset > at:
                lose(min(piece.next_offset, wanted.end))
                at = piece.next_offset
            continue
        first = piece.first_offset
        if first > at and not _is_within_a_message(client, wanted, at, first):
            lose(first)
        at = max(at, piece.last_offset + 1)
    if at < wanted.end and not _is_within_a_message(client, wanted, at, wanted.end):
        lose(wanted.end)
    return losses
