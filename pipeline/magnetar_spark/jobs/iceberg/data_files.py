"""Writes rows as Parquet files of a table, which count when a commit names them.

Source: Apache Iceberg, Table Spec: Parquet, Partition Transforms.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import LocationProvider
from pyiceberg.transforms import DayTransform

from magnetar_spark.errors import OptionError
from magnetar_spark.jobs.iceberg.columns import TIME

# What a file has in memory before it is written: a row group.
ROW_GROUP_BYTES: Final = 32 << 20
# A task has files of so many days open. Messages come in the order of their days, nearly.
OPEN_MAX: Final = 4
_DAY_US: Final = 24 * 3600 * 1_000_000
_CODEC: Final = "write.parquet.compression-codec"


@dataclass(frozen=True)
class Target:
    """Table into which a task writes files.

    Attributes:
        file_bytes: about how large a file becomes, at most.
        codec: how files are compressed.
    """

    schema: Schema
    spec: PartitionSpec
    locations: LocationProvider
    io: FileIO
    codec: str
    file_bytes: int


@dataclass(frozen=True)
class WrittenFile:
    """A file that is complete."""

    path: str
    rows: int


def target_of(table: Table, file_bytes: int) -> Target:
    """Return a table as the target of tasks.

    Raises:
        OptionError: its rows are not partitioned by the day of their storage.
    """
    schema, spec = table.schema(), table.spec()
    time_id = schema.find_field(TIME).field_id
    if any(
        one.source_id != time_id or not isinstance(one.transform, DayTransform)
        for one in spec.fields
    ):
        raise OptionError(
            f"the table {'.'.join(table.name())} is partitioned by something else than the day of"
            f" {TIME}, which this job does not write"
        )
    codec = table.properties.get(_CODEC, "zstd").lower()
    return Target(
        *(schema, spec, table.location_provider(), table.io),
        "none" if codec == "uncompressed" else codec,
        file_bytes,
    )


class DataFileWriter:
    """Writes batches of rows, each day to files of its own.

    Args:
        target: the table.
        name: begins the names of all files; no other attempt at anything has it.
    """

    def __init__(self, target: Target, name: str) -> None:
        self._target = target
        self._name = name
        self._schema: pa.Schema = schema_to_pyarrow(target.schema)
        self._open: OrderedDict[int | None, _OpenFile] = OrderedDict()
        self._written: list[WrittenFile] = []
        self._count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows that have the table's columns, in whatever order."""
        rows = pa.RecordBatch.from_arrays(
            [_cast(batch.column(one.name), one.type) for one in self._schema], schema=self._schema
        )
        for day, of_day in self._by_day(rows):
            self._file_of(day).write(of_day)
            if self._open[day].byte_count >= self._target.file_bytes:
                self._close(day)

    def finish(self) -> list[WrittenFile]:
        """Complete all files, and return them."""
        for day in [*self._open]:
            self._close(day)
        return self._written

    def discard(self) -> None:
        """Remove the files that were written."""
        paths = [one.path for one in self._written]
        while self._open:
            _, file = self._open.popitem()
            paths.append(file.path)
            with suppress(Exception):
                file.close()
        discard(self._target.io, paths)

    def _by_day(self, rows: pa.RecordBatch) -> Iterator[tuple[int | None, pa.RecordBatch]]:
        if not rows.num_rows:
            return
        if not self._target.spec.fields:
            yield None, rows
            return
        # Before 1970 it would round up; nothing was stored then.
        days = pc.divide(rows.column(self._schema.get_field_index(TIME)).cast(pa.int64()), _DAY_US)
        for day in pc.unique(days).to_pylist():
            yield day, rows.filter(pc.equal(days, day))

    def _file_of(self, day: int | None) -> _OpenFile:
        file = self._open.get(day)
        if file is None:
            if len(self._open) == OPEN_MAX:
                self._close(next(iter(self._open)))
            self._count += 1
            file = _OpenFile(self._target, self._location(day), self._schema)
            self._open[day] = file
        self._open.move_to_end(day)
        return file

    def _location(self, day: int | None) -> str:
        name, target = f"{self._name}-{self._count:05d}.parquet", self._target
        if day is None:
            return target.locations.new_data_location(name)
        (field,) = target.spec.fields
        key = PartitionKey([PartitionFieldValue(field, day)], target.spec, target.schema)
        return target.locations.new_data_location(name, key)

    def _close(self, day: int | None) -> None:
        file = self._open.pop(day)
        file.close()
        self._written.append(WrittenFile(file.path, file.rows))


class _OpenFile:
    """A file that is being written."""

    def __init__(self, target: Target, path: str, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._stream: Any = target.io.new_output(path).create()
        self._writer = pq.ParquetWriter(
            self._stream, schema, compression=target.codec, store_decimal_as_integer=True
        )

    @property
    def byte_count(self) -> int:
        """Bytes that are in the file already."""
        return int(self._stream.tell())

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        with self._stream:
            self._flush()
            self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting, self._waiting_bytes = [], 0


def discard(io: FileIO, paths: list[str]) -> None:
    """Remove files that do not count. A file that stays is harmless."""
    for path in paths:
        with suppress(Exception):
            io.delete(path)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else pc.cast(column, kind)
