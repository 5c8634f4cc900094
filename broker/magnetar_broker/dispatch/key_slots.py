"""Slots of the messages in stored batches. Pure.

The header of a batch with a single key has that key's hash, so the batch need not be opened. Any
other batch is opened once, and its slots are kept until all its messages are settled: two bytes a
message, or a single number for a batch with a single slot.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import TypeAlias, cast

import google_crc32c

from magnetar_broker.dispatch.key_ranges import EMPTY_KEY_SLOT, slot_of_hash
from magnetar_broker.log.offset_set import Range
from magnetar_core.batch import HEADER, Part, decode, read_header
from magnetar_core.errors import MagnetarError

# A batch whose body claims to be larger is not opened.
OPENED_BYTES_MAX = 64 << 20

# The slot of each message, or of all messages.
Slots: TypeAlias = "array[int] | int"
# A run of messages in a slot: the slot, the first and the last offset.
Run = tuple[int, int, int]


def slots_of(batch: bytes) -> Slots | None:
    """Return the slots of a batch's messages; None for a part that follows another part.

    A batch that cannot be opened has the slot of the empty key: its consumer reports the damage.
    """
    try:
        header = read_header(batch, verify=False)
        if header.part is Part.FIRST:
            return _slot_of_first_part(batch)
        if header.part:
            return None
        if header.key_hash:
            return slot_of_hash(header.key_hash)
        if header.body_bytes > OPENED_BYTES_MAX:
            return EMPTY_KEY_SLOT
        keys = decode(batch, verify=False).keys()
    except MagnetarError:
        return EMPTY_KEY_SLOT
    if keys is None:
        return EMPTY_KEY_SLOT
    # Messages without a key stay in order with those that have an empty one.
    hashes = map(google_crc32c.value, [key or b"" for key in keys])
    slots = array("H", map(slot_of_hash, hashes))
    return slots[0] if slots.count(slots[0]) == len(slots) else slots


def _slot_of_first_part(batch: bytes) -> int:
    """Return the slot of a message in parts.

    Its first part begins with the whole batch's header.
    """
    if len(batch) < 2 * HEADER.size:
        return EMPTY_KEY_SLOT
    *_, key_hash = HEADER.unpack_from(batch, HEADER.size)
    return slot_of_hash(key_hash)


class KnownSlots:
    """Slots of the batches that were read, by offset."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        # The last offset and the slots of each batch, by its first offset.
        self._batches: dict[int, tuple[int, Slots]] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def knows(self, first: int) -> bool:
        """Return whether the slots of the batch that begins here are known."""
        return first in self._batches

    def add(self, first: int, last: int, slots: Slots) -> None:
        """Add the slots of a batch."""
        if first not in self._batches:
            insort(self._starts, first)
        self._batches[first] = (last, slots)

    def runs_of(self, ranges: Iterable[Range]) -> Iterator[Run]:
        """Yield the runs of ascending ranges, many of which lie in the same batch; see runs()."""
        start, end, slots = 0, -1, cast(Slots, 0)
        for first, last in ranges:
            if last > end:
                place = bisect_right(self._starts, first) - 1
                if place < 0:
                    yield from self.runs(first, last)
                    continue
                start = self._starts[place]
                end, slots = self._batches[start]
            if last > end:
                yield from self.runs(first, last)
            elif isinstance(slots, int):
                yield slots, first, last
            elif first == last:
                yield slots[first - start], first, last
            else:
                yield from _runs_within(slots, start, first, last)

    def slot_at(self, offset: int) -> int | None:
        """Return the slot of an offset, if it is known."""
        for slot, _, _ in self.runs(offset, offset):
            return slot
        return None

    def runs(self, first: int, last: int) -> Iterator[Run]:
        """Yield the known part of a range, as runs of a single slot each; ascending."""
        for start, end, slots in self._overlapping(first, last):
            low, high = max(first, start), min(last, end)
            if isinstance(slots, int):
                yield slots, low, high
                continue
            yield from _runs_within(slots, start, low, high)

    def batches(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return first and last offset of each batch that has offsets in a range."""
        return [(start, end) for start, end, _ in self._overlapping(first, last)]

    def forget(self, first: int) -> None:
        """Forget the batch that begins here: it is settled."""
        del self._batches[first]
        del self._starts[bisect_right(self._starts, first) - 1]

    def clear(self) -> None:
        """Forget all batches."""
        self._starts.clear()
        self._batches.clear()

    def _overlapping(self, first: int, last: int) -> Iterator[tuple[int, int, Slots]]:
        place = max(bisect_right(self._starts, first) - 1, 0)
        for start in self._starts[place : bisect_right(self._starts, last)]:
            end, slots = self._batches[start]
            if end >= first:
                yield start, end, slots


def _runs_within(slots: array[int], start: int, first: int, last: int) -> Iterator[Run]:
    run_slot, run_first = slots[first - start], first
    for offset in range(first + 1, last + 1):
        slot = slots[offset - start]
        if slot != run_slot:
            yield run_slot, run_first, offset - 1
            run_slot, run_first = slot, offset
    yield run_slot, run_first, last
