"""The newest entries of all partitions share a budget: many busy ones keep less of each.

What goes first is the tail of the partition that was appended to least recently, from its oldest
entry on: whoever reads there reads from the store.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Tail(Protocol):
    """The newest entries of one partition."""

    def drop_oldest(self) -> None:
        """Forget one entry, and tell shrank(); there is one."""
        ...


class Tails:
    """Keeps the tails of all partitions of a broker below one limit.

    Args:
        bytes_max: of all tails together.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.byte_count = 0
        # With what each has; the one that was appended to last comes last.
        self._sizes: OrderedDict[Tail, int] = OrderedDict()

    def check(self) -> None:
        """Our bugs assert."""
        assert self.byte_count == sum(self._sizes.values())
        assert self.byte_count <= self._bytes_max
        assert all(size > 0 for size in self._sizes.values())

    def grew(self, tail: Tail, byte_count: int) -> None:
        """An entry was appended: others make room, and in the end this one."""
        self._sizes[tail] = self._sizes.get(tail, 0) + byte_count
        self._sizes.move_to_end(tail)
        self.byte_count += byte_count
        while self.byte_count > self._bytes_max:
            next(iter(self._sizes)).drop_oldest()

    def shrank(self, tail: Tail, byte_count: int) -> None:
        left = self._sizes[tail] - byte_count
        self.byte_count -= byte_count
        if left:
            self._sizes[tail] = left
        else:
            del self._sizes[tail]

    def forget(self, tail: Tail) -> None:
        """Its partition was deleted."""
        self.byte_count -= self._sizes.pop(tail, 0)
