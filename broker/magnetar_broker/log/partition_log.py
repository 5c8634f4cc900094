"""Log of a partition in memory: where it begins and ends, and its newest entries.

The log runs ahead of the store: `end_offset` counts applied entries, `durable_end` entries that may
be shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final

from magnetar_broker.budgets.tails import Tails
from magnetar_broker.log.entries import DataEntry, Entry
from magnetar_broker.log.offset_set import OffsetSet, Range
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.invariants import BrokenInvariant

# In place of an entry that the tail has dropped.
_DROPPED: Final = DataEntry(0, 1, 0, b"")


class PartitionLog:
    """Offsets and tail of a partition.

    Args:
        tail_bytes_max: payload bytes of the newest entries to keep.
        ledger_id: increases when acknowledged data is lost.
        tails: the tails of all partitions, which share a budget.
        highest_stamp: no marker that was ever here has a higher one.
        last_append_time_ms: no entry that was ever here has a later append time.
        timestamp_lead_ms: no timestamp of a Kafka client was further ahead of its append time.
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
        highest_stamp: int = NO_STAMP,
        last_append_time_ms: int = 0,
        timestamp_lead_ms: int = 0,
    ) -> None:
        self.timestamp_lead_ms = timestamp_lead_ms
        self.highest_stamp = highest_stamp
        self.last_append_time_ms = last_append_time_ms
        self.ledger_id = ledger_id
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.durable_end = end_offset
        self.retained_bytes = retained_bytes
        # Ranges that were given up because they cannot be read, ascending; usually empty.
        self.skipped: list[Range] = list(skipped)
        self._tail_bytes_max = tail_bytes_max
        self._tails = tails if tails is not None else Tails(tail_bytes_max)
        self._tail: list[Entry] = []
        self._tail_start = 0
        self._tail_bytes = 0
        # Offsets from which clients are reading; trimming stops before them.
        self._pins: dict[int, int] = {}
        self._next_pin = 0
        # Called when there is more to read; usually empty.
        self._waiting: dict[Callable[[], None], None] = {}

    def check(self) -> None:
        """Check the invariants."""
        assert self.first_offset <= self.durable_end <= self.end_offset

    def next_append_time_ms(self, now_ms: int) -> int:
        """Return the append time of the next entry: now, but not before the last entry's.

        The wall clock may have been set back, and searches by time need times in order.
        """
        return max(now_ms, self.last_append_time_ms)

    def append(self, entry: Entry) -> None:
        """Append an entry."""
        entry_id, append_time_ms = entry.entry_id, entry.append_time_ms
        if entry_id != self.end_offset:
            raise BrokenInvariant(f"entry {entry_id} does not follow {self.end_offset}")
        if append_time_ms < self.last_append_time_ms:
            raise BrokenInvariant(
                f"entry {entry_id} of {append_time_ms} ms is older than the one before it, of"
                f" {self.last_append_time_ms} ms"
            )
        self.end_offset = entry_id + entry.count
        self.last_append_time_ms = append_time_ms
        if entry.stamp > self.highest_stamp:
            self.highest_stamp = entry.stamp
        self.retained_bytes += entry.retained_bytes
        cost = entry.tail_bytes
        self._tail.append(entry)
        self._tail_bytes += cost
        self._tails.grew(self, cost)
        while self._tail_bytes > self._tail_bytes_max:
            self.drop_oldest()

    @property
    def oldest_ms(self) -> int:
        """When the tail's oldest entry was appended; the tail is not empty."""
        return self._tail[self._tail_start].append_time_ms

    def drop_oldest(self) -> None:
        """Drop the tail's oldest entry from memory; the tail is not empty."""
        cost = self._tail[self._tail_start].tail_bytes
        self._tail_bytes -= cost
        self._tails.shrank(self, cost)
        # Places stay in the list for some time, but what was in them goes.
        self._tail[self._tail_start] = _DROPPED
        self._tail_start += 1
        if self._tail_start * 4 > len(self._tail):
            del self._tail[: self._tail_start]
            self._tail_start = 0

    def forget_tail(self) -> None:
        """Drop the tail, and keep none from now on.

        The partition was deleted, or its broker has ended: what it still does takes no memory of
        the process.
        """
        self._tail_bytes_max = 0
        self._tails.forget(self)
        self._tail.clear()
        self._tail_start = self._tail_bytes = 0
        self._wake()

    def advance(self, durable_end: int) -> None:
        """Note that entries up to here are durable."""
        self.durable_end = max(self.durable_end, durable_end)
        if self._waiting:
            self._wake()

    def wait(self, callback: Callable[[], None]) -> None:
        """Call back whenever there is more to read, or the log has ended, until forget()."""
        self._waiting[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call back. Repeating it is harmless."""
        self._waiting.pop(callback, None)

    def _wake(self) -> None:
        for callback in list(self._waiting):
            callback()

    def tail_from(self, offset: int, *, entries_max: int) -> list[Entry]:
        """Return durable entries, beginning with the entry that holds `offset`.

        The result is empty if that entry is not in the tail.
        """
        at = bisect_right(self._tail, offset, lo=self._tail_start, key=_entry_id) - 1
        if at < self._tail_start:
            return []
        entries = self._tail[at : at + entries_max]
        return [entry for entry in entries if entry.end <= self.durable_end]

    def readable_from(self, offset: int) -> tuple[int, int]:
        """Return the first readable offset from here on, and the end of the readable range."""
        end = self.durable_end
        for first, last in self.skipped:
            if first <= offset <= last:
                offset = last + 1
            elif first > offset:
                end = min(end, first)
        return offset, max(offset, end)

    def skip(self, ranges: Iterable[Range]) -> None:
        """Give ranges up: reads leave them out from now on."""
        whole = OffsetSet(self.skipped)
        for first, last in ranges:
            whole.add(first, last)
        self.skipped = list(whole.ranges())

    def jump(self, end_offset: int) -> None:
        """Continue after offsets that were given out and lost: they must not be given out again."""
        if end_offset > self.end_offset:
            self.skip([(self.end_offset, end_offset - 1)])
            self.end_offset = self.durable_end = end_offset

    def pin(self, offset: int) -> int:
        """Note that a client reads from here; returns a handle for unpin()."""
        self._next_pin += 1
        self._pins[self._next_pin] = offset
        return self._next_pin

    def unpin(self, handle: int) -> None:
        """Note that the client has finished."""
        del self._pins[handle]

    @property
    def lowest_pin(self) -> int | None:
        """Return the lowest offset from which a client reads; None: no client reads."""
        return min(self._pins.values(), default=None)

    def trim(self, first_offset: int, trimmed_bytes: int) -> None:
        """Note that retention removed entries below first_offset."""
        self.first_offset = first_offset
        self.retained_bytes -= trimmed_bytes
        self.skipped = [one for one in self.skipped if one[1] >= first_offset]


def _entry_id(entry: Entry) -> int:
    return entry.entry_id
