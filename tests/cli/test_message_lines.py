"""Lines that `produce` reads and `consume` prints: nothing of a message is lost, or changed."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar import MessageColumns
from magnetar.message import ReceivedBatch
from magnetar_cli.message_lines import (
    BadLine,
    JsonMessage,
    LineSplitter,
    decode_json,
    decode_values,
    decoder_of_keys,
    encode_json,
    encode_values,
    encoder_of_keys,
)
from magnetar_core.batch import NO_EVENT_TIME_MS, encode, encoded_properties
from magnetar_core.errors import InvalidArgument
from magnetar_core.wire import broker_pb2

TEXT = st.text()
# What the log stores as none is none for who reads it.
KEYS = st.none() | st.binary()
EVENT_TIMES_MS = st.none() | st.integers(NO_EVENT_TIME_MS + 1, (1 << 63) - 1)
MESSAGES = st.lists(
    st.tuples(
        st.none() | st.binary() | TEXT.map(str.encode),
        KEYS,
        st.dictionaries(TEXT, TEXT),
        EVENT_TIMES_MS,
    ),
    min_size=1,
)

Content = tuple[bytes | None, bytes | None, dict[str, str], int | None]


def received(messages: Sequence[Content]) -> MessageColumns:
    """Return messages as a consumer gets them."""
    batch = encode(
        [value for value, *_ in messages],
        [key for _, key, *_ in messages],
        event_times_ms=[
            NO_EVENT_TIME_MS if time_ms is None else time_ms for *_, time_ms in messages
        ],
        properties=[encoded_properties(properties) for _, _, properties, _ in messages],
    )
    wire = broker_pb2.DeliveredBatch(entry_id=5, num_messages=len(messages), batch=batch)
    return MessageColumns(ReceivedBatch("orders", 3, 1, wire), 0, len(messages))


def content(one: JsonMessage) -> Content:
    return one.value, one.key, dict(one.properties or {}), one.event_time_ms


def read(line: bytes | str, number: int = 1) -> JsonMessage:
    found = decode_json([line if isinstance(line, bytes) else line.encode()], number)
    if found.bad is not None:
        raise found.bad
    (message,) = found.messages
    return message


@given(MESSAGES, st.integers(1, 5))
def test_what_consume_prints_as_json_is_what_produce_sends(
    messages: list[Content], first: int
) -> None:
    lines = encode_json(received(messages)).splitlines()
    found = decode_json(lines, first)
    assert found.bad is None
    assert list(map(content, found.messages)) == messages
    assert [one.line for one in found.messages] == list(range(first, first + len(messages)))
    assert found.byte_count == sum(len(value or b"") for value, *_ in messages)


@given(st.lists(st.tuples(st.binary(), st.binary()), min_size=1))
def test_what_consume_prints_with_keys_is_what_produce_sends(
    pairs: list[tuple[bytes, bytes]],
) -> None:
    pairs = [
        (key.replace(b"|", b"").replace(b"\n", b""), value.replace(b"\n", b""))
        for key, value in pairs
    ]
    columns = received([(value, key, {}, None) for key, value in pairs])
    splitter = LineSplitter(1_000_000)
    keyed = decoder_of_keys(b"|")(splitter.split(encoder_of_keys(b"|")(columns)), 1)
    assert keyed.bad is None
    # A line does not tell an empty key from none.
    found = list(zip(keyed.keys or (), keyed.values, strict=True))  # type: ignore[attr-defined]
    assert found == [(key or None, value) for key, value in pairs]
    values = decode_values(splitter.split(encode_values(columns)), 1).values
    assert values == [value for _, value in pairs]


def test_a_message_without_a_value_has_null_in_json_and_an_empty_line() -> None:
    columns = received([(None, b"k", {}, None), (b"", b"", {}, None), (b"v", None, {}, None)])
    facts = [json.loads(line) for line in encode_json(columns).splitlines()]
    assert [(one["value"], one.get("key")) for one in facts] == [
        (None, "k"),
        ("", ""),
        ("v", None),
    ]
    assert encode_values(columns) == b"\n\nv\n"
    assert encoder_of_keys(b"|")(columns) == b"k|\n|\n|v\n"
    assert read(b'{"value": null, "key": ""}')[1:3] == (None, b"")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"tea", "is not JSON: Expecting value at column 1"),
        (b'{"value": "tea"', "is not JSON"),
        (b'["tea"]', "not an object"),
        (b"{}", "neither value nor value_base64"),
        (b'{"value": null, "value_base64": "YQ==", "key": 5}', "key is not a text"),
        (b'{"value": 5}', "value is not a text"),
        (b'{"value": {"a": 1}}', "has to be quoted"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        (b'{"value_base64": "YQ"}', "value_base64"),
        (b'{"value_base64": "Y Q="}', "value_base64"),
        (b'{"value_base64": "\xc3\xa4"}', "value_base64"),
        (b'{"value_base64": 5}', "value_base64 is not a text"),
        (b'{"value": "a", "value": "b"}', "gives a name twice"),
        (b'{"value": "a", "properties": {"b": "1", "b": "2"}}', "gives a name twice"),
        (b'{"value": "a", "propertys": {}}', "'propertys' is unknown; there are key, key_base64"),
        (b'{"value": "a", "properties": []}', "properties is not an object"),
        (b'{"value": "a", "properties": {"b": 1}}', "the property 'b' is not a text"),
        (b'{"value": "a", "event_time_ms": "1"}', "event_time_ms is not a whole number"),
        (b'{"value": "a", "event_time_ms": 1.0}', "event_time_ms is not a whole number"),
        (b'{"value": "a", "event_time_ms": true}', "event_time_ms is not a whole number"),
        (b'{"value": "a", "event_time_ms": 9223372036854775808}', "in 64 bits"),
        (b'{"value": "a", "event_time_ms": -9223372036854775808}', "in 64 bits"),
        (b'{"value": "\\ud800"}', "surrogate pair"),
        (b'{"value": "\xff"}', "can't decode byte 0xff"),
        (b'{"value": "a", "key": [' + b"[" * 100_000, "is not a message"),
        (b'{"value": "a", "offset": ' + b"1" * 5_000 + b"}", "is not a message"),
    ],
)
@pytest.mark.usefixtures("full_stack")
def test_a_line_that_is_no_message_is_named_and_those_before_it_are_kept(
    line: bytes, reason: str
) -> None:
    found = decode_json([b'{"value": "before"}', line, b'{"value": "behind"}'], 7)
    assert [one.value for one in found.messages] == [b"before"]
    assert re.fullmatch(r"line 8 is not a message: .*", str(found.bad))
    assert reason in str(found.bad)


def test_what_people_write_by_hand_is_read() -> None:
    assert content(read('{"value": "ä", "key": null}')) == ("ä".encode(), None, {}, None)
    assert content(read(b'\xef\xbb\xbf{"value": ""}\r')) == (b"", None, {}, None)
    with pytest.raises(BadLine, match="line 2 is not a message"):
        read(b'\xef\xbb\xbf{"value": ""}', 2)
    assert read('{"value": "a", "key_base64": "/w=="}').key == b"\xff"
    lowest = read('{"value": "a", "event_time_ms": -9223372036854775807}')
    assert lowest.event_time_ms == NO_EVENT_TIME_MS + 1
    empty = decode_json([b"", b" \r", b'{"value": "a"}', b""], 1)
    assert [(one.line, one.value) for one in empty.messages] == [(3, b"a")]
    # A file of what `peek` prints, and of what another log said.
    said = json.dumps({"txn_id": "0:1:7", "offset": 5, "topic": "x", "value": "a"})
    assert content(read(said)) == (b"a", None, {}, None)


class Producer:
    """Takes some messages, and refuses those of a value."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def enqueue(self, value: bytes, key: bytes | None, **more: Any) -> None:
        if value == b"refused":
            raise InvalidArgument("nobody wants this")
        self.sent.append((value, key, more))


