"""The client's end of an HTTP/2 connection that carries one stream: what a gRPC call needs of it.

Bytes that arrive go to `receive`, which returns what they mean. Bytes to send are collected, and
`take_outgoing` returns them. There is no server push, no priority and no second stream.

Pure. Source: RFC 9113, RFC 7541.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from hpack import Decoder, Encoder, HPACKError

from magnetar_core.invariants import BrokenInvariant

Fields = Sequence[tuple[str, str]]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# How much the server may send before the reader has taken it.
WINDOW_BYTES: Final = 4 << 20
# The largest frame that is accepted. Fewer and larger frames cost less.
FRAME_BYTES_MAX: Final = 1 << 20
HEADERS_BYTES_MAX: Final = 64 << 10
# What both sides begin with: RFC 9113, 6.5.2 and 6.9.2.
_FRAME_BYTES_DEFAULT: Final = 16 << 10
_WINDOW_BYTES_DEFAULT: Final = 65_535
_WINDOW_BYTES_LIMIT: Final = (1 << 31) - 1
_STREAM: Final = 1
_HEAD: Final = struct.Struct(">BHBBI")
_HEAD_BYTES: Final = _HEAD.size
_SETTING: Final = struct.Struct(">HI")
_NUMBER: Final = struct.Struct(">I")
_PING_BYTES: Final = 8


class _Kind(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_ENABLE_PUSH, _INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 2, 4, 5


class Http2Error(Exception):
    """The server breaks the protocol. The connection is of no use from then on."""


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of the response, or its trailers."""

    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class Data:
    """A part of the response's content. `acknowledge` its size when it has been read."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The server has ended its side of the stream.

    Attributes:
        code: of RST_STREAM (RFC 9113, 7); None: it ended in order.
    """

    code: int | None = None


Event = Headers | Data | Ended


