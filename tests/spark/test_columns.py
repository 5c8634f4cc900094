"""Columns to Arrow and back, compared with the SDK's own way of doing it, message by message."""

from __future__ import annotations

from array import array
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.column_batch import ColumnBatch
from magnetar.message import MessageColumns, ReceivedBatch
from magnetar.messaging.sending.batching import partition_of_key
from magnetar_core.batch import (
    CHECKSUM,
    FLAGS,
    HAS_VALUE_BITS,
    HEADER,
    MAGIC,
    NO_EVENT_TIME_MS,
    VERSION,
    Codec,
    decode,
    encode,
    encode_columns,
    encoded_properties,
    wrapped_records,
)
from magnetar_core.errors import ChecksumMismatch, InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.kafka_records.reading import Headers
from magnetar_core.kafka_records.writing import write_records
from magnetar_core.wire import broker_pb2
from magnetar_spark import arrow_in
from magnetar_spark.arrow_in import LargeMessage, Router, Rows, gathered
from magnetar_spark.arrow_out import RecordBatches
from magnetar_spark.errors import SinkError

TXN = TxnID.parse("0:1:7")
TEXTS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=5),
        st.none() | st.integers(0, 1 << 40),
        TEXTS,
    ),
    min_size=1,
    max_size=30,
)


def received(data: bytes, count: int, *, txn_id: TxnID | None = None) -> ReceivedBatch:
    wire = broker_pb2.DeliveredBatch(
        entry_id=100, num_messages=count, batch=data, append_time_ms=1_700_000_000_123
    )
    if txn_id is not None:
        wire.txn_id.CopyFrom(txn_id.to_wire())
    return ReceivedBatch("flights", 3, 1, wire)


def stored(rows: list[tuple[bytes | None, bytes | None, int | None, dict[str, str]]]) -> bytes:
    keys = [key for _, key, _, _ in rows]
    times = [NO_EVENT_TIME_MS if time is None else time for _, _, time, _ in rows]
    properties = [encoded_properties(headers) for _, _, _, headers in rows]
    return encode(
        [value for value, _, _, _ in rows],
        keys if set(keys) != {None} else None,
        event_times_ms=times if set(times) != {NO_EVENT_TIME_MS} else None,
        properties=properties if any(properties) else None,
    )


