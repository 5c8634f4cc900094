"""How much of a conversation's answers is under way: being made, or not taken by its client yet.

A client that asks for much and reads nothing would otherwise fill the server's memory. Beyond the
budget its commands wait in the network, where they cost the server nothing.
"""

from __future__ import annotations

import asyncio


class AnswerBudget:
    """One conversation's. Unary calls of one connection share one.

    Args:
        bytes_max: one more answer is begun while half of this is free, or while it fits.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._reserved_bytes = 0
        self._unsent_bytes = 0
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def used_bytes(self) -> int:
        return self._reserved_bytes + self._unsent_bytes

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be begun, not even what has a small answer."""
        return self.used_bytes > self._bytes_max

    def take(self, byte_count: int) -> bool:
        """Reserve room for an answer that is going to be made; False if it has to wait."""
        used = self.used_bytes
        # What is pushed may keep the queue from ever being empty.
        if used > self._bytes_max // 2 and used + byte_count > self._bytes_max:
            return False
        self._reserved_bytes += byte_count
        return True

    def give_back(self, byte_count: int) -> None:
        """What was reserved was not needed, or is counted as unsent now."""
        self._reserved_bytes -= byte_count
        assert self._reserved_bytes >= 0
        self._wake()

    def note_unsent(self, byte_count: int) -> None:
        """So much is queued for the client in all, pushes included."""
        self._unsent_bytes = byte_count
        self._wake()

    async def shrinks(self) -> None:
        """Wait until less may be under way than now. Cancelling the wait is harmless."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
