"""A partition's log in memory: where it begins and ends, and its newest entries.

The log runs ahead of the store: `end_offset` counts what was applied, `durable_end` what may be
shown to anyone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from magnetar_broker.entries import Entry, MarkerEntry
from magnetar_broker.offset_set import OffsetSet, Range
from magnetar_broker.tails import Tails
from magnetar_core.invariants import BrokenInvariant

# Of memory, besides a batch's own; measured.
DATA_BYTES = 200
MARKER_BYTES = 450


class PartitionLog:
    """Offsets and tail of one partition.

    Args:
        tail_bytes_max: payload bytes of the newest entries to keep.
        ledger_id: raised when something that was acknowledged is lost.
        tails: those of all partitions, which share a budget too.
    """

    def __init__(
        self,
        *,
        first_offset: int = 0,
        end_offset: int = 0,
        retained_bytes: int = 0,
        tail_bytes_max: int,
        skipped: Iterable[Range] = (),
        ledger_id: int = 1,
        tails: Tails | None = None,
    ) -> None:
        self.ledger_id = ledger_id
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.durable_end = end_offset
        self.retained_bytes = retained_bytes
        # What was given up since it cannot be read, ascending; hardly ever anything.
        self.skipped: list[Range] = list(skipped)
        self._tail_bytes_max = tail_bytes_max
        self._tails = tails if tails is not None else Tails(tail_bytes_max)
        self._tail: list[Entry] = []
        self._tail_start = 0
        self._tail_bytes = 0
        # Offsets from which somebody is reading; trimming stops before them.
        self._pins: dict[int, int] = {}
        self._next_pin = 0

    def check(self) -> None:
        """Our bugs assert; clients' mistakes raise."""
        assert self.first_offset <= self.durable_end <= self.end_offset

    def append(self, entry: Entry) -> None:
        if entry.entry_id != self.end_offset:
            raise BrokenInvariant(f"entry {entry.entry_id} does not follow {self.end_offset}")
        self.end_offset = entry.end
        self.retained_bytes += entry.retained_bytes
        cost = self._tail_cost(entry)
        self._tail.append(entry)
        self._tail_bytes += cost
        self._tails.grew(self, cost)
        while self._tail_bytes > self._tail_bytes_max:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Keep the oldest entry of the tail no more in memory; there is one."""
        cost = self._tail_cost(self._tail[self._tail_start])
        self._tail_bytes -= cost
        self._tails.shrank(self, cost)
        self._tail_start += 1
        # What was dropped is held until then: a third of what is kept, at most.
        if self._tail_start * 4 > len(self._tail):
            del self._tail[: self._tail_start]
            self._tail_start = 0

    def forget_tail(self) -> None:
        """The partition was deleted."""
        self._tails.forget(self)
        self._tail.clear()
        self._tail_start = self._tail_bytes = 0

    def advance(self, durable_end: int) -> None:
        """The records up to here are durable."""
        self.durable_end = max(self.durable_end, durable_end)

    def tail_from(self, offset: int, *, entries_max: int) -> list[Entry]:
        """Durable entries from the one that holds `offset`; empty when it is not in the tail."""
        at = bisect_right(self._tail, offset, lo=self._tail_start, key=_entry_id) - 1
        if at < self._tail_start:
            return []
        entries = self._tail[at : at + entries_max]
        return [entry for entry in entries if entry.end <= self.durable_end]

    def readable_from(self, offset: int) -> tuple[int, int]:
        """The first offset from here on that was not given up, and where what is readable ends."""
        end = self.durable_end
        for first, last in self.skipped:
            if first <= offset <= last:
                offset = last + 1
            elif first > offset:
                end = min(end, first)
        return offset, max(offset, end)

    def skip(self, ranges: Iterable[Range]) -> None:
        """Give these up: nobody reads them any more."""
        whole = OffsetSet(self.skipped)
        for first, last in ranges:
            whole.add(first, last)
        self.skipped = list(whole.ranges())

    def jump(self, end_offset: int) -> None:
        """Go on behind offsets that were given out and lost: nobody may get them again."""
        if end_offset > self.end_offset:
            self.skip([(self.end_offset, end_offset - 1)])
            self.end_offset = self.durable_end = end_offset

    def pin(self, offset: int) -> int:
        """Somebody reads from here; returns a handle for unpin()."""
        self._next_pin += 1
        self._pins[self._next_pin] = offset
        return self._next_pin

    def unpin(self, handle: int) -> None:
        del self._pins[handle]

    @property
    def lowest_pin(self) -> int | None:
        return min(self._pins.values(), default=None)

    def trim(self, first_offset: int, trimmed_bytes: int) -> None:
        """Retention removed what lies below."""
        self.first_offset = first_offset
        self.retained_bytes -= trimmed_bytes
        self.skipped = [one for one in self.skipped if one[1] >= first_offset]

    @staticmethod
    def _tail_cost(entry: Entry) -> int:
        # A marker's messages are not in the tail, but its writers are objects of their own.
        return MARKER_BYTES if isinstance(entry, MarkerEntry) else DATA_BYTES + len(entry.batch)


def _entry_id(entry: Entry) -> int:
    return entry.entry_id
