"""HTTP/2 with one stream: what a server may say, and what it lets this side say."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from magnetar_core.link.http2 import (
    FRAME_BYTES_MAX,
    HEADERS_BYTES_MAX,
    PREFACE,
    WINDOW_BYTES,
    Data,
    Ended,
    Event,
    Headers,
    Http2Error,
    Http2Stream,
)

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0,
    1,
    3,
    4,
    6,
    7,
    8,
    9,
)
REQUEST = ((":method", "POST"), (":path", "/a.B/C"), ("te", "trailers"))


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    length = len(payload)
    return struct.pack(">BHBBI", length >> 16, length & 0xFFFF, kind, flags, stream) + payload


def number(value: int) -> bytes:
    return struct.pack(">I", value)


def setting(name: int, value: int) -> bytes:
    return frame(SETTINGS, struct.pack(">HI", name, value))


def headers(*fields: tuple[str, str], flags: int = 4) -> bytes:
    return frame(HEADERS, Encoder().encode(fields), flags, 1)


def frames(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each frame."""
    while data:
        high, low, kind, flags, stream = struct.unpack(">BHBBI", data[:9])
        end = 9 + (high << 16 | low)
        yield kind, flags, stream, data[9:end]
        data = data[end:]


def fields_of(decoder: Decoder, block: bytes) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in decoder.decode(block)]


def new_stream() -> Http2Stream:
    """Return one whose beginning was sent."""
    stream = Http2Stream(REQUEST)
    stream.take_outgoing()
    return stream


def sent(stream: Http2Stream) -> list[tuple[int, int, int, bytes]]:
    return list(frames(b"".join(stream.take_outgoing())))


def heard(stream: Http2Stream, data: bytes) -> list[Event]:
    return list(stream.receive(data))


def test_a_request_begins_with_the_preface_the_settings_and_the_headers() -> None:
    """RFC 9113, 3.4."""
    said = b"".join(Http2Stream(REQUEST).take_outgoing())
    assert said.startswith(PREFACE)
    settings, window, head = frames(said.removeprefix(PREFACE))
    assert settings[0] == SETTINGS
    assert window[0] == WINDOW_UPDATE
    assert head[:3] == (HEADERS, 4, 1)
    assert fields_of(Decoder(), head[3]) == list(REQUEST)


def test_headers_that_are_larger_than_a_frame_go_on_in_others() -> None:
    """A token may have several kilobytes. RFC 9113, 6.10."""
    token = ("authorization", "~" * 40_000)
    stream = Http2Stream((*REQUEST, token))
    said = b"".join(stream.take_outgoing()).removeprefix(PREFACE)
    _, _, *parts = frames(said)
    assert [part[0] for part in parts] == [HEADERS, *[CONTINUATION] * (len(parts) - 1)]
    assert [part[1] for part in parts] == [*[0] * (len(parts) - 1), 4]
    decoder = Decoder(max_header_list_size=1 << 20)
    assert fields_of(decoder, b"".join(part[3] for part in parts))[-1] == token


ANSWER = b"".join(
    (
        frame(SETTINGS),
        headers((":status", "200"), ("a", "b")),
        frame(DATA, b"one", 0, 1),
        # Padded, and with a kind of frame that nobody knows.
        frame(DATA, b"\x02two\0\0", 0x8, 1),
        frame(0xEE, b"?"),
        frame(PING, b"12345678"),
        # A server that stops lets what was begun go on.
        frame(GOAWAY, number(1) + number(0)),
        frame(DATA, b"three", 0, 1),
        frame(HEADERS, Encoder().encode([("grpc-status", "0")])[:3], 0x1, 1),
        frame(CONTINUATION, Encoder().encode([("grpc-status", "0")])[3:], 0x4, 1),
    )
)
MEANING = [
    Headers({":status": "200", "a": "b"}),
    Data(b"one"),
    Data(b"two"),
    Data(b"three"),
    Headers({"grpc-status": "0"}),
    Ended(),
]


