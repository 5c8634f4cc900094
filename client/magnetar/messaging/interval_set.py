"""A set of offsets as sorted ranges, which is small if offsets are consecutive. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from magnetar_core.invariants import BrokenInvariant

# First to last, both included, as on the wire.
Range = tuple[int, int]


class IntervalSet:
    """Disjoint ranges that do not touch, in ascending order."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __len__(self) -> int:
        """Return how many offsets there are."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._firsts, self._lasts, strict=True)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset <= self._lasts[at]

    def add(self, first: int, last: int) -> None:
        """Add the offsets from `first` to `last`."""
        if first > last:
            raise BrokenInvariant(f"a range from {first} to {last}")
        firsts, lasts = self._firsts, self._lasts
        if not lasts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            return
        begin = bisect_left(lasts, first - 1)
        end = bisect_right(firsts, last + 1)
        if begin < end:
            first = min(first, firsts[begin])
            last = max(last, lasts[end - 1])
        firsts[begin:end] = [first]
        lasts[begin:end] = [last]

    def remove(self, first: int, last: int) -> None:
        """Remove the offsets from `first` to `last`."""
        firsts, lasts = self._firsts, self._lasts
        begin, end = bisect_left(lasts, first), bisect_right(firsts, last)
        if begin == end:
            return
        first_of_all = firsts[begin]
        if lasts[end - 1] > last:
            # The end of the last range stays, as when offsets leave one after another.
            end -= 1
            firsts[end] = last + 1
        del firsts[begin:end], lasts[begin:end]
        if first_of_all < first:
            firsts.insert(begin, first_of_all)
            lasts.insert(begin, first - 1)

    def add_all(self, ranges: Iterable[Range]) -> None:
        """Add ranges."""
        for first, last in ranges:
            self.add(first, last)

    def remove_all(self, ranges: Iterable[Range]) -> None:
        """Remove ranges."""
        for first, last in ranges:
            self.remove(first, last)

    def within(self, first: int, last: int) -> list[Range]:
        """Return the part of the set that lies in a range."""
        begin = bisect_left(self._lasts, first)
        end = bisect_right(self._firsts, last)
        return [
            (max(first, self._firsts[at]), min(last, self._lasts[at])) for at in range(begin, end)
        ]

    def clear(self) -> None:
        """Remove everything."""
        self._firsts.clear()
        self._lasts.clear()