@given(ROWS, st.data())
def test_a_batch_reads_as_the_sdk_reads_it(rows: Any, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    columns = MessageColumns(received(stored(rows), len(rows), txn_id=TXN), start, stop)
    made = RecordBatches("flights", 3, include_headers=True)
    batch = made.of(columns)
    batch.validate(full=True)
    assert batch.schema == made.schema
    for row, message in zip(batch.to_pylist(), columns, strict=True):
        assert row["key"] == message.key
        assert row["value"] == message.value_or_none
        assert (row["topic"], row["partition"]) == ("flights", 3)
        assert row["offset"] == message.offset
        assert row["timestamp"].timestamp() == pytest.approx(message.append_time_ms / 1000)
        at = row["event_time"]
        assert message.event_time_ms == (at if at is None else round(at.timestamp() * 1000))
        assert row["txn_id"] == str(TXN)
        headers = {one["key"]: one["value"].decode() for one in row["headers"] or ()}
        assert headers == message.properties


@given(ROWS, st.permutations(["key", "value", "offset", "timestamp", "event_time", "txn_id"]))
def test_columns_that_are_named_are_those_of_the_whole(rows: Any, names: list[str]) -> None:
    columns = MessageColumns(received(stored(rows), len(rows), txn_id=TXN), 0, len(rows))
    whole = RecordBatches("flights", 3, include_headers=True).of(columns)
    made = RecordBatches("flights", 3, include_headers=True, columns=[*names[:3], "headers"])
    assert made.of(columns).equals(whole.select([*names[:3], "headers"]))


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches(codec: Codec) -> None:
    values = [b"v%d" % number for number in range(100)]
    columns = MessageColumns(received(encode(values, codec=codec), 100), 0, 100)
    batch = RecordBatches("flights", 3, include_headers=False).of(columns)
    assert batch.column("value").to_pylist() == values
    assert batch.column("key").null_count == batch.column("txn_id").null_count == 100


def test_a_batch_of_a_kafka_client_reads_as_the_sdk_reads_it() -> None:
    headers: dict[int, Headers] = {0: [(b"a", b"1"), (b"a", b"2")], 1: [(b"b", None)]}
    values = [b"v", None, b""]
    records = write_records(values, [b"k", None, b""], [5, 6, 7], headers, base_offset=0)
    data = wrapped_records(records, 3)
    columns = MessageColumns(received(data, 3), 0, 3)
    rows = RecordBatches("flights", 3, include_headers=True).of(columns).to_pylist()
    assert [row["value"] for row in rows] == values
    for row, message in zip(rows, columns, strict=True):
        assert (row["key"], row["value"]) == (message.key, message.value_or_none)
        assert row["offset"] == message.offset
        assert message.event_time_ms == round(row["event_time"].timestamp() * 1000)
        texts = {one["key"]: one["value"].decode() for one in row["headers"] or ()}
        assert texts == message.properties


def test_damage_is_told() -> None:
    data = bytearray(encode([b"one", b"two"]))
    data[-6] ^= 1
    made = RecordBatches("flights", 3, include_headers=False)
    with pytest.raises(ChecksumMismatch):
        made.of(MessageColumns(received(bytes(data), 2), 0, 2))


@pytest.mark.parametrize("offsets", [(0, 5, 3), (1, 2, 3), (0, 2, 1 << 20), (0, -1, 3)])
def test_offsets_that_lead_astray_are_refused(offsets: tuple[int, ...]) -> None:
    """A batch whose checksum fits, and which lies: nothing beyond its bytes is looked at."""
    data = encode_columns(2, (array("i", offsets).tobytes(), b"abc"))
    with pytest.raises(InvalidArgument):
        RecordBatches("flights", 3, include_headers=False).of(
            MessageColumns(received(data, 2), 0, 2)
        )


def arrow(rows: Any, *, partition: list[int | None] | None = None) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {
        "value": pa.array([value for value, _, _, _ in rows], pa.binary()),
        "key": pa.array([key for _, key, _, _ in rows], pa.binary()),
        "timestamp": pa.array(
            [None if time is None else time * 1000 for _, _, time, _ in rows],
            pa.timestamp("us", "UTC"),
        ),
        "headers": pa.array(
            [
                [{"key": name, "value": text.encode()} for name, text in headers.items()]
                for _, _, _, headers in rows
            ],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    if partition is not None:
        columns["partition"] = pa.array(partition, pa.int32())
    return pa.RecordBatch.from_pydict(columns)


@given(ROWS, st.integers(1, 5), st.booleans(), st.integers(1, 9))
def test_rows_go_where_the_sdk_would_send_them(
    rows: Any, partitions: int, named: bool, messages_max: int
) -> None:
    given = [n % partitions if n % 3 else None for n in range(len(rows))] if named else None
    expected: dict[int | None, list[Any]] = {}
    for number, (value, key, time, headers) in enumerate(rows):
        partition = None if given is None else given[number]
        if partition is None and key is not None and partitions > 1:
            partition = partition_of_key(key, partitions)
        row = (value, key, time, headers)
        expected.setdefault(partition, []).append(row)
    found: dict[int | None, list[Any]] = {}
    before, arrow_in.BATCH_MESSAGES_MAX = arrow_in.BATCH_MESSAGES_MAX, messages_max
    try:
        sent = list(
            Rows(arrow(rows, partition=given), include_headers=True).batches("t", partitions)
        )
    finally:
        arrow_in.BATCH_MESSAGES_MAX = before
    for partition, one in sent:
        assert isinstance(one, ColumnBatch)
        columns = decode(one.encode(Codec.NONE))
        count = columns.count
        assert count <= messages_max
        found.setdefault(partition, []).extend(
            zip(
                columns.values_or_none(),
                columns.keys() or [None] * count,
                map(columns.event_time_ms, range(count)),
                columns.properties() or [{}] * count,
                strict=True,
            )
        )
    assert found == expected


def test_a_batch_ends_where_it_is_full_and_a_large_message_goes_by_itself() -> None:
    large = bytes(300 << 10)
    values = [bytes(100 << 10)] * 5 + [large] + [b"last"]
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    sent = [one for _, one in Rows(batch, include_headers=False).batches("t", 1)]
    counts = [one.count if isinstance(one, ColumnBatch) else one for one in sent]
    assert counts == [2, 2, 1, LargeMessage(large, None, None, None), 1]


def test_a_batch_has_bits_only_where_it_needs_them() -> None:
    values = [b"a"] * 4 + [None] * 4
    keys = [None, b"k"] * 2 + [None, b""] * 2
    columns = {"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.binary())}
    before, arrow_in.BATCH_MESSAGES_MAX = arrow_in.BATCH_MESSAGES_MAX, 4
    try:
        rows = Rows(pa.RecordBatch.from_pydict(columns), include_headers=False)
        plain, other = [one for _, one in rows.batches("t", 1)]
    finally:
        arrow_in.BATCH_MESSAGES_MAX = before
    assert isinstance(plain, ColumnBatch)
    assert isinstance(other, ColumnBatch)
    assert (plain.value_bits, plain.key_bits) == (None, None)
    assert (other.value_bits, other.key_bits) == (b"\0", b"\x0a")


def test_a_large_message_without_a_value_and_bytes_under_a_null() -> None:
    """Arrow allows any bytes where an entry is null."""
    offsets = pa.py_buffer(np.array([0, 300 << 10, 300 << 10], np.int32))
    keys = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(bytes(300 << 10))])
    hidden = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\2"), *keys.buffers()[1:]])
    batch = pa.RecordBatch.from_pydict({"value": hidden, "key": keys})
    sent = [one for _, one in Rows(batch, include_headers=False).batches("t", 1)]
    assert sent[0] == LargeMessage(None, bytes(300 << 10), None, None)
    assert isinstance(sent[1], ColumnBatch)
    columns = decode(sent[1].encode(Codec.NONE))
    assert (columns.values(), columns.keys()) == ([b""], [b""])


@pytest.mark.parametrize(
    ("flags", "bits"),
    [(HAS_VALUE_BITS, b"\x02"), (HAS_VALUE_BITS, b"\x07"), (HAS_VALUE_BITS, b""), (32, b"")],
)
def test_bits_that_do_not_fit_are_refused(flags: int, bits: bytes) -> None:
    sound = encode_columns(2, (array("i", (0, 1, 1)).tobytes(), b"x"), value_bits=b"\1")
    made = RecordBatches("flights", 3, include_headers=False)
    batch = made.of(MessageColumns(received(sound, 2), 0, 2))
    assert batch.column("value").to_pylist() == [b"x", None]
    body = FLAGS.pack(flags) + sound[HEADER.size + FLAGS.size : -CHECKSUM.size - 1] + bits
    head = HEADER.pack(MAGIC, VERSION, Codec.NONE, 2, len(body), len(body), 0)
    data = head + body
    data += CHECKSUM.pack(google_crc32c.value(data))
    with pytest.raises(InvalidArgument):
        made.of(MessageColumns(received(data, 2), 0, 2))


def test_slices_and_texts() -> None:
    """What Spark gives may be a slice of something larger, and a text is its UTF-8."""
    batch = pa.RecordBatch.from_pydict({"value": pa.array(["a", "ß", "c", "d"])}).slice(1, 2)
    ((_, one),) = Rows(batch, include_headers=False).batches("t", 1)
    assert isinstance(one, ColumnBatch)
    assert decode(one.encode(Codec.NONE)).values() == ["ß".encode(), b"c"]


def test_small_record_batches_are_gathered() -> None:
    some = [pa.RecordBatch.from_pydict({"value": [b"x" * 10]}) for _ in range(10)]
    assert [one.num_rows for one in gathered(iter(some), 1)] == [1] * 10
    assert sum(one.num_rows for one in gathered(iter(some), 50)) == 10
    assert len(list(gathered(iter(some), 1 << 20))) == 1
    assert not list(gathered(iter([some[0].slice(0, 0)]), 1))


def test_rows_by_topic() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"value": [b"1", b"2", b"3"], "topic": ["a", "b", "a"]},
    )
    found = {
        topic: rows.values.to_pylist()
        for topic, rows in Router(None, include_headers=False).rows(batch)
    }
    assert found == {"a": [b"1", b"3"], "b": [b"2"]}


