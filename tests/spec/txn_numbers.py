"""TxnIDs as the small numbers of the model. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from tests.spec.recording import Noted

from magnetar_core.history import events
from magnetar_core.history.events import Range

# A TxnID that was not issued, and is not the next one either.
OUTSIDE: Final = 1_000


class TxnNumbers:
    """Numbers of TxnIDs: the bounds of the code are the multiples of `reserved`."""

    def __init__(self, noted: Iterable[Noted]) -> None:
        issued: set[int] = set()
        bounds = {0}
        for _, event in noted:
            if isinstance(event, events.Opened):
                issued.add(event.txn_id.counter)
            elif isinstance(event, events.CounterReserved):
                bounds.add(event.bound)
            elif isinstance(event, events.CoordinatorRecovered):
                bounds.add(event.next_counter)
        self._starts = sorted(bounds)
        behind = [0] * len(self._starts)
        for counter in issued:
            place, distance = self._place(counter)
            behind[place] = max(behind[place], distance + 1)
        # One more than were issued: the next one is told with watermarks.
        self.reserved = max(behind) + 1
        self.count = self.reserved * max(1, len(self._starts) - 1)

    def _place(self, counter: int) -> tuple[int, int]:
        place = bisect_right(self._starts, counter) - 1
        return place, counter - self._starts[place]

    def of(self, counter: int) -> int:
        """Return the number of a counter. A counter that the model has no number for is OUTSIDE."""
        place, distance = self._place(counter)
        return place * self.reserved + distance if distance < self.reserved else OUTSIDE

    def within(self, ranges: Iterable[Range]) -> frozenset[int]:
        """Return the numbers whose counters are in these ranges."""
        ranges = list(ranges)
        return frozenset(
            number
            for number in range(self.count)
            if any(first <= self._counter(number) <= last for first, last in ranges)
        )

    def _counter(self, number: int) -> int:
        place, distance = divmod(number, self.reserved)
        return self._starts[place] + distance
