"""Tails of all partitions: the newest entries share a budget, so many busy tails are shorter.

The tail of the partition with the oldest append shrinks first, from its oldest entry on: its
readers then read from the store.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Tail(Protocol):
    """The newest entries of a partition."""

    def drop_oldest(self) -> None:
        """Drop an entry, and call shrank(); the tail is not empty."""
        ...


class Tails:
    """Keeps the tails of all partitions of a process below a limit.

    Args:
        bytes_max: limit of all tails together.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.byte_count = 0
        # The size of each tail; the tail with the latest append comes last.
        self._sizes: OrderedDict[Tail, int] = OrderedDict()

    def check(self) -> None:
        """Check the invariants."""
        assert self.byte_count == sum(self._sizes.values())
        assert self.byte_count <= self._bytes_max
        assert all(size > 0 for size in self._sizes.values())

    def grew(self, tail: Tail, byte_count: int) -> None:
        """Make room after an append: other tails shrink first, this tail last."""
        self._sizes[tail] = self._sizes.get(tail, 0) + byte_count
        self._sizes.move_to_end(tail)
        self.byte_count += byte_count
        self._make_room()

    def limit(self, bytes_max: int) -> None:
        """Change the limit; what is above it is dropped."""
        self._bytes_max = bytes_max
        self._make_room()

    def shrank(self, tail: Tail, byte_count: int) -> None:
        """Note that a tail has shrunk."""
        left = self._sizes[tail] - byte_count
        self.byte_count -= byte_count
        if left:
            self._sizes[tail] = left
        else:
            del self._sizes[tail]

    def forget(self, tail: Tail) -> None:
        """Forget a tail: its partition was deleted."""
        self.byte_count -= self._sizes.pop(tail, 0)

    def _make_room(self) -> None:
        while self.byte_count > self._bytes_max:
            next(iter(self._sizes)).drop_oldest()
