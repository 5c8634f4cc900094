"""Both worlds read each other: messages keep what they say on the way over and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kafka_clients.harness import KafkaWorld, batch, fetch, fetched, produce, run
from tests.kafka_clients.harness import Record as Row

from magnetar.message import MessageColumns, ReceivedBatch
from magnetar_broker.commands.views import messages_of_batch
from magnetar_broker.dispatch.key_ranges import EMPTY_KEY_SLOT
from magnetar_broker.dispatch.key_slots import slots_of
from magnetar_cli.message_lines import encode_json
from magnetar_core.batch import (
    NO_EVENT_TIME_MS,
    Codec,
    decode,
    encode,
    encoded_properties,
    split,
    wrapped_records,
)
from magnetar_core.errors import InvalidArgument, MessageTooLarge
from magnetar_core.kafka_records.reading import Records, read_records
from magnetar_core.kafka_records.writing import write_records
from magnetar_core.record_batch import NO_TIMESTAMP, check_checksum, read_head
from magnetar_core.wire import broker_pb2
from magnetar_kafka.transcoding import records_of_batch

LIMIT = 1 << 20
APPENDED_MS = 1_700_000_000_123
TEXTS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
MESSAGES = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=5),
        st.none() | st.integers(-(1 << 62), 1 << 62),
        TEXTS,
    ),
    min_size=1,
    max_size=12,
)


def native(rows: Any, codec: Codec = Codec.NONE) -> bytes:
    return encode(
        [value for value, *_ in rows],
        [key for _, key, *_ in rows],
        event_times_ms=[
            NO_EVENT_TIME_MS if time_ms is None else time_ms for _, _, time_ms, _ in rows
        ],
        properties=[encoded_properties(properties) for *_, properties in rows],
        codec=codec,
    )


def kafka(*rows: Row) -> bytes:
    return wrapped_records(batch(of=rows), len(rows))


def received(data: bytes, count: int) -> MessageColumns:
    wire = broker_pb2.DeliveredBatch(
        entry_id=10, num_messages=count, batch=data, append_time_ms=APPENDED_MS
    )
    return MessageColumns(ReceivedBatch("t", 0, 1, wire), 0, count)


@settings(max_examples=60)
@given(MESSAGES, st.sampled_from(list(Codec)))
def test_messages_of_ours_come_back_from_kafka(rows: Any, codec: Codec) -> None:
    made = records_of_batch(
        native(rows, codec), len(rows), base_offset=10, append_time_ms=APPENDED_MS
    )
    check_checksum(made, read_head(made))
    columns = decode(wrapped_records(made, len(rows)))
    found = [
        (
            *columns.row(place)[1::-1],
            columns.event_time_ms(place),
            columns.row(place).properties,
        )
        for place in range(columns.count)
    ]
    # A message without an event time has that of its storage; -1 means none in Kafka.
    assert found == [
        (value, key, APPENDED_MS if time_ms is None else None if time_ms == -1 else time_ms, texts)
        for value, key, time_ms, texts in rows
    ]


def test_the_first_messages_of_a_batch_alone() -> None:
    rows = [(b"%d" % n, b"k", n, {"n": str(n)}) for n in range(5)]
    made = records_of_batch(native(rows), 2, base_offset=10, append_time_ms=0)
    assert read_records(made, bytes_max=LIMIT) == Records(
        [b"0", b"1"], [b"k", b"k"], [0, 1], {0: [(b"n", b"0")], 1: [(b"n", b"1")]}
    )
    assert read_head(made).base_offset == 10


ROWS = (
    Row(5, b"k", b"v", ((b"h", b"1"), (b"h", b"2"), (b"b", b"\xff"), (b"n", None))),
    Row(NO_TIMESTAMP, b"k", None),
    Row(1 << 45, b"", b""),
    Row(-7, None, None),
)


def test_the_sdk_and_the_command_line_read_messages_of_kafka() -> None:
    columns = received(kafka(*ROWS), 4)
    messages = list(columns)
    assert [(one.key, one.value_or_none) for one in messages] == [
        (b"k", b"v"),
        (b"k", None),
        (b"", b""),
        (None, None),
    ]
    assert [one.event_time_ms for one in messages] == [5, None, 1 << 45, -7]
    assert [one.offset for one in messages] == [10, 11, 12, 13]
    assert messages[0].properties == {"h": "2", "b": "data:;base64,/w==", "n": "data:null"}
    assert messages[1].properties == {}
    lines = [json.loads(line) for line in encode_json(columns).splitlines()]
    assert [(one.get("key"), one["value"]) for one in lines] == [
        ("k", "v"),
        ("k", None),
        ("", ""),
        (None, None),
    ]


def test_spark_reads_messages_of_kafka() -> None:
    arrow_out = pytest.importorskip("magnetar_spark.arrow_out")
    rows = arrow_out.RecordBatches("t", 0, include_headers=True).of(received(kafka(*ROWS), 4))
    rows.validate(full=True)
    assert rows.column("key").to_pylist() == [b"k", b"k", b"", None]
    assert rows.column("value").to_pylist() == [b"v", None, b"", None]
    times = rows.column("event_time").cast("int64").to_pylist()
    assert times == [5_000, None, (1 << 45) * 1_000, -7_000]
    headers = rows.column("headers").to_pylist()
    assert headers[0][0] == {"key": "h", "value": b"2"}
    assert headers[1:] == [None] * 3


def test_a_batch_without_keys_headers_and_timestamps_has_no_such_columns() -> None:
    columns = decode(kafka(Row(NO_TIMESTAMP, None, b"a"), Row(NO_TIMESTAMP, None, b"b")))
    assert (columns.keys(), columns.properties(), columns.event_times_ms) == (None, None, None)
    assert (columns.values(), columns.value_bits) == ([b"a", b"b"], None)


def test_peek_shows_messages_of_kafka() -> None:
    shown = [message for _, message in messages_of_batch(kafka(*ROWS))]
    assert [one.null_value for one in shown] == [False, True, False, True]
    assert [one.HasField("key") for one in shown] == [True, True, True, False]


def test_slots_of_keys_are_those_of_our_batches() -> None:
    rows: Any = [(b"v", key, None, {}) for key in (b"a", b"b", None, b"")]
    ours, theirs = slots_of(native(rows)), slots_of(kafka(*(Row(0, key, v) for v, key, *_ in rows)))
    assert ours == theirs
    assert slots_of(kafka(Row(0, None, b"v"))) == EMPTY_KEY_SLOT


def test_a_single_message_of_kafkas_batch_is_one_of_ours() -> None:
    """Pickling a message makes it."""
    columns = decode(kafka(*ROWS))
    one = decode(columns.single(1))
    assert (one.values_or_none(), one.keys(), one.event_time_ms(0)) == ([None], [b"k"], None)


def test_a_message_of_kafka_that_is_larger_than_its_reader_allows() -> None:
    """Compressed, it is small; its size is not known before."""
    zstandard = pytest.importorskip("zstandard")
    made = bytearray(write_records([bytes(50_000)], None, [0], {}, base_offset=0))
    packed = bytes(made[:61]) + zstandard.compress(bytes(made[61:]))
    made = bytearray(packed)
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[22] = 4
    data = wrapped_records(bytes(made), 1)
    assert len(data) < 200
    wire = broker_pb2.DeliveredBatch(num_messages=1, batch=data)
    received = ReceivedBatch("t", 0, 1, wire, message_bytes_max=1_000)
    with pytest.raises(MessageTooLarge, match="raise message_bytes_max"):
        received.check_sizes([(0, 0)], 1_000)
    received.check_sizes([(0, 0)], 50_000)
    with pytest.raises(MessageTooLarge):
        decode(data, body_bytes_max=1_000)


def test_records_that_contradict_the_header_around_them() -> None:
    with pytest.raises(InvalidArgument, match="do not fit its header"):
        decode(wrapped_records(batch(b"a", b"b"), 3))
    far = batch(of=[Row((1 << 63) - 1, None, b"a"), Row(0, None, b"b")])
    # The first timestamp is the largest, and the second adds to it.
    with pytest.raises(InvalidArgument, match="64 bits"):
        decode(wrapped_records(moved(far, 100), 2))


def moved(made: bytes, last_ms: int) -> bytes:
    """The same records behind another first timestamp, to which the second adds much."""
    records = b"\x0c\0\0\0\1\1\0" + b"\x0e\0\xc8\1\2\1\1\0"
    head = bytearray(made[:61])
    head[8:12] = (len(records) + 49).to_bytes(4, "big")
    return bytes(head) + records


def test_tombstones_and_empty_keys_pass_between_clients() -> None:
    async def scenario(world: KafkaWorld) -> None:
        from tests.broker.harness import end, send, txn
        from tests.kafka_clients.test_fetch import opened

        from magnetar_kafka.wire import apis

        client = await world.connect()
        await client.ask(apis.PRODUCE, produce(batch(of=ROWS[:2])))
        command = send(b"", b"")
        command.batch = encode([None, b"v"], [b"", None], codec=Codec.ZSTD)
        await world.client.ask(command)
        whole = encode([None], [bytes(300)])
        parts = split(whole, 200)
        for number, one in enumerate(parts):
            command = send(b"", sequence=number, in_txn=txn(1))
            command.batch = one
            await world.client.ask(command)
        await world.client.ask(end(txn(1), counts={1: len(parts)}))
        (part,) = fetched(await client.ask(apis.FETCH, fetch(max_bytes=1 << 20)))
        data = part["records"]
        assert opened(data) == [(0, b"v"), (1, None), (2, None), (3, b"v")]
        (part,) = fetched(await client.ask(apis.FETCH, fetch(4, max_bytes=1 << 20)))
        assert opened(part["records"]) == [(3 + len(parts), None)]

    run(scenario)
