"""Converts batches as the broker stores them to Arrow record batches, without a loop over messages.

The columns of a batch have Arrow's layout, so Arrow arrays refer to the received bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from magnetar.message import MessageColumns
from magnetar_core.batch import (
    FLAGS,
    HAS_EVENT_TIMES,
    HAS_KEY_BITS,
    HAS_KEYS,
    HAS_PROPERTIES,
    HAS_VALUE_BITS,
    NO_EVENT_TIME_MS,
    open_body,
    read_flags,
)
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_spark.schema import source_schema

_OFFSET_BYTES = 4
_TIME_BYTES = 8


class _Constant:
    """One value as a column of any length: a slice of the longest that was asked for."""

    def __init__(self, scalar: pa.Scalar) -> None:
        self._scalar = scalar
        self._array = pa.repeat(scalar, 0)

    def of(self, count: int) -> pa.Array:
        if len(self._array) < count:
            self._array = pa.repeat(self._scalar, max(count, 2 * len(self._array)))
        return self._array.slice(0, count)


class RecordBatches:
    """Makes record batches of a partition's messages.

    Spark compares their schema with its schema, so Spark gives the schema.
    """

    def __init__(
        self, topic: str, partition: int, *, include_headers: bool, columns: Sequence[str] = ()
    ) -> None:
        every: pa.Schema = to_arrow_schema(
            source_schema(include_headers=include_headers), timezone="UTC"
        )
        names = columns or every.names
        self.schema: pa.Schema = pa.schema([every.field(name) for name in names])
        self._types = dict(zip(every.names, every.types, strict=True))
        makers: dict[str, _Maker] = {
            "key": self._keys,
            "value": self._values,
            "topic": self._topics,
            "partition": self._partitions,
            "offset": self._offsets,
            "timestamp": self._timestamps,
            "event_time": self._event_times,
            "txn_id": self._txn_ids_of,
            "headers": self._headers,
        }
        self._makers = [makers[name] for name in names]
        self._topic = _Constant(pa.scalar(topic, self._types["topic"]))
        self._partition = _Constant(pa.scalar(partition, self._types["partition"]))
        self._nulls = {
            name: _Constant(pa.scalar(None, self._types[name]))
            for name in ("key", "event_time", "txn_id", "headers")
            if name in self._types
        }
        self._txn_id: TxnID | None = None
        self._txn_ids = self._nulls["txn_id"]

    def of(self, columns: MessageColumns) -> pa.RecordBatch:
        """Return the messages as a record batch.

        Raises:
            ChecksumMismatch: the batch is damaged.
            InvalidArgument: the batch is damaged.
        """
        body = _Body(columns.batch.data, columns.batch.body_bytes_max)
        arrays = [make(columns, body) for make in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _keys(self, columns: MessageColumns, body: _Body) -> pa.Array:
        if body.keys is None:
            return self._nulls["key"].of(len(columns))
        return _wanted(body.keys, columns)

    def _values(self, columns: MessageColumns, body: _Body) -> pa.Array:
        return _wanted(body.values, columns)

    def _topics(self, columns: MessageColumns, body: _Body) -> pa.Array:
        return self._topic.of(len(columns))

    def _partitions(self, columns: MessageColumns, body: _Body) -> pa.Array:
        return self._partition.of(len(columns))

    def _offsets(self, columns: MessageColumns, body: _Body) -> pa.Array:
        first = columns.first_offset
        return pa.array(np.arange(first, first + len(columns), dtype=np.int64))

    def _timestamps(self, columns: MessageColumns, body: _Body) -> pa.Array:
        time_us = pa.scalar(columns.append_time_ms * 1000, pa.int64())
        return pa.repeat(time_us, len(columns)).view(self._types["timestamp"])

    def _event_times(self, columns: MessageColumns, body: _Body) -> pa.Array:
        if body.event_times_ms is None:
            return self._nulls["event_time"].of(len(columns))
        absent = body.event_times_ms == NO_EVENT_TIME_MS
        times = pa.array(body.event_times_ms * 1000, mask=absent)
        return _wanted(times.view(self._types["event_time"]), columns)

    def _txn_ids_of(self, columns: MessageColumns, body: _Body) -> pa.Array:
        txn_id = columns.txn_id
        if txn_id != self._txn_id:
            self._txn_id = txn_id
            self._txn_ids = (
                self._nulls["txn_id"]
                if txn_id is None
                else _Constant(pa.scalar(str(txn_id), self._types["txn_id"]))
            )
        return self._txn_ids.of(len(columns))

    def _headers(self, columns: MessageColumns, body: _Body) -> pa.Array:
        """The one column that takes a loop, where there are headers."""
        if body.properties is None:
            return self._nulls["headers"].of(len(columns))
        rows = [
            [{"key": name, "value": str(text).encode()} for name, text in one.items()] or None
            for one in body.properties[columns.start : columns.stop]
        ]
        return pa.array(rows, type=self._types["headers"])


def _wanted(array: pa.Array, columns: MessageColumns) -> pa.Array:
    """Return the range's rows of a whole batch's column."""
    count = len(columns)
    return array if len(array) == count else array.slice(columns.start, count)


class _Body:
    """A batch's columns as arrays around its bytes.

    Raises:
        ChecksumMismatch, InvalidArgument: damaged.
    """

    def __init__(self, data: bytes, body_bytes_max: int) -> None:
        self.count, body = open_body(data, body_bytes_max=body_bytes_max)
        try:
            self._read(body)
        except (ValueError, IndexError) as error:
            raise InvalidArgument("the batch's columns do not fit its header") from error

    def _read(self, body: memoryview) -> None:
        flags = read_flags(body)
        self._body = body
        self._at = FLAGS.size
        values, is_empty = self._column()
        self.keys: pa.Array | None = None
        self.event_times_ms: np.ndarray | None = None
        self.properties: list[dict[str, str]] | None = None
        if flags & HAS_KEYS:
            self.keys, is_empty_key = self._column()
        if flags & HAS_EVENT_TIMES:
            size = _TIME_BYTES * self.count
            self.event_times_ms = np.frombuffer(self._take(size), dtype="<i8")
        if flags & HAS_PROPERTIES:
            texts, _ = self._column()
            self.properties = _properties_of(texts)
        if flags & HAS_VALUE_BITS:
            values = self._with_bits(values, is_empty)
        self.values: pa.Array = values
        if flags & HAS_KEY_BITS:
            self.keys = self._with_bits(self.keys, is_empty_key)
        elif self.keys is not None:
            self.keys = _nulls_where(self.keys, is_empty_key)
        if self._at != len(body):
            raise ValueError("bytes left over")

    def _take(self, size: int) -> memoryview:
        taken = self._body[self._at : self._at + size]
        if len(taken) != size:
            raise ValueError("a column is cut short")
        self._at += size
        return taken

    def _column(self) -> tuple[pa.Array, np.ndarray]:
        """The next column, and which of its entries are empty."""
        stored = self._take(_OFFSET_BYTES * (self.count + 1))
        offsets = np.frombuffer(stored, dtype="<i4")
        if offsets.ctypes.data % _OFFSET_BYTES:
            offsets = offsets.copy()  # Arrow aligns numbers for processors.
        lengths = np.diff(offsets)
        if offsets[0] != 0 or lengths.min() < 0:
            raise ValueError("offsets out of range")
        data = self._take(int(offsets[-1]))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), self.count, buffers), lengths == 0

    def _with_bits(self, array: pa.Array, is_empty: np.ndarray) -> pa.Array:
        """Return a column whose entries are null as the next bits say."""
        stored = self._take(-(-self.count // 8))
        bits = np.unpackbits(np.frombuffer(stored, dtype=np.uint8), bitorder="little")
        if bits[self.count :].any() or not is_empty[bits[: self.count] == 0].all():
            raise ValueError("bits that do not fit")
        buffers = [pa.py_buffer(stored), *array.buffers()[1:]]
        return pa.Array.from_buffers(array.type, self.count, buffers)


def _nulls_where(array: pa.Array, absent: np.ndarray) -> pa.Array:
    if not absent.any():
        return array
    bits = np.packbits(~absent, bitorder="little")
    return pa.Array.from_buffers(array.type, len(array), [pa.py_buffer(bits), *array.buffers()[1:]])


def _properties_of(texts: pa.Array) -> list[dict[str, str]]:
    try:
        parsed = [json.loads(text) if text else {} for text in texts.to_pylist()]
    except ValueError as error:
        raise InvalidArgument("the batch's properties are damaged") from error
    if not all(isinstance(one, dict) for one in parsed):
        raise InvalidArgument("the batch's properties are damaged")
    return parsed


# One column of the batch's messages that are in the range.
_Maker = Callable[[MessageColumns, _Body], pa.Array]