def test_a_message_that_the_producer_refuses_is_named_by_its_line() -> None:
    lines = decode_json([b'{"value": "a"}', b"", b'{"value": "refused"}', b'{"value": "b"}'], 4)
    producer, txn = Producer(), object()
    with pytest.raises(BadLine, match="line 6 is refused: nobody wants this"):
        asyncio.run(lines.send(producer, txn))  # type: ignore[arg-type]
    more = {"properties": None, "event_time_ms": None, "txn": txn}
    assert producer.sent == [(b"a", None, more)]


def test_a_line_without_separator_is_named_and_those_before_it_are_kept() -> None:
    found = decoder_of_keys(b":")([b"a:1", b"b:2:3", b"c", b"d:4"], 11)
    assert (found.values, found.keys) == ([b"1", b"2:3"], [b"a", b"b"])  # type: ignore[attr-defined]
    assert str(found.bad).startswith("line 13 has no ':'; correct it")


@given(st.binary(), st.lists(st.integers(0, 100)))
def test_lines_are_whole_however_they_arrive(data: bytes, cuts: list[int]) -> None:
    splitter = LineSplitter(1_000)
    lines, rest = [], data.replace(b"z", b"\n")
    for cut in cuts:
        piece, rest = rest[:cut], rest[cut:]
        if piece:
            lines += splitter.split(piece)
    if rest:
        lines += splitter.split(rest)
    lines += splitter.split(b"")
    expected = data.replace(b"z", b"\n").split(b"\n")
    assert lines == (expected[:-1] if not expected[-1] else expected)
    assert splitter.rest_bytes == 0


def test_a_line_has_a_limit_however_it_arrives() -> None:
    """The input may never have an end of a line."""
    at_once = LineSplitter(4)
    assert at_once.split(b"1\n234") == [b"1"]
    assert at_once.split(b"5\n6") == [b"2345"]
    with pytest.raises(BadLine, match="line 3 is longer than 4 bytes"):
        at_once.split(b"7890\n")
    endless = LineSplitter(4)
    for piece in (b"1\n", b"xx", b"xx"):
        endless.split(piece)
    assert endless.rest_bytes == 4
    with pytest.raises(BadLine, match="line 2 is longer than 4 bytes"):
        endless.split(b"x")


def seconds(pieces: int) -> float:
    splitter, piece = LineSplitter(sys.maxsize), b"x" * 4_096
    began_s = time.process_time()
    for _ in range(pieces):
        splitter.split(piece)
    splitter.split(b"\n")
    return time.process_time() - began_s


def test_a_long_line_takes_work_in_proportion_to_its_length() -> None:
    """80 MB took 15 times as long as 20 MB: each piece copied all that had come before."""
    # In turn, so that other programs slow both down. The square would be 256 times as much.
    assert min(seconds(500 * 16) / seconds(500) for _ in range(5)) < 64