@given(st.lists(st.integers(1, len(ANSWER) - 1), max_size=12))
def test_an_answer_means_the_same_in_whatever_pieces_it_arrives(cuts: list[int]) -> None:
    stream = new_stream()
    places = [0, *sorted(cuts), len(ANSWER)]
    found = [
        event for start, end in pairwise(places) for event in stream.receive(ANSWER[start:end])
    ]
    assert found == MEANING
    assert [one[:2] for one in sent(stream)] == [(SETTINGS, 1), (PING, 1)]


def test_a_reset_has_a_code() -> None:
    assert heard(new_stream(), frame(RST_STREAM, number(7), 0, 1)) == [Ended(7)]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", id="another protocol"),
        pytest.param(frame(CONTINUATION, b"", 4, 1), id="headers without a beginning"),
        pytest.param(
            headers(("a", "b"), flags=0) + frame(DATA, b"x", 0, 1), id="headers interrupted"
        ),
        pytest.param(frame(HEADERS, b"\xff\xff\xff\xff\xff", 4, 1), id="headers unreadable"),
        pytest.param(frame(HEADERS, b"\x00\x01a\x01\xff", 4, 1), id="no text"),
        pytest.param(
            frame(HEADERS, bytes(FRAME_BYTES_MAX), 0, 1), id="headers larger than is allowed"
        ),
        pytest.param(
            headers(*(("a", "b" * 4_000) for _ in range(HEADERS_BYTES_MAX // 4_000 + 1))),
            id="headers that grow",
        ),
        pytest.param(frame(DATA, b"\x09abc", 0x8, 1), id="padding"),
        pytest.param(frame(DATA, b"", 0x8, 1), id="no padding"),
        pytest.param(frame(SETTINGS, b"12345"), id="settings"),
        pytest.param(frame(RST_STREAM, b"1", 0, 1), id="reset"),
        pytest.param(frame(WINDOW_UPDATE, number((1 << 31) - 1)), id="window"),
        pytest.param(frame(5, b"", 4, 1), id="push"),
    ],
)
def test_what_breaks_the_protocol_is_an_error(data: bytes) -> None:
    with pytest.raises(Http2Error):
        heard(new_stream(), data)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        heard(new_stream(), data)
    except Http2Error:
        pass


def test_no_more_is_sent_than_the_server_takes() -> None:
    """RFC 9113, 6.9: the connection has a window, and the stream has one."""
    stream = new_stream()
    assert stream.room == 65_535
    heard(stream, setting(4, 100_000))
    assert stream.room == 65_535
    heard(stream, frame(WINDOW_UPDATE, number(1_000_000)))
    assert stream.room == 100_000
    stream.send(memoryview(bytes(40_000)))
    assert [len(one[3]) for one in sent(stream) if one[0] == DATA] == [16_384, 16_384, 7_232]
    # The server takes back what it allowed: there is less than no room.
    heard(stream, setting(4, 10_000))
    assert stream.room == 0
    heard(stream, frame(WINDOW_UPDATE, number(30_001), 0, 1))
    assert stream.room == 1
    heard(stream, setting(5, 1 << 20) + frame(WINDOW_UPDATE, number(50_000), 0, 1))
    stream.send(memoryview(bytes(50_000)))
    assert [len(one[3]) for one in sent(stream) if one[0] == DATA] == [50_000]


def test_the_server_may_send_more_when_what_it_sent_was_read() -> None:
    stream = new_stream()
    stream.acknowledge(10)
    assert sent(stream) == []
    stream.acknowledge(WINDOW_BYTES // 4)
    grown = number(WINDOW_BYTES // 4 + 10)
    assert sent(stream) == [(WINDOW_UPDATE, 0, 0, grown), (WINDOW_UPDATE, 0, 1, grown)]
    # Padding is read by nobody, and counts.
    assert heard(stream, frame(DATA, b"\x02a\0\0", 0x8, 1)) == [Data(b"a")]
    stream.acknowledge(WINDOW_BYTES // 4 - 3)
    assert len(sent(stream)) == 2
