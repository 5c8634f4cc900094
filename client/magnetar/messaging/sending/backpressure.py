"""Limits how much a client's producers may have unacknowledged."""

from __future__ import annotations

import asyncio
from collections import deque

from magnetar_core.invariants import BrokenInvariant


class PendingBudget:
    """Counts bytes and messages in complete batches that are not acknowledged.

    Batches are counted and messages ask for room, so incomplete batches may exceed the limits.
    """

    __slots__ = ("_bytes", "_bytes_max", "_messages", "_messages_max", "_waiters", "full")

    def __init__(self, bytes_max: int, messages_max: int) -> None:
        self.full = False
        self._bytes_max = bytes_max
        self._messages_max = messages_max
        self._bytes = 0
        self._messages = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def pending_bytes(self) -> int:
        """Bytes that are not acknowledged."""
        return self._bytes

    @property
    def pending_messages(self) -> int:
        """Number of messages that are not acknowledged."""
        return self._messages

    def take(self, size: int, count: int) -> None:
        """Count a batch."""
        self._bytes += size
        self._messages += count
        if self._bytes >= self._bytes_max or self._messages >= self._messages_max:
            self.full = True

    def give_back(self, size: int, count: int) -> None:
        """Stop counting a batch, and wake those that wait for room."""
        self._bytes -= size
        self._messages -= count
        if self._bytes < 0 or self._messages < 0:
            raise BrokenInvariant("more is given back than was taken")
        if not self.full:
            return
        self.full = self._bytes >= self._bytes_max or self._messages >= self._messages_max
        if not self.full:
            while self._waiters:
                waiter = self._waiters.popleft()
                if not waiter.done():
                    waiter.set_result(None)

    async def room(self) -> None:
        """Wait until there is room."""
        while self.full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
