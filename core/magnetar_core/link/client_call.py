"""A call to a gRPC server, on an HTTP/2 connection that it has for itself.

It does without gRPC's library, whose threads and event engine belong to a process for good: after a
fork they crash the child, even one that does nothing, and they tell every event loop of events that
belong to others.

Source: docs/design/0020-frame-streams.md, Without gRPC's library; gRPC over HTTP2 (grpc/grpc,
doc/PROTOCOL-HTTP2.md).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, cast
from urllib.parse import unquote

from magnetar_core.config import split_address
from magnetar_core.link.dialing import dial
from magnetar_core.link.http2 import Data, Ended, Event, Headers, Http2Error, Http2Stream
from magnetar_core.transport.waiters import wake
from magnetar_core.version import VERSION

Metadata = tuple[tuple[str, str], ...]

# A server that has said nothing for this long is asked for a sign of life, and has to give it
# within the timeout.
KEEPALIVE_INTERVAL_S: Final = 10.0
KEEPALIVE_TIMEOUT_S: Final = 5.0
# write() waits while more than this has not left this process.
UNSENT_BYTES_HIGH: Final = 1 << 20
# The server has to wait while more than this has arrived and was not read.
UNREAD_BYTES_HIGH: Final = 4 << 20
# Of a message: whether it is compressed, and its length.
_PREFIX: Final = struct.Struct(">BI")
_TLS_ALERT: Final = b"\x15\x03"
ALPN: Final = "h2"

# Status codes of gRPC; the others are not told apart.
OK, UNKNOWN, UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = 0, 2, 12, 14, 16


class Status(NamedTuple):
    """Result of a call."""

    code: int
    message: str


class CallEnded(ConnectionError):
    """The call has ended, so the message did not leave."""


class CallRefused(ConnectionError):
    """The server has ended the call without having accepted it.

    Attributes:
        status: what it says.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class NotGrpc(ConnectionError):
    """The program that answers is not a gRPC server."""


