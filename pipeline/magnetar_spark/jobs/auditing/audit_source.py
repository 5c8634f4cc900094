"""A data source for audits, whose tasks read ranges of offsets.

Unlike the source for queries, it reads on behind lost messages, and reports them. It has three
kinds of rows: what a range contains (`checked_in`), what sidecars contain (`stored_in`), or the
    messages
with the source's columns.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from magnetar import blocking
from magnetar.message import MessageColumns
from magnetar_core.errors import Gone, OutOfRange, TopicNotFound
from magnetar_core.ids import TxnID
from magnetar_core.list_limits import ROWS_MAX
from magnetar_spark.arrow_out import RecordBatches
from magnetar_spark.clients import client_of
from magnetar_spark.jobs.auditing.audit_checks import NOWHERE, OPEN, STORED, PartitionWatch, Row
from magnetar_spark.jobs.reading import Lost, Removed, behind_cut_message, read_all
from magnetar_spark.planning import Range, split
from magnetar_spark.schema import source_schema

# Of one task: beyond it, a partition is read by several; what is small is read together.
OFFSETS_PER_TASK = 1_000_000
RANGES_PER_TASK = 32
ROWS_AT_ONCE = 10_000
STORED_AT_ONCE = ROWS_MAX

_EVIDENCE = "evidence"
_STORED = "stored"
_MESSAGES = "messages"
_TEXTS = ("kind", "topic", "txn_id", "detail")
_SMALL = ("partition", "producer_epoch")


def _type(name: str) -> DataType:
    if name in _TEXTS:
        return StringType()
    return IntegerType() if name in _SMALL else LongType()


ROW_SCHEMA = StructType([StructField(name, _type(name)) for name in Row._fields])


def checked_in(
    spark: SparkSession,
    servers: Sequence[str],
    ranges: Sequence[Range],
    later: Collection[str] | None = None,
) -> DataFrame:
    """Return the rows that checks make of the ranges.

    Args:
        later: transactions whose messages do not count, since a cut does not have them; then all
            that the ranges have must be there. None: without a cut.
    """
    return _load(spark, _EVIDENCE, servers, ranges, later)


def stored_in(spark: SparkSession, servers: Sequence[str], ranges: Sequence[Range]) -> DataFrame:
    """Return a row for each transaction in the sidecars of these partitions; ignore offsets."""
    return _load(spark, _STORED, servers, ranges)


def messages_of(
    spark: SparkSession,
    servers: Sequence[str],
    ranges: Sequence[Range],
    later: Collection[str] | None = None,
) -> DataFrame:
    """Return all readable messages of the ranges that count, with headers.

    Args:
        later: as for checked_in().
    """
    return _load(spark, _MESSAGES, servers, ranges, later)


def _load(
    spark: SparkSession,
    rows: str,
    servers: Sequence[str],
    ranges: Sequence[Range],
    later: Collection[str] | None = None,
) -> DataFrame:
    spark.dataSource.register(AuditSource)
    told = {
        "servers": list(servers),
        "ranges": [astuple(one) for one in ranges],
        "later": None if later is None else sorted(later),
    }
    return spark.read.format(AuditSource.name()).options(rows=rows, told=json.dumps(told)).load()


class AuditSource(DataSource):
    """The data source; only this module makes it, and its options are not an interface."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "magnetar-audit"

    def schema(self) -> StructType:
        """Return the columns."""
        if self.options["rows"] == _MESSAGES:
            return source_schema(include_headers=True)
        return ROW_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return AuditReader(self.options["rows"], json.loads(self.options["told"]))


