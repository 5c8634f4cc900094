"""Budget: the bytes of requests and answers of all connections that are under way."""

from __future__ import annotations

import asyncio
from collections import deque


class Budget:
    """Bytes that may be used at once; who finds none waits its turn."""

    def __init__(self, bytes_max: int) -> None:
        self._free = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, byte_count: int) -> None:
        """Take bytes, and wait until there are so many."""
        if not self._waiting and byte_count <= self._free:
            self._free -= byte_count
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((byte_count, place))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back(byte_count)
            raise

    def give_back(self, byte_count: int) -> None:
        """Give bytes back, which lets others go on."""
        self._free += byte_count
        while self._waiting:
            wanted, place = self._waiting[0]
            if place.done():
                self._waiting.popleft()
                continue
            if wanted > self._free:
                break
            self._waiting.popleft()
            self._free -= wanted
            place.set_result(None)
