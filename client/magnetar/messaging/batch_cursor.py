"""Cursor of the application in a received batch."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.message import AssembledBatch, MessageColumns, ReceivedBatch
from magnetar.messaging.interval_set import IntervalSet, Range


class BatchCursor:
    """A received batch, and the offsets of it that the application has not received."""

    __slots__ = ("batch", "ranges")

    def __init__(self, batch: ReceivedBatch, ranges: list[Range]) -> None:
        self.batch = batch
        # In descending order: the next one is at the end.
        self.ranges = ranges[::-1]

    def remove(self, ranges: Iterable[Range]) -> None:
        """Remove these offsets, so that the application does not receive them."""
        kept = IntervalSet(self.ranges)
        kept.remove_all(ranges)
        if isinstance(self.batch, AssembledBatch) and list(kept) != self.ranges:
            kept = IntervalSet()
        self.ranges = list(kept)[::-1]

    @property
    def count(self) -> int:
        """Number of offsets that are left."""
        return sum(last - first + 1 for first, last in self.ranges)

    def skip(self, count: int) -> None:
        """Pass over the next messages; of their range at least one more must be left."""
        first, last = self.ranges[-1]
        self.ranges[-1] = (first + count, last)

    def take(self, count_max: int) -> MessageColumns:
        """Return the next consecutive messages; there must be some."""
        if isinstance(self.batch, AssembledBatch):
            self.ranges.clear()
            return MessageColumns(self.batch, 0, 1)
        first, last = self.ranges.pop()
        stop = min(last, first + count_max - 1)
        if stop < last:
            self.ranges.append((stop + 1, last))
        base = self.batch.first_offset
        return MessageColumns(self.batch, first - base, stop - base + 1)
