"""Converts Arrow record batches to batches as the broker stores them, without a loop over messages.

Arrow sorts the rows by topic and partition. The columns are then cut where a batch is full.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.column_batch import BytesColumn, ColumnBatch
from magnetar_core.batch import NO_EVENT_TIME_MS, encoded_properties
from magnetar_spark.content import Content, binary_offsets, content_of
from magnetar_spark.errors import SinkError

BATCH_BYTES_MAX = 256 << 10
BATCH_MESSAGES_MAX = 1 << 14
# What a message costs beside its bytes; see magnetar.messaging.sending.batching.
MESSAGE_OVERHEAD_BYTES = 16
ANY_PARTITION = -1


@dataclass(frozen=True)
class LargeMessage:
    """A message that is too large for a batch and has to be sent alone."""

    value: bytes | None
    key: bytes | None
    event_time_ms: int | None
    properties: Mapping[str, str] | None


def gathered(batches: Iterator[pa.RecordBatch], bytes_min: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in fewer and larger record batches, of at least `bytes_min` bytes.

    Otherwise rows of many partitions would make many small batches.
    """
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            some.append(batch)
            size += batch.nbytes
        if size >= bytes_min:
            yield _joined(some)
            some, size = [], 0
    if some:
        yield _joined(some)


def _joined(some: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(some) == 1:
        return some[0]
    return pa.Table.from_batches(some).combine_chunks().to_batches()[0]


class Router:
    """Groups rows by topic.

    Args:
        topic: the topic of all rows; by default the column names it.
    """

    def __init__(self, topic: str | None, *, include_headers: bool) -> None:
        self._topic = topic
        self._include_headers = include_headers

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Rows]]:
        """Return the rows of each topic, in order.

        Raises:
            SinkError: a row names no topic, or has a value that a message cannot hold.
        """
        for topic, some in self._by_topic(batch):
            yield topic, Rows(some, include_headers=self._include_headers)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, batch
            return
        column = batch.column("topic")
        if column.null_count:
            raise SinkError("a row's column 'topic' is null, and there is no option 'topic'")
        names = pc.unique(column).to_pylist()
        if len(names) == 1:
            yield names[0], batch
            return
        for name in names:
            yield name, batch.filter(pc.equal(column, name))


def _partitions_of_keys(keys: pa.Array, count: int) -> np.ndarray:
    """Apply magnetar.messaging.sending.batching.partition_of_key, once for each different key."""
    encoded = keys.dictionary_encode()
    checksum = google_crc32c.value
    of_each = np.fromiter(
        (checksum(key) % count for key in _binary(encoded.dictionary).to_pylist()),
        dtype=np.int32,
        count=len(encoded.dictionary),
    )
    of_each = np.append(of_each, np.int32(ANY_PARTITION))
    found: np.ndarray = of_each[encoded.indices.fill_null(len(of_each) - 1).to_numpy()]
    return found