class RangesPartition(InputPartition):
    """The ranges that a task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = tuple(ranges)


class AuditReader(DataSourceReader):
    """Reads ranges, which it divides among tasks."""

    def __init__(self, rows: str, told: dict[str, Any]) -> None:
        self._rows = rows
        self._servers = tuple(str(one) for one in told["servers"])
        self._ranges = [Range(*one) for one in told["ranges"]]
        self._later = None if told["later"] is None else frozenset(told["later"])

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges of each task."""
        if self._rows == _STORED:
            return [RangesPartition(some) for some in packed(self._ranges)]
        pieces = [
            piece
            for one in self._ranges
            for piece in split([one], -(-one.count // OFFSETS_PER_TASK) or 1)
        ]
        return [RangesPartition(some) for some in packed(pieces)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a task; called in executors."""
        if not isinstance(partition, RangesPartition):
            return  # Of nothing to read, Spark makes a partition of its own.
        client = client_of(self._servers)
        for one in partition.ranges:
            if self._rows == _MESSAGES:
                yield from _messages(client, one, self._later)
            elif self._rows == _STORED:
                yield from _in_batches(list_sidecar(client, one))
            else:
                yield from _in_batches(watch(client, one, self._later))


def packed(ranges: Iterable[Range]) -> list[list[Range]]:
    """Group neighbouring ranges, up to the limit of a task."""
    tasks: list[list[Range]] = []
    count = 0
    for one in ranges:
        if not tasks or count + one.count > OFFSETS_PER_TASK or len(tasks[-1]) == RANGES_PER_TASK:
            tasks.append([])
            count = 0
        tasks[-1].append(one)
        count += one.count
    return tasks


def watch(
    client: blocking.Client, wanted: Range, later: Collection[str] | None = None
) -> Iterator[Row]:
    """Read a range and return the rows that its checks make.

    Args:
        later: as for checked_in().
    Raises:
        OutOfRange: there is a cut, and messages were removed since.
    """
    watching = PartitionWatch(wanted)
    watching.skip(behind_cut_message(client, wanted))
    for piece in read_all(client, wanted):
        if isinstance(piece, Removed):
            _require_none_removed(wanted, piece, later)
            watching.skip(piece.next_offset)
        elif isinstance(piece, Lost):
            yield from watching.lose(
                piece.next_offset, piece.detail, is_damaged=piece.is_damaged, txn_id=piece.txn_id
            )
        else:
            txn_id = str(piece.txn_id or "")
            yield from watching.see(
                piece.first_offset,
                piece.last_offset,
                messages=0 if later is not None and txn_id in later else len(piece),
                entry_id=piece.batch.entry_id,
                txn_id=txn_id,
            )
    yield from watching.end()


def list_sidecar(client: blocking.Client, wanted: Range) -> Iterator[Row]:
    """Yield a row for each transaction in a partition's sidecar; none if the topic was deleted."""
    first: TxnID | None = None
    while True:
        try:
            page = client.admin.topics.stored_transactions(
                wanted.topic,
                wanted.partition,
                first_txn_id=first,
                limit=STORED_AT_ONCE,
                topic_id=wanted.topic_id,
            )
        except (Gone, TopicNotFound):
            return
        for one in page.transactions:
            row = Row(STORED, wanted.topic, wanted.topic_id, wanted.partition)
            row = row._replace(txn_id=str(one.txn_id), last=page.end_offset)
            if one.is_open:
                row = row._replace(
                    kind=OPEN,
                    last=NOWHERE,
                    first=one.start_offset,
                    start_ms=one.start_time_ms,
                    producer_epoch=one.producer_epoch,
                )
            yield row
        first = page.next_txn_id
        if first is None:
            return


def _messages(
    client: blocking.Client, wanted: Range, later: Collection[str] | None
) -> Iterator[pa.RecordBatch]:
    made = RecordBatches(wanted.topic, wanted.partition, include_headers=True)
    for piece in read_all(client, wanted):
        if isinstance(piece, Removed):
            _require_none_removed(wanted, piece, later)
        elif isinstance(piece, MessageColumns) and str(piece.txn_id) not in (later or ()):
            yield made.of(piece)


def _require_none_removed(wanted: Range, piece: Removed, later: Collection[str] | None) -> None:
    if later is not None:
        raise OutOfRange(
            f"{wanted.topic} partition {wanted.partition}: messages before {piece.next_offset} were"
            " removed since the cut was taken: take another one"
        )


def _in_batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    some: list[Row] = []
    for row in rows:
        some.append(row)
        if len(some) == ROWS_AT_ONCE:
            yield _batch(some)
            some = []
    if some:
        yield _batch(some)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    schema = to_arrow_schema(ROW_SCHEMA, timezone="UTC")
    columns = [
        pa.array(column, type=kind)
        for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