def at_us(*times: int | None) -> pa.Array:
    return pa.array(times, pa.timestamp("us", "UTC"))


def test_event_times_come_first_and_may_be_before_1970() -> None:
    columns = {
        "value": [b"v"] * 5,
        "event_time": at_us(5_000, None, None, -1_000, 0),
        "timestamp": at_us(7_000, 9_000, None, None, 1_000),
    }
    rows = Rows(pa.RecordBatch.from_pydict(columns), include_headers=False)
    assert rows.times_ms is not None
    assert rows.times_ms.to_pylist() == [5, 9, NO_EVENT_TIME_MS, -1, 0]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"value": [b"v"], "partition": pa.array([7], pa.int32())}, "has partitions 0 to 1"),
        ({"value": [b"v"], "partition": pa.array([-1], pa.int32())}, "has partitions 0 to 1"),
        ({"value": [b"v"], "headers": [[{"key": "a", "value": b"\xff"}]]}, "not UTF-8"),
        ({"value": [b"v"], "headers": [[{"key": None, "value": b"x"}]]}, "without a key"),
        ({"value": [b"v"], "headers": [[{"key": "a", "value": b""}] * 2]}, "twice"),
        ({"value": [b"v"], "headers": [[{"key": "a", "value": None}]]}, "without a value"),
        ({"value": [b"v", b"w"], "event_time": at_us(1_000, 1_001)}, "has microseconds"),
        ({"value": [b"v", b"w"], "timestamp": at_us(-1, None)}, "has microseconds"),
    ],
)
def test_rows_that_cannot_be_sent(columns: dict[str, Any], complaint: str) -> None:
    batch = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(SinkError, match=complaint):
        list(Rows(batch, include_headers=True).batches("t", 2))


@pytest.mark.parametrize("topics", [[None], ["a", None], [None, "a", "b"]])
def test_a_row_without_a_topic(topics: list[str | None]) -> None:
    columns = {"value": [b"v"] * len(topics), "topic": pa.array(topics, pa.string())}
    batch = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(SinkError, match="'topic' is null"):
        list(Router(None, include_headers=True).rows(batch))