class Rows:
    """The columns to send to a topic.

    Raises:
        SinkError: a message cannot hold a value.
    """

    def __init__(self, batch: pa.RecordBatch, *, include_headers: bool) -> None:
        names = batch.schema.names
        values = batch.column("value")
        headers = batch.column("headers") if include_headers and "headers" in names else None
        if headers is not None and not len(headers.flatten()):
            headers = None
        # Without nulls; which of them are absent, if any is.
        self.values = _binary(values).fill_null(b"")
        self.absent_values = _some(values.is_null())
        # With nulls, as they were given.
        self._given_keys = _where_given(batch, "key")
        self.keys: pa.Array | None = None
        # Which keys are empty, if any is. A missing key is not.
        self.empty_keys: np.ndarray | None = None
        if self._given_keys is not None:
            keys = _binary(self._given_keys)
            self.keys = keys.fill_null(b"")
            self.empty_keys = _some(pc.equal(pc.binary_length(keys), 0).fill_null(False))
        self.partitions = _where_given(batch, "partition")
        self.times_ms = times_ms(batch)
        self.properties = None if headers is None else _properties(headers)

    def content(self, topic: str) -> Content:
        """Return the fingerprint of the rows."""
        return content_of(
            topic,
            self.values,
            self.keys,
            self.partitions,
            self.times_ms,
            self.properties,
            absent_values=self.absent_values,
            empty_keys=self.empty_keys,
        )

    def batches(
        self, topic: str, partition_count: int
    ) -> Iterator[tuple[int | None, ColumnBatch | LargeMessage]]:
        """Yield batches to send, each with its partition, in order for each partition.

        The partition is None when the producer may choose it. The CRC-32C of a message's key
        determines its partition, as with every client.

        Raises:
            SinkError: a row names a partition that does not exist.
        """
        partitions = self._partitions(topic, partition_count)
        if partitions is None:
            for one in self.cut():
                yield None, one
            return
        rows = self
        if (partitions == partitions[0]).all():
            numbers, bounds = partitions[:1], [0, len(partitions)]
        else:
            order = np.argsort(partitions, kind="stable")
            ordered = partitions[order]
            starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
            numbers, bounds = ordered[starts], [*starts.tolist(), len(ordered)]
            rows = self._taken(pa.array(order))
        for place, number in enumerate(numbers.tolist()):
            partition = None if number == ANY_PARTITION else number
            for one in rows.cut(bounds[place], bounds[place + 1]):
                yield partition, one

    def _partitions(self, topic: str, count: int) -> np.ndarray | None:
        """Return the partition of each row; None when the producer may choose all of them."""
        given = self.partitions
        if count == 1 and given is None:
            return None
        if self.keys is None or count == 1:
            partitions = np.full(len(self.values), ANY_PARTITION, dtype=np.int32)
        else:
            assert self._given_keys is not None
            partitions = _partitions_of_keys(self._given_keys, count)
        if given is not None:
            named = given.fill_null(ANY_PARTITION).to_numpy()
            absent = given.is_null().to_numpy(zero_copy_only=False)
            wrong = ~absent & ((named < 0) | (named >= count))
            if wrong.any():
                raise SinkError(
                    f"a row's column 'partition' says {named[wrong][0]}, and {topic} has partitions"
                    f" 0 to {count - 1}"
                )
            partitions = np.where(absent, partitions, named)
        if (partitions == ANY_PARTITION).all():
            return None
        return partitions

    def _taken(self, order: pa.Array) -> Rows:
        """The same rows in another order, to be cut."""
        rows = Rows.__new__(Rows)
        for name in ("values", "keys", "times_ms", "properties"):
            column = getattr(self, name)
            setattr(rows, name, None if column is None else column.take(order))
        for name in ("absent_values", "empty_keys"):
            which = getattr(self, name)
            setattr(rows, name, None if which is None else which[order.to_numpy()])
        return rows

    def cut(self, start: int = 0, stop: int | None = None) -> Iterator[ColumnBatch | LargeMessage]:
        """Yield consecutive rows as batches."""
        stop = len(self.values) if stop is None else stop
        columns = [one for one in (self.values, self.keys, self.properties) if one is not None]
        ends = MESSAGE_OVERHEAD_BYTES * np.arange(stop - start + 1, dtype=np.int64)
        for column in columns:
            ends += binary_offsets(column)[start : stop + 1]
        count = stop - start
        at = 0
        while at < count:
            limit = ends[at] + BATCH_BYTES_MAX
            end = int(np.searchsorted(ends, limit, side="right")) - 1
            end = min(end, at + BATCH_MESSAGES_MAX, count)
            if end == at:
                yield self._large(start + at)
                end = at + 1
            else:
                yield self._batch(start + at, start + end)
            at = end

    def _batch(self, start: int, stop: int) -> ColumnBatch:
        times = None
        if self.times_ms is not None:
            times = memoryview(self.times_ms.to_numpy()[start:stop].tobytes())
        return ColumnBatch(
            stop - start,
            _bytes_column(self.values, start, stop),
            None if self.keys is None else _bytes_column(self.keys, start, stop),
            times,
            None if self.properties is None else _bytes_column(self.properties, start, stop),
            value_bits=self._value_bits(start, stop),
            key_bits=self._key_bits(start, stop),
        )

    def _value_bits(self, start: int, stop: int) -> bytes | None:
        if self.absent_values is None or not self.absent_values[start:stop].any():
            return None
        return np.packbits(~self.absent_values[start:stop], bitorder="little").tobytes()

    def _key_bits(self, start: int, stop: int) -> bytes | None:
        if self.empty_keys is None or not self.empty_keys[start:stop].any():
            return None
        lengths = np.diff(binary_offsets(self.keys)[start : stop + 1])
        present = (lengths > 0) | self.empty_keys[start:stop]
        return np.packbits(present, bitorder="little").tobytes()

    def _large(self, at: int) -> LargeMessage:
        properties = None if self.properties is None else self.properties[at].as_py()
        return LargeMessage(
            None if _is_at(self.absent_values, at) else self.values[at].as_py(),
            self._key(at),
            self._time_ms(at),
            json.loads(properties) if properties else None,
        )

    def _key(self, at: int) -> bytes | None:
        key: bytes = b"" if self.keys is None else self.keys[at].as_py()
        return key if key or _is_at(self.empty_keys, at) else None

    def _time_ms(self, at: int) -> int | None:
        time_ms = NO_EVENT_TIME_MS if self.times_ms is None else self.times_ms[at].as_py()
        return None if time_ms == NO_EVENT_TIME_MS else time_ms


