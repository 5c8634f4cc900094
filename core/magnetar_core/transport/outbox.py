"""Queue of serialized frames on their way out of a conversation, with a limit.

Frames are serialized before they are queued, so that sizes are exact and a payload is copied once.
Serialized frames may be joined end to end: protobuf reads them as a single frame with all commands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from magnetar_core.transport.waiters import wake

# Small frames that wait together leave together, up to this much.
JOIN_BYTES_MAX = 256 << 10


class Outbox:
    """Queue between code that writes frames without waiting, and a task that sends them.

    Args:
        bytes_high: `drain` waits while more than this is queued.
        on_size: called with the queued bytes whenever they change.
    """

    def __init__(
        self, bytes_high: int, on_size: Callable[[int], None] = lambda byte_count: None
    ) -> None:
        self._bytes_high = bytes_high
        self._on_size = on_size
        self._frames: deque[bytes] = deque()
        self._closed = False
        self._sender: asyncio.Future[None] | None = None
        self._drainers: list[asyncio.Future[None]] = []
        # Bytes that are queued, or that the sender has taken and not yet sent.
        self.byte_count = 0
        self._taken_bytes = 0

    def put(self, frame: bytes) -> None:
        """Queue a serialized frame. Does nothing after close."""
        if self._closed:
            return
        self._frames.append(frame)
        self.byte_count += len(frame)
        self._on_size(self.byte_count)
        wake(self._sender)

    async def take(self) -> bytes | None:
        """Wait for bytes to send; None when the outbox is finished. A single task may call this.

        The next call tells the outbox that the bytes of the last call are sent.
        """
        if self._taken_bytes:
            self.byte_count -= self._taken_bytes
            self._taken_bytes = 0
            self._on_size(self.byte_count)
        if self._drainers and self.byte_count <= self._bytes_high // 2:
            self._release()
        while not self._frames:
            if self._closed:
                return None
            self._sender = asyncio.get_running_loop().create_future()
            try:
                await self._sender
            finally:
                self._sender = None
        frame = self._frames.popleft()
        if self._frames and len(frame) < JOIN_BYTES_MAX:
            frame = self._join(frame)
        self._taken_bytes = len(frame)
        return frame

    async def drain(self) -> None:
        """Wait while too much is queued; returns at once after close."""
        if self._closed or self.byte_count <= self._bytes_high:
            return
        drainer = asyncio.get_running_loop().create_future()
        self._drainers.append(drainer)
        await drainer

    def finish(self) -> None:
        """Stop accepting frames; `take` returns None after the queued frames."""
        self._closed = True
        wake(self._sender)
        self._release()

    def close(self) -> None:
        """Finish, and drop the queued frames."""
        self._frames.clear()
        self.byte_count = self._taken_bytes = 0
        self.finish()

    def _join(self, first: bytes) -> bytes:
        gathered = [first]
        size = len(first)
        while self._frames and size + len(self._frames[0]) <= JOIN_BYTES_MAX:
            frame = self._frames.popleft()
            gathered.append(frame)
            size += len(frame)
        return b"".join(gathered)

    def _release(self) -> None:
        drainers, self._drainers = self._drainers, []
        for drainer in drainers:
            wake(drainer)
