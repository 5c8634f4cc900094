"""Tasks for tables: they decode messages and write rows, or write small files together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from magnetar_spark.jobs.iceberg.columns import BAD_VALUE, MESSAGE_COLUMNS, REASON, is_empty
from magnetar_spark.jobs.iceberg.data_files import DataFileWriter, Target, WrittenFile
from magnetar_spark.jobs.nested_columns import changed
from magnetar_spark.payloads.payload import ERROR, RECORD, Payload

# Which rows a file has; they are parts of the names of tables, too.
RECORDS: Final = "records"
BAD: Final = "bad"
_BAD_COUNT: Final = "bad count"
_READ_COUNT: Final = "read count"
_DECODED: Final = "decoded"
_TOLD: Final = pa.schema([("kind", pa.string()), ("text", pa.string()), ("number", pa.int64())])
_TOLD_DDL: Final = "kind STRING, text STRING, number BIGINT"


@dataclass
class Written:
    """Files that were written of some messages. They do not count yet.

    Attributes:
        read: how many messages there were.
        bad: how many could not be decoded.
        example: one of these, with its place and what is wrong with it.
        files: by RECORDS and BAD.
    """

    read: int = 0
    bad: int = 0
    example: str = ""
    files: dict[str, list[WrittenFile]] = field(default_factory=lambda: {RECORDS: [], BAD: []})


def write_messages(
    messages: DataFrame,
    payload: Payload,
    *,
    records: Target | None,
    bad: Target | None,
    name: str,
    tasks: int,
) -> Written:
    """Decode messages, and write them as rows.

    Args:
        messages: with the columns of the source, headers included.
        records: where those go that can be decoded; None: nowhere.
        bad: where the others go; None: nowhere. They are counted in any case.
        name: begins the names of files.
        tasks: how many write at most.
    """
    columns = ["topic", "value", *MESSAGE_COLUMNS]
    decoded = messages.select(*columns, payload.decoded(F.col("value")).alias(_DECODED))
    record, error = F.col(f"{_DECODED}.{RECORD}"), F.col(f"{_DECODED}.{ERROR}")
    stored = F.struct(changed(record, payload.schema, _as_stored).alias(RECORD), error.alias(ERROR))
    rows = decoded.select(*columns, stored.alias(_DECODED)).coalesce(tasks)
    written = Written()
    for kind, text, number in rows.mapInArrow(_writing(records, bad, name), _TOLD_DDL).collect():
        if kind == _READ_COUNT:
            written.read += number
        elif kind == _BAD_COUNT:
            written.bad += number
            written.example = written.example or text
        else:
            written.files[kind].append(WrittenFile(text, number))
    return written


def write_together(
    spark: SparkSession,
    groups: Sequence[Sequence[FileScanTask]],
    metadata: TableMetadata,
    target: Target,
    *,
    name: str,
) -> list[WrittenFile]:
    """Write the rows of each group of files into few files."""
    told = spark.createDataFrame([(at,) for at in range(len(groups))], "number BIGINT")
    rows = told.repartition(len(groups)).mapInArrow(
        _joining(groups, metadata, target, name), _TOLD_DDL
    )
    return [WrittenFile(path, count) for _, path, count in rows.collect()]


def _as_stored(kind: DataType) -> Callable[[Column], Column] | None:
    return (lambda _: F.lit(True)) if is_empty(kind) else None


def _attempt(name: str) -> str:
    context = TaskContext.get()
    assert context is not None
    return f"{name}-{context.partitionId():05d}-{context.taskAttemptId()}"


def _writing(
    records: Target | None, bad: Target | None, name: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = _attempt(name)
        writers = {
            kind: DataFileWriter(target, f"{attempt}-{kind}")
            for kind, target in ((RECORDS, records), (BAD, bad))
            if target is not None
        }
        read = bad_count = 0
        example = None
        try:
            for batch in batches:
                decoded = batch.column(_DECODED)
                is_bad = pc.is_valid(pc.struct_field(decoded, ERROR))
                bad_rows = batch.filter(is_bad)
                read, bad_count = read + batch.num_rows, bad_count + bad_rows.num_rows
                if RECORDS in writers:
                    writers[RECORDS].write(_record_rows(batch.filter(pc.invert(is_bad))))
                if bad_rows.num_rows:
                    example = example or _example(bad_rows)
                    if BAD in writers:
                        writers[BAD].write(_bad_rows(bad_rows))
            files = [(kind, one) for kind, made in writers.items() for one in made.finish()]
        except BaseException:
            for made in writers.values():
                made.discard()
            raise
        yield _told(
            [
                (_READ_COUNT, "", read),
                (_BAD_COUNT, example or "", bad_count),
                *((kind, one.path, one.rows) for kind, one in files),
            ]
        )

    return write


def _joining(
    groups: Sequence[Sequence[FileScanTask]], metadata: TableMetadata, target: Target, name: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                writer = DataFileWriter(target, f"{_attempt(name)}-{number}")
                try:
                    for one in groups[number]:
                        # Each by itself, since several are read beside each other.
                        scan = ArrowScan(metadata, target.io, target.schema, AlwaysTrue())
                        for rows in scan.to_record_batches([one]):
                            writer.write(rows)
                    files = writer.finish()
                except BaseException:
                    writer.discard()
                    raise
                yield _told([(RECORDS, file.path, file.rows) for file in files])

    return write


def _record_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    record = pc.struct_field(batch.column(_DECODED), RECORD)
    names = [one.name for one in record.type]
    return pa.RecordBatch.from_arrays(
        [*record.flatten(), *_message_columns(batch)], [*names, *MESSAGE_COLUMNS.values()]
    )


def _bad_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    reasons = pc.struct_field(batch.column(_DECODED), ERROR)
    return pa.RecordBatch.from_arrays(
        [batch.column("value"), reasons, *_message_columns(batch)],
        [BAD_VALUE, REASON, *MESSAGE_COLUMNS.values()],
    )


def _message_columns(batch: pa.RecordBatch) -> list[pa.Array]:
    return [batch.column(name) for name in MESSAGE_COLUMNS]


def _example(batch: pa.RecordBatch) -> str:
    first = batch.slice(0, 1).to_pylist()[0]
    place = f"{first['topic']}/{first['partition']}/{first['offset']}"
    return f"{place}: {first[_DECODED][ERROR]}"


def _told(rows: Sequence[tuple[str, str, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(_TOLD.names, row, strict=True)) for row in rows], _TOLD
    )