def _binary(array: pa.Array) -> pa.Array:
    """Texts are their UTF-8; large offsets become small ones."""
    if array.type == pa.binary():
        return array
    return array.cast(pa.binary())


def _bytes_column(array: pa.Array, start: int, stop: int) -> BytesColumn:
    offsets = binary_offsets(array)[start : stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    buffer = array.buffers()[2]
    data = memoryview(b"") if buffer is None else memoryview(buffer)[first:last]
    return BytesColumn((offsets - offsets[0]).tobytes(), data)


def _where_given(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column that says something of some row."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    return None if column.null_count == len(column) else column


def _some(which: pa.Array) -> np.ndarray | None:
    """Return which rows are meant; None: no row is."""
    found: np.ndarray = which.to_numpy(zero_copy_only=False)
    return found if found.any() else None


def _is_at(which: np.ndarray | None, at: int) -> bool:
    return which is not None and bool(which[at])


def times_ms(batch: pa.RecordBatch) -> pa.Array | None:
    """Return the event times in milliseconds; NO_EVENT_TIME_MS means none.

    Raises:
        SinkError: a message cannot hold a time.
    """
    found = [_where_given(batch, name) for name in ("event_time", "timestamp")]
    given = [one for one in found if one is not None]
    if not given:
        return None
    times = given[0] if len(given) == 1 else pc.coalesce(*given)
    us = times.cast(pa.timestamp("us", times.type.tz)).view(pa.int64())
    ms, rest = np.divmod(us.fill_null(0).to_numpy(), 1000)
    if rest.any():
        raise SinkError(
            "a row's event time has microseconds, and a message keeps milliseconds: say"
            " date_trunc('millisecond', event_time), or of 'timestamp' where that is the column"
        )
    ms[us.is_null().to_numpy(zero_copy_only=False)] = NO_EVENT_TIME_MS
    return pa.array(ms)


def _properties(headers: pa.Array) -> pa.Array:
    """Return headers as JSON: this column alone takes a loop, where there are headers.

    Raises:
        SinkError: a header has no name or value, comes twice, or is not a text.
    """
    texts = []
    for row in headers.to_pylist():
        if not row:
            texts.append(b"")
            continue
        named: dict[str, str] = {}
        for one in row:
            if one is None or one["key"] is None or one["value"] is None:
                raise SinkError(
                    "a row's column 'headers' has one without a key or without a value: give it an"
                    " empty one, or leave it out"
                )
            if one["key"] in named:
                raise SinkError(
                    f"a row's column 'headers' has {one['key']!r} twice: a message's properties"
                    " have one text for each name"
                )
            try:
                named[one["key"]] = one["value"].decode()
            except UnicodeDecodeError as error:
                raise SinkError(
                    f"the header {one['key']!r} is not UTF-8: a message's properties are texts"
                ) from error
        texts.append(encoded_properties(named))
    return pa.array(texts, type=pa.binary())
