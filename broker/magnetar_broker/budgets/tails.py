"""Tails of all partitions: the newest entries share a budget, so many busy tails are shorter.

After an append the tail of the partition with the oldest append shrinks first, from its oldest
entry on: its readers then read from the store. A lower limit takes the oldest entries of all.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from typing import Protocol


class Tail(Protocol):
    """The newest entries of a partition."""

    @property
    def oldest_ms(self) -> int:
        """When the oldest entry was appended; the tail is not empty."""
        ...

    def drop_oldest(self) -> None:
        """Drop an entry, and call shrank(); the tail is not empty."""
        ...


class Tails:
    """Keeps the tails of all partitions of a process below a limit.

    Args:
        bytes_max: limit of all tails together; limit() changes it.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.byte_count = 0
        # The size of each tail; the tail with the latest append comes last.
        self._sizes: OrderedDict[Tail, int] = OrderedDict()
        self._appended_bytes = 0
        self._growth_bytes = math.inf
        self._on_growth: Callable[[], None] = lambda: None

    def after_each(self, growth_bytes: int, call: Callable[[], None]) -> None:
        """Have a function called each time that so many bytes were appended; it may limit()."""
        self._growth_bytes = growth_bytes
        self._on_growth = call

    def check(self) -> None:
        """Check the invariants."""
        assert self.byte_count == sum(self._sizes.values())
        assert self.byte_count <= self.bytes_max
        assert all(size > 0 for size in self._sizes.values())

    def grew(self, tail: Tail, byte_count: int) -> None:
        """Make room after an append: other tails shrink first, this tail last."""
        sizes = self._sizes
        sizes[tail] = sizes.get(tail, 0) + byte_count
        sizes.move_to_end(tail)
        self.byte_count += byte_count
        while self.byte_count > self.bytes_max:
            next(iter(sizes)).drop_oldest()
        self._appended_bytes += byte_count
        if self._appended_bytes >= self._growth_bytes:
            self._appended_bytes = 0
            self._on_growth()

    def limit(self, bytes_max: int) -> None:
        """Change the limit; of what is above it, the oldest entries are dropped.

        They lie together in memory: if whole tails were dropped instead, each page would keep
        entries of others, and none could be given back.
        """
        self.bytes_max = bytes_max
        if self.byte_count <= bytes_max:
            return
        oldest = [(tail.oldest_ms, number, tail) for number, tail in enumerate(self._sizes)]
        heapify(oldest)
        while self.byte_count > bytes_max:
            _, number, tail = oldest[0]
            tail.drop_oldest()
            if tail in self._sizes:
                heapreplace(oldest, (tail.oldest_ms, number, tail))
            else:
                heappop(oldest)

    def shrank(self, tail: Tail, byte_count: int) -> None:
        """Note that a tail has shrunk."""
        left = self._sizes[tail] - byte_count
        self.byte_count -= byte_count
        if left:
            self._sizes[tail] = left
        else:
            del self._sizes[tail]

    def forget(self, tail: Tail) -> None:
        """Forget a tail: its partition was deleted, or its broker has ended."""
        self.byte_count -= self._sizes.pop(tail, 0)
