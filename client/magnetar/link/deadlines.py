"""Timeouts, which nearly always are cancelled before they expire.

Every request and every transaction has a timeout. A timer of the event loop for each would cost
about as much as the request, so a single timer, for the earliest timeout, serves all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

# Moments that were called off stay in the heap until they are more than the others and so many.
FORGOTTEN_MAX = 256


class Deadlines:
    """Calls functions at moments, in order, unless they are cancelled."""

    __slots__ = ("_callbacks", "_count", "_guarded", "_heap", "_loop", "_timer", "_timer_at_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, guarded: Callable[..., None]) -> None:
        """No call is due.

        Args:
            guarded: calls a function with arguments, which follow it, on behalf of an owner, which
                precedes it: see Runtime.guarded.
        """
        self._loop = loop
        self._guarded = guarded
        # Each with its owner.
        self._callbacks: dict[int, tuple[Callable[[Any], object], Callable[[], object]]] = {}
        # (seconds on the loop's clock, number in _callbacks); some are called off already.
        self._heap: list[tuple[float, int]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0

    def call_later(
        self, owner: Callable[[Any], object], delay_ms: float, callback: Callable[[], object]
    ) -> int:
        """Call a function after a delay in milliseconds. Returns a number for `forget`."""
        at_s = self._loop.time() + delay_ms / 1000
        self._count += 1
        number = self._count
        self._callbacks[number] = (owner, callback)
        heappush(self._heap, (at_s, number))
        if self._timer is None or at_s < self._timer_at_s:
            self._wait_until(at_s)
        return number

    def forget(self, number: int) -> None:
        """Cancel a call; harmless if it has happened."""
        if self._callbacks.pop(number, None) is None:
            return
        if len(self._heap) > 2 * len(self._callbacks) + FORGOTTEN_MAX:
            self._heap = [moment for moment in self._heap if moment[1] in self._callbacks]
            heapify(self._heap)

    def close(self) -> None:
        """Cancel all calls."""
        self._callbacks.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait_until(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = self._loop.call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        heap = self._heap
        due = []
        while heap and (heap[0][0] <= now_s or heap[0][1] not in self._callbacks):
            due.append(heappop(heap)[1])
        if heap:
            self._wait_until(heap[0][0])
        for number in due:
            found = self._callbacks.pop(number, None)
            if found is not None:
                self._guarded(*found)
