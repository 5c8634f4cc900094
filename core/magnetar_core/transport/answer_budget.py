"""Budget of the answers that a server makes for a conversation and that its client has not taken.

A client that asks for much and reads nothing would otherwise fill the server's memory. When the
budget is spent, the client's commands wait in the network, where they cost the server nothing.
"""

from __future__ import annotations

import asyncio

from magnetar_core.invariants import BrokenInvariant
from magnetar_core.transport.waiters import wake


class AnswerBudget:
    """Budget of a conversation. All unary calls of a connection share a budget.

    Args:
        bytes_max: the server begins another answer while half of this is free, or while the answer
            fits.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._reserved_bytes = 0
        self._unsent_bytes = 0
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def used_bytes(self) -> int:
        """Bytes that are reserved for answers, or wait for the client."""
        return self._reserved_bytes + self._unsent_bytes

    @property
    def is_spent(self) -> bool:
        """Whether the server must not begin another answer, not even a small one."""
        return self.used_bytes > self._bytes_max

    def take(self, byte_count: int) -> bool:
        """Reserve room for an answer that is about to be made; False if the answer has to wait."""
        used = self.used_bytes
        # Pushed messages may keep the queue from ever being empty.
        if used > self._bytes_max // 2 and used + byte_count > self._bytes_max:
            return False
        self._reserved_bytes += byte_count
        return True

    def give_back(self, byte_count: int) -> None:
        """Release a reservation: the answer is not made, or counts as unsent from now on."""
        self._reserved_bytes -= byte_count
        if self._reserved_bytes < 0:
            raise BrokenInvariant("more is given back than was reserved")
        self._wake()

    def note_unsent(self, byte_count: int) -> None:
        """Note how many bytes are queued for the client in all, pushes included."""
        self._unsent_bytes = byte_count
        self._wake()

    async def shrinks(self) -> None:
        """Wait until fewer bytes may be in use than now. Cancelling the wait is harmless."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            wake(waiter)
