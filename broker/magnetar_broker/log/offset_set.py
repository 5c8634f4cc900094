"""Sets of offsets, as bits in chunks of 4,096. Pure.

A cursor's row stores a chunk, so the set uses the same unit: a Python integer per chunk. Runs are
cheap, and so are scattered bits; every operation costs the chunks that it touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

CHUNK_BITS = 4096
CHUNK_BYTES = CHUNK_BITS // 8
FULL_CHUNK = (1 << CHUNK_BITS) - 1

# A range: first and last offset, both included.
Range = tuple[int, int]


def chunk_masks(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the chunks that a range touches, each with the bits of the range in it."""
    chunk, start = divmod(first, CHUNK_BITS)
    last_chunk, end = divmod(last, CHUNK_BITS)
    while chunk < last_chunk:
        yield chunk, FULL_CHUNK >> start << start
        chunk, start = chunk + 1, 0
    if chunk == last_chunk and start <= end:
        yield chunk, ((1 << (end - start + 1)) - 1) << start


def ranges_of_mask(mask: int, base: int = 0) -> Iterator[Range]:
    """Yield the runs of set bits, ascending; bit 0 is the offset `base`."""
    while mask:
        skipped = (mask & -mask).bit_length() - 1
        mask >>= skipped
        base += skipped
        run = (~mask & (mask + 1)).bit_length() - 1
        yield base, base + run - 1
        mask >>= run
        base += run


class OffsetSet:
    """A mutable set of offsets."""

    __slots__ = ("_chunks",)

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._chunks: dict[int, int] = {}
        for first, last in ranges:
            self.add(first, last)

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __len__(self) -> int:
        return sum(mask.bit_count() for mask in self._chunks.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSet) and self._chunks == other._chunks

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, offset: int) -> bool:
        chunk, bit = divmod(offset, CHUNK_BITS)
        return bool(self._chunks.get(chunk, 0) >> bit & 1)

    def copy(self) -> OffsetSet:
        """Return an independent copy."""
        twin = OffsetSet()
        twin._chunks = dict(self._chunks)
        return twin

    def clear(self) -> None:
        """Remove all offsets."""
        self._chunks.clear()

    # Most ranges lie in a single chunk. For those, the methods that each ack calls use no
    # generators, which would cost more than all the rest.

    def add(self, first: int, last: int) -> None:
        """Add a range."""
        chunk = first // CHUNK_BITS
        if chunk == last // CHUNK_BITS:
            if first <= last:
                bits = ((2 << last - first) - 1) << first % CHUNK_BITS
                self._chunks[chunk] = self._chunks.get(chunk, 0) | bits
            return
        for chunk, mask in chunk_masks(first, last):
            self._chunks[chunk] = self._chunks.get(chunk, 0) | mask

    def discard(self, first: int, last: int) -> None:
        """Remove a range."""
        if not self._chunks:
            return
        chunk = first // CHUNK_BITS
        if chunk == last // CHUNK_BITS:
            before = self._chunks.get(chunk)
            if before is not None and first <= last:
                left = before & ~(((2 << last - first) - 1) << first % CHUNK_BITS)
                if left:
                    self._chunks[chunk] = left
                else:
                    del self._chunks[chunk]
            return
        for chunk, mask in self._touched(first, last):
            self._keep(chunk, self._chunks.get(chunk, 0) & ~mask)

    def intersects(self, first: int, last: int) -> bool:
        """Return whether the set has an offset of the range."""
        if not self._chunks:
            return False
        if first // CHUNK_BITS == last // CHUNK_BITS:
            return self.mask(first, last) != 0
        return any(self._chunks.get(chunk, 0) & mask for chunk, mask in self._touched(first, last))

    def within(self, ranges: Iterable[Range]) -> OffsetSet:
        """Return the members that lie in the ranges, however far these reach."""
        found = OffsetSet()
        if not self._chunks:
            return found
        for first, last in ranges:
            for chunk, mask in self._touched(first, last):
                found._keep(chunk, found._chunks.get(chunk, 0) | self.chunk(chunk) & mask)
        return found

    def mask(self, first: int, last: int) -> int:
        """Return the range's members as bits; bit 0 is `first`."""
        if not self._chunks:
            return 0
        chunk = first // CHUNK_BITS
        if chunk == last // CHUNK_BITS:
            here = self._chunks.get(chunk)
            if here is None or first > last:
                return 0
            return here >> first % CHUNK_BITS & ((2 << last - first) - 1)
        bits = 0
        for chunk, mask in self._touched(first, last):
            here = self._chunks.get(chunk, 0) & mask
            if here:
                shift = chunk * CHUNK_BITS - first
                bits |= here << shift if shift >= 0 else here >> -shift
        return bits

    def update(self, other: OffsetSet) -> None:
        """Add all offsets of another set."""
        for chunk, mask in other._chunks.items():
            self._chunks[chunk] = self._chunks.get(chunk, 0) | mask

    def difference_update(self, other: OffsetSet) -> None:
        """Remove all offsets of another set."""
        for chunk, mask in other._chunks.items():
            if chunk in self._chunks:
                self._keep(chunk, self._chunks[chunk] & ~mask)

    def intersection(self, other: OffsetSet) -> OffsetSet:
        """Return the offsets that both sets have."""
        common = OffsetSet()
        for chunk, mask in self._chunks.items():
            common._keep(chunk, mask & other._chunks.get(chunk, 0))
        return common

    def first(self) -> int:
        """Return the lowest member.

        Raises:
            ValueError: the set is empty.
        """
        chunk = min(self._chunks)
        mask = self._chunks[chunk]
        return chunk * CHUNK_BITS + (mask & -mask).bit_length() - 1

    def ranges(self) -> Iterator[Range]:
        """Yield runs of members, ascending; a run that crosses chunks is a single range."""
        pending: Range | None = None
        for chunk in sorted(self._chunks):
            for first, last in ranges_of_mask(self._chunks[chunk], chunk * CHUNK_BITS):
                if pending is not None and pending[1] + 1 == first:
                    pending = (pending[0], last)
                    continue
                if pending is not None:
                    yield pending
                pending = (first, last)
        if pending is not None:
            yield pending

    def chunk(self, chunk: int) -> int:
        """Return a chunk's bits."""
        return self._chunks.get(chunk, 0)

    def chunks(self) -> list[int]:
        """Return the numbers of the chunks that have members, ascending."""
        return sorted(self._chunks)

    def set_chunk(self, chunk: int, mask: int) -> None:
        """Replace a chunk's bits."""
        self._keep(chunk, mask)

    def _touched(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Return like chunk_masks, but only existing chunks: ranges may reach from 0."""
        first_chunk, last_chunk = first // CHUNK_BITS, last // CHUNK_BITS
        if last_chunk - first_chunk < len(self._chunks):
            return chunk_masks(first, last)
        return [
            (
                chunk,
                next(
                    chunk_masks(
                        max(first, chunk * CHUNK_BITS), min(last, (chunk + 1) * CHUNK_BITS - 1)
                    )
                )[1],
            )
            for chunk in self._chunks
            if first_chunk <= chunk <= last_chunk
        ]

    def _keep(self, chunk: int, mask: int) -> None:
        if mask:
            self._chunks[chunk] = mask
        else:
            self._chunks.pop(chunk, None)