class ClientCall(asyncio.Protocol):
    """A call that streams both ways. `begin` makes it.

    Args:
        stream: with the headers of the request.
        message_bytes_max: the call ends when the server begins a larger message.
    """

    def __init__(self, stream: Http2Stream, message_bytes_max: int) -> None:
        self._http2 = stream
        self._message_bytes_max = message_bytes_max
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self._accepted: asyncio.Future[dict[str, str]] = loop.create_future()
        self._ended: asyncio.Future[Status] = loop.create_future()
        # The caller need not ask.
        self._accepted.add_done_callback(_retrieve)
        self._messages: deque[bytes] = deque()
        self._unread_bytes = 0
        # What has arrived, and the server is not told of while too much is unread.
        self._owed_bytes = 0
        # The message that arrives.
        self._partial = bytearray()
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_paused = False
        self._has_heard = False
        self._is_pinged = False
        self._keepalive: asyncio.TimerHandle | None = None

    async def accepted(self) -> dict[str, str]:
        """Wait until the server accepts the call; return its metadata.

        Raises:
            CallRefused: it ends the call instead.
            NotGrpc: another program listens there.
            OSError: the connection breaks.
        """
        return await asyncio.shield(self._accepted)

    def when_ended(self, callback: Callable[[], object]) -> None:
        """Call a function soon after the call has ended, for whatever reason."""
        self._ended.add_done_callback(lambda _: callback())

    async def ended(self) -> Status:
        """Wait for the end of the call. UNAVAILABLE: the connection broke."""
        return await asyncio.shield(self._ended)

    async def read(self) -> bytes | None:
        """Wait for a message; None: the call has ended. A single task may call this."""
        while not self._messages:
            if self._ended.done():
                return None
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._messages.popleft()
        self._unread_bytes -= len(message)
        if self._owed_bytes and self._unread_bytes <= UNREAD_BYTES_HIGH // 2:
            self._acknowledge(0)
            self._flush()
        return message

    async def write(self, message: bytes) -> None:
        """Send a message, and wait while too much is on its way. A single task may call this.

        Raises:
            CallEnded: the call has ended.
        """
        left = memoryview(_PREFIX.pack(0, len(message)) + message)
        while left:
            if self._ended.done():
                raise CallEnded
            room = 0 if self._is_paused else self._http2.room
            if room:
                self._http2.send(left[:room])
                left = left[room:]
                self._flush()
            else:
                self._writer = asyncio.get_running_loop().create_future()
                await self._writer

    def finish(self) -> None:
        """Say that nothing more is sent."""
        if not self._ended.done():
            self._http2.finish()
            self._flush()

    def close(self) -> None:
        """End the call and its connection now. May be repeated."""
        self._end(Status(UNAVAILABLE, "the call was closed"))
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the call, since the connection is made."""
        # uvloop's has no class in common with asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = cast("ssl.SSLObject | None", transport.get_extra_info("ssl_object"))
        if tls is not None and tls.selected_alpn_protocol() != ALPN:
            self._fail(NotGrpc("a server that does not speak HTTP/2 answers there"))
            return
        self._flush()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take the bytes that have arrived."""
        if self._ended.done():
            return
        is_first, self._has_heard = not self._has_heard, True
        if is_first and (who := _who_begins_with(data)):
            self._fail(NotGrpc(f"{who} answers there"))
            return
        self._is_pinged = False
        try:
            for event in self._http2.receive(data):
                self._happened(event)
        except Http2Error as error:
            said = f"it begins with {data[:40]!r}" if is_first else str(error)
            self._fail(NotGrpc(f"what answers there does not speak HTTP/2: {said}"))
            return
        self._flush()
        if self._http2.room:
            self._wake_writer()

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the connection has ended."""
        if not isinstance(error, OSError):
            error = ConnectionResetError("Connection closed by the server")
        self._fail(error)

    def pause_writing(self) -> None:
        """Let write() wait."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Let write() go on."""
        self._is_paused = False
        self._wake_writer()

    def _happened(self, event: Event) -> None:
        if isinstance(event, Data):
            self._assemble(event.content)
        elif isinstance(event, Headers):
            self._heads(event.fields)
        elif isinstance(event, Ended):
            how = (
                "ended the call"
                if event.code is None
                else f"reset the call, with code {event.code}"
            )
            self._end(Status(UNAVAILABLE, f"the server has {how}"))

    def _heads(self, fields: dict[str, str]) -> None:
        """Take the headers of the answer, or its trailers, which have a status."""
        code = fields.get("grpc-status")
        if code is not None:
            number = int(code) if code.isascii() and code.isdigit() else UNKNOWN
            self._end(Status(number, unquote(fields.get("grpc-message", ""))))
        elif not fields.get("content-type", "").startswith("application/grpc"):
            self._fail(
                NotGrpc(f"an HTTP server answers there, with status {fields.get(':status')}")
            )
        elif not self._accepted.done():
            self._accepted.set_result(fields)

    def _assemble(self, content: bytes) -> None:
        partial = self._partial
        partial += content
        while len(partial) >= _PREFIX.size:
            is_compressed, length = _PREFIX.unpack_from(partial)
            if is_compressed or length > self._message_bytes_max:
                self._fail(ConnectionAbortedError(f"the server sends a message of {length} bytes"))
                return
            end = _PREFIX.size + length
            if len(partial) < end:
                break
            self._messages.append(bytes(partial[_PREFIX.size : end]))
            self._unread_bytes += length
            del partial[:end]
        self._acknowledge(len(content))
        wake(self._reader)

    def _acknowledge(self, byte_count: int) -> None:
        """Let the server send more, unless too much is unread."""
        self._owed_bytes += byte_count
        if self._unread_bytes <= UNREAD_BYTES_HIGH:
            self._http2.acknowledge(self._owed_bytes)
            self._owed_bytes = 0

    def _flush(self) -> None:
        outgoing = self._http2.take_outgoing()
        # uvloop's transport raises RuntimeError after its end.
        if outgoing and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(outgoing))

    def _watch(self) -> None:
        """End a connection whose other side is gone: it does not answer a ping."""
        if self._ended.done():
            return
        if self._is_pinged:
            self._fail(ConnectionResetError("no sign of life"))
            return
        self._keepalive = asyncio.get_running_loop().call_later(KEEPALIVE_INTERVAL_S, self._ping)

    def _ping(self) -> None:
        self._is_pinged = True
        self._http2.ping()
        self._flush()
        self._keepalive = asyncio.get_running_loop().call_later(KEEPALIVE_TIMEOUT_S, self._watch)

    def _fail(self, error: OSError) -> None:
        self._end(Status(UNAVAILABLE, str(error)), error)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, status: Status, error: OSError | None = None) -> None:
        if self._ended.done():
            return
        self._ended.set_result(status)
        if not self._accepted.done():
            self._accepted.set_exception(error or CallRefused(status))
        if self._keepalive is not None:
            self._keepalive.cancel()
        wake(self._reader)
        self._wake_writer()
        if self._transport is not None:
            # The connection has no other use.
            self._transport.close()

    def _wake_writer(self) -> None:
        writer, self._writer = self._writer, None
        wake(writer)


async def begin(
    server: str,
    path: str,
    metadata: Metadata,
    message_bytes_max: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
) -> ClientCall:
    """Connect to a server, and begin a call.

    Args:
        server: its address, "host:port".
        path: names the method, as "/package.Service/Method".
        tls: how the connection is secured; None: plain text.
        server_name: the name that the server's certificate has to have; empty: the host's.
    Raises:
        OSError: the connection or the TLS handshake failed.
        InvalidConfig: the address is not valid.
    """
    host, port = split_address(server)
    headers = (
        (":method", "POST"),
        (":scheme", "http" if tls is None else "https"),
        (":path", path),
        (":authority", server),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", f"magnetar/{VERSION}"),
        *metadata,
    )
    if tls is not None:
        tls.set_alpn_protocols([ALPN])
    call = ClientCall(Http2Stream(headers), message_bytes_max)
    try:
        return await dial(lambda: call, host, port, tls=tls, server_name=server_name or host)
    except BaseException:
        # If this is cancelled when the connection is just made, uvloop closes it and does not call
        # connection_lost.
        call.close()
        raise


def _who_begins_with(data: bytes) -> str:
    """Return the kind of the other program, if its first bytes are not HTTP/2; otherwise ""."""
    if data.startswith(b"HTTP/"):
        return "an HTTP/1 server"
    if data.startswith(_TLS_ALERT):
        return "a server that talks TLS"
    return ""


def _retrieve(future: asyncio.Future[dict[str, str]]) -> None:
    if not future.cancelled():
        future.exception()