class Http2Stream:
    """One stream, and the connection that it has for itself.

    Args:
        headers: those of the request, pseudo-headers first.
    """

    def __init__(self, headers: Fields) -> None:
        self._arrived = bytearray()
        self._outgoing: list[bytes] = []
        self._decoder = Decoder(max_header_list_size=HEADERS_BYTES_MAX)
        # Of headers whose last frame has not arrived; with the flag that ends the stream.
        self._block: bytearray | None = None
        self._block_ends_stream = False
        # What the server lets us send.
        self._connection_room = _WINDOW_BYTES_DEFAULT
        self._stream_room = _WINDOW_BYTES_DEFAULT
        self._initial_window = _WINDOW_BYTES_DEFAULT
        self._frame_bytes_max = _FRAME_BYTES_DEFAULT
        # What was read, and the server was not told of yet.
        self._unacknowledged = 0
        self._outgoing.append(PREFACE)
        self._put(
            _Kind.SETTINGS,
            b"".join(
                _SETTING.pack(*one)
                for one in (
                    (_ENABLE_PUSH, 0),
                    (_INITIAL_WINDOW_SIZE, WINDOW_BYTES),
                    (_MAX_FRAME_SIZE, FRAME_BYTES_MAX),
                )
            ),
        )
        self._put(_Kind.WINDOW_UPDATE, _NUMBER.pack(WINDOW_BYTES - _WINDOW_BYTES_DEFAULT))
        self._put_headers(Encoder().encode(headers))

    @property
    def room(self) -> int:
        """Bytes of content that the server takes now."""
        return max(0, min(self._connection_room, self._stream_room))

    def take_outgoing(self) -> list[bytes]:
        """Return the bytes to send, in order, and forget them."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def send(self, content: memoryview) -> None:
        """Send content, for which there must be room."""
        if len(content) > self.room:
            raise BrokenInvariant("more is sent than the server takes")
        self._connection_room -= len(content)
        self._stream_room -= len(content)
        for start in range(0, len(content), self._frame_bytes_max):
            piece = content[start : start + self._frame_bytes_max]
            self._put(_Kind.DATA, bytes(piece), stream=_STREAM)

    def finish(self) -> None:
        """End our side of the stream: nothing more is sent."""
        self._put(_Kind.DATA, b"", _END_STREAM, stream=_STREAM)

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._put(_Kind.PING, bytes(_PING_BYTES))

    def acknowledge(self, byte_count: int) -> None:
        """Let the server send so many bytes more, since as many have been read."""
        self._unacknowledged += byte_count
        if self._unacknowledged >= WINDOW_BYTES // 4:
            increment = _NUMBER.pack(self._unacknowledged)
            self._unacknowledged = 0
            self._put(_Kind.WINDOW_UPDATE, increment)
            self._put(_Kind.WINDOW_UPDATE, increment, stream=_STREAM)

    def receive(self, data: bytes) -> Iterator[Event]:
        """Take bytes that have arrived, and yield what they mean.

        Raises:
            Http2Error: they are not HTTP/2.
        """
        arrived = self._arrived
        arrived += data
        at = 0
        try:
            while len(arrived) - at >= _HEAD_BYTES:
                high, low, kind, flags, stream = _HEAD.unpack_from(arrived, at)
                length = high << 16 | low
                if length > FRAME_BYTES_MAX:
                    raise Http2Error(f"a frame of {length} bytes")
                begin = at + _HEAD_BYTES
                if len(arrived) - begin < length:
                    return
                at = begin + length
                yield from self._frame(kind, flags, stream, bytes(arrived[begin:at]))
        finally:
            del arrived[:at]

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> Iterator[Event]:
        if (self._block is not None) != (kind == _Kind.CONTINUATION):
            raise Http2Error("headers are interrupted, or go on without a beginning")
        if kind == _Kind.DATA:
            yield from self._data(flags, payload)
        elif kind == _Kind.HEADERS:
            content = _without_padding(flags, payload)
            self._block = bytearray(content[5:] if flags & _PRIORITY else content)
            self._block_ends_stream = bool(flags & _END_STREAM)
            yield from self._headers(flags)
        elif kind == _Kind.CONTINUATION:
            assert self._block is not None
            self._block += payload
            yield from self._headers(flags)
        elif kind == _Kind.RST_STREAM:
            yield Ended(_number(payload))
        elif kind == _Kind.SETTINGS:
            if not flags & _ACK:
                self._settings(payload)
                self._put(_Kind.SETTINGS, b"", _ACK)
        elif kind == _Kind.PING:
            if not flags & _ACK:
                self._put(_Kind.PING, payload, _ACK)
        elif kind == _Kind.WINDOW_UPDATE:
            self._grow(stream & _WINDOW_BYTES_LIMIT, _number(payload) & _WINDOW_BYTES_LIMIT)
        elif kind == _Kind.PUSH_PROMISE:
            raise Http2Error("a push that was switched off")
        # GOAWAY forbids further streams, and lets this one go on. Whatever else there is may be
        # ignored: RFC 9113, 5.5.

    def _data(self, flags: int, payload: bytes) -> Iterator[Event]:
        content = _without_padding(flags, payload)
        # Padding counts, although it is not read.
        self.acknowledge(len(payload) - len(content))
        if content:
            yield Data(content)
        if flags & _END_STREAM:
            yield Ended()

    def _headers(self, flags: int) -> Iterator[Event]:
        assert self._block is not None
        if len(self._block) > HEADERS_BYTES_MAX:
            raise Http2Error("headers are too large")
        if not flags & _END_HEADERS:
            return
        block, self._block = bytes(self._block), None
        try:
            fields = {_text(name): _text(value) for name, value in self._decoder.decode(block)}
        except (HPACKError, UnicodeDecodeError) as error:
            raise Http2Error(f"headers that cannot be read: {error}") from None
        yield Headers(fields)
        if self._block_ends_stream:
            yield Ended()

    def _settings(self, payload: bytes) -> None:
        if len(payload) % _SETTING.size:
            raise Http2Error("settings that cannot be read")
        for name, value in _SETTING.iter_unpack(payload):
            if name == _INITIAL_WINDOW_SIZE:
                # It may become negative: RFC 9113, 6.9.2.
                self._stream_room += value - self._initial_window
                self._initial_window = value
            elif name == _MAX_FRAME_SIZE:
                self._frame_bytes_max = min(max(value, _FRAME_BYTES_DEFAULT), FRAME_BYTES_MAX)

    def _grow(self, stream: int, increment: int) -> None:
        if stream == 0:
            self._connection_room += increment
        else:
            self._stream_room += increment
        if max(self._connection_room, self._stream_room) > _WINDOW_BYTES_LIMIT:
            raise Http2Error("a window that is too large")

    def _put_headers(self, block: bytes) -> None:
        kind = _Kind.HEADERS
        while True:
            piece, block = block[:_FRAME_BYTES_DEFAULT], block[_FRAME_BYTES_DEFAULT:]
            self._put(kind, piece, 0 if block else _END_HEADERS, stream=_STREAM)
            if not block:
                return
            kind = _Kind.CONTINUATION

    def _put(self, kind: _Kind, payload: bytes, flags: int = 0, *, stream: int = 0) -> None:
        length = len(payload)
        self._outgoing.append(_HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream))
        if payload:
            self._outgoing.append(payload)


def _without_padding(flags: int, payload: bytes) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error("padding that is larger than its frame")
    return payload[1 : len(payload) - payload[0]]


def _number(payload: bytes) -> int:
    if len(payload) != _NUMBER.size:
        raise Http2Error("a frame of a wrong size")
    return int(_NUMBER.unpack(payload)[0])


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
