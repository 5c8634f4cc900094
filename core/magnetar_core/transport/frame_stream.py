"""Frames over a bare TCP connection: the length of each frame, then the frame.

An empty frame says that its side is there, and is not handed on. Within TLS, a length that no frame
has says that nothing follows.

Source: docs/design/0020-frame-streams.md.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TypeGuard, cast

from magnetar_core.transport.waiters import wake

log = logging.getLogger(__name__)

# Little-endian, unlike most of a network: every machine that Magnetar runs on has it so.
_LENGTH: Final = struct.Struct("<I")
LENGTH_BYTES: Final = _LENGTH.size
# What has arrived is read into a buffer of this size, from which small frames are cut. A larger
# frame is read to its own place.
BUFFER_BYTES: Final = 256 << 10
# Of less than this no frame is begun: it stays as it is until more arrives.
HEAD_BYTES_MAX: Final = 4 << 10
# Room for a frame that has begun, in proportion to what has arrived. It doubles whenever it is
# full: a client that sends ten bytes must not have a server take megabytes.
ROOM_FACTOR: Final = 8
# The other side has to wait while more than this has arrived and is not read.
UNREAD_BYTES_HIGH: Final = 4 << 20
# What a frame takes here beside its bytes: two million frames of two bytes are not four megabytes.
UNREAD_OVERHEAD_BYTES: Final = 64
# write() waits while more than this has not left this process.
UNSENT_BYTES_HIGH: Final = 1 << 20
# Below this size a copy is cheaper than a second piece.
_JOIN_BYTES_MAX: Final = 8 << 10
# Each side sends an empty frame when it has sent nothing else for so long ...
BEAT_S: Final = 10.0
# ... and disconnects after so many of these periods without data. Timers that fired are counted,
# not seconds: a process that was stopped for a minute has missed one period.
SILENT_BEATS_MAX: Final = 2
_NOTHING: Final = _LENGTH.pack(0)
# Without TLS, each side can end its direction of the connection alone. TLS cannot: if it were ended
# while the other side still sends, the last frames of this side would be lost.
_END_LENGTH: Final = (1 << 32) - 1
_END: Final = _LENGTH.pack(_END_LENGTH)


def is_frame(found: object) -> TypeGuard[bytes]:
    """Return whether what was read, here or from gRPC, is a frame, and not the end."""
    return isinstance(found, bytes | bytearray)


class StreamEnded(ConnectionError):
    """The connection has ended, so the frame did not leave."""


class FrameStream(asyncio.BufferedProtocol):
    """One end of a connection that carries frames.

    Args:
        frame_bytes_max: the connection ends when the other side begins a larger frame, before any
            memory is taken for it.
        on_made: called with the stream when the connection is made.
    """

    def __init__(
        self, frame_bytes_max: int, on_made: Callable[[FrameStream], None] | None = None
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._frames: deque[bytes] = deque()
        self._unread_bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_paused = False
        self._is_finishing = False
        self._ended = asyncio.Event()
        self._silent_beats = 0
        self._has_written = False
        # What has arrived of the next frame, as long as that is little.
        self._head = b""
        # The beginning of a frame whose rest has not arrived.
        self._partial: bytearray | None = None
        self._partial_bytes = 0
        self._whole_bytes = 0

    def raise_frame_limit(self, frame_bytes_max: int) -> None:
        """Raise the limit of a frame: the other side is known now."""
        self._frame_bytes_max = frame_bytes_max

    @property
    def peer(self) -> str:
        """The other side's address, for people."""
        name = self._transport and self._transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else "nobody"

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The connection's TLS; None: it is plain text."""
        if self._transport is None:
            return None
        return cast("ssl.SSLObject | None", self._transport.get_extra_info("ssl_object"))

    async def read(self) -> bytes | None:
        """Wait for a frame; None: the connection has ended. A single task may call this.

        Returns:
            The frame as protobuf reads it: bytes, or a bytearray for a large frame.
        """
        while not self._frames:
            if self._ended.is_set():
                return None
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        frame = self._frames.popleft()
        self._unread_bytes -= len(frame) + UNREAD_OVERHEAD_BYTES
        if self._is_paused and self._unread_bytes <= UNREAD_BYTES_HIGH // 2:
            self._is_paused = False
            self._silent_beats = 0
            if self._transport is not None and not self._ended.is_set():
                self._transport.resume_reading()
        return frame

    async def write(self, frame: bytes) -> None:
        """Send a frame, and wait while too much is on its way. A single task may call this.

        Raises:
            StreamEnded: the connection has ended.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or self._is_finishing:
            raise StreamEnded
        self._has_written = True
        length = _LENGTH.pack(len(frame))
        if len(frame) < _JOIN_BYTES_MAX:
            transport.write(length + frame)
        else:
            # Not writelines(): asyncio's does not hold a writer back in 3.12.0 to 3.12.8 and in
            # 3.13.0 and 3.13.1 (CVE-2024-12254).
            transport.write(length)
            transport.write(frame)
        if self._writer is not None:
            await self._writer
            if self._ended.is_set():
                raise StreamEnded

    def beat(self) -> None:
        """Say from now on that this side is there, and end the connection when the other does not.

        So a path that loses everything is noticed within forty seconds. The kernel tries for a
        quarter of an hour to send what was written.
        """
        asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def close(self) -> None:
        """End the connection now; what the other side has not read is lost. May be repeated."""
        if self._transport is not None:
            self._transport.abort()

    async def finish(self, within_s: float) -> None:
        """End the connection when the other side has taken everything, or when time is up.

        It is the other side that closes: if this one closed with something unread, the kernel would
        drop what has not left it. Data that still comes is dropped.
        """
        if self._transport is None or self._transport.is_closing():
            return
        self._is_finishing = True
        self._frames.clear()
        if self._is_paused:
            # A side that does not read does not learn of the end.
            self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.write(_END)
        try:
            async with asyncio.timeout(within_s):
                await self._ended.wait()
        except TimeoutError:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that the connection is made."""
        # uvloop's has no class in common with asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        # asyncio leaves that out for a server whose socket other code has made.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._on_made is not None:
            self._on_made(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the connection has ended, and wake the tasks that wait."""
        self._ended.set()
        self._partial = None
        wake(self._reader)
        wake(self._writer)

    def pause_writing(self) -> None:
        """Let write() wait."""
        self._writer = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let write() go on."""
        writer, self._writer = self._writer, None
        wake(writer)

    def eof_received(self) -> bool:
        """End: the other side no longer waits for frames of this side."""
        self.close()
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to: the rest of a frame, or the buffer that all streams share."""
        if self._partial is not None:
            return memoryview(self._partial)[self._partial_bytes :]
        return _shared.view[len(self._head) :] if self._head else _shared.view

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were read to the place that get_buffer returned last."""
        self._silent_beats = 0
        if self._partial is None:
            head, self._head = self._head, b""
            _shared.view[: len(head)] = head
            self._cut(_shared.view[: len(head) + nbytes])
            return
        self._partial_bytes += nbytes
        room = len(self._partial)
        if self._partial_bytes < room:
            return
        if room < self._whole_bytes:
            grown = bytearray(min(2 * room, self._whole_bytes))
            grown[:room] = self._partial
            self._partial = grown
            return
        whole, self._partial = self._partial, None
        # protobuf reads a bytearray like bytes, and a copy costs as much as the frame.
        self._arrived(cast(bytes, whole))

    def _beat(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        # A side that does not read does not notice data.
        if self._silent_beats > SILENT_BEATS_MAX and not self._is_paused:
            log.warning("no data from %s for too long; closing the connection", self.peer)
            self.close()
            return
        self._silent_beats += 1
        if not self._has_written and not self._is_finishing and self._writer is None:
            transport.write(_NOTHING)
        self._has_written = False
        self.beat()

    def _cut(self, data: memoryview) -> None:
        """Cut frames out of what was read. Its end may be the beginning of another one."""
        at, end = 0, len(data)
        while end - at >= LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(data, at)
            begin = at + LENGTH_BYTES
            if length > end - begin or length > self._frame_bytes_max:
                self._begin(length, data[at:])
                return
            at = begin + length
            if length:
                self._arrived(bytes(data[begin:at]))
        if at < end:
            self._head = bytes(data[at:])

    def _begin(self, length: int, data: memoryview) -> None:
        """Begin a frame that is too large, or of which only the beginning has arrived.

        Args:
            data: its length, and what has arrived.
        """
        if length == _END_LENGTH and self.tls is not None:
            self.eof_received()
        elif length > self._frame_bytes_max:
            log.warning(
                "%s sends a frame of %d bytes, and %d are allowed; it is disconnected",
                self.peer,
                length,
                self._frame_bytes_max,
            )
            self.close()
        elif len(data) < HEAD_BYTES_MAX:
            self._head = bytes(data)
        else:
            arrived = data[LENGTH_BYTES:]
            self._partial = bytearray(min(length, ROOM_FACTOR * len(arrived)))
            self._partial[: len(arrived)] = arrived
            self._partial_bytes = len(arrived)
            self._whole_bytes = length

    def _arrived(self, frame: bytes) -> None:
        if self._is_finishing:
            return
        self._frames.append(frame)
        self._unread_bytes += len(frame) + UNREAD_OVERHEAD_BYTES
        if self._unread_bytes > UNREAD_BYTES_HIGH and not self._is_paused:
            self._is_paused = True
            if self._transport is not None:
                self._transport.pause_reading()
        wake(self._reader)


class _Shared(threading.local):
    """The buffer that all streams of a thread read to: the event loop uses it within one call."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(BUFFER_BYTES))


_shared: Final = _Shared()
