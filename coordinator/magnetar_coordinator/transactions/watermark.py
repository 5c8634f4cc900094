"""Low watermark: which of this incarnation's transactions have durably ended. Pure.

Every counter below W has durably ended, except those in the live ranges. So a transaction that
stays open for long holds nothing back: after a minute it is listed instead.
Source: docs/design/0001-protocol.md, Low watermark; rule c.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from magnetar_core.invariants import BrokenInvariant

# Counters first to last, both included.
CounterRange: TypeAlias = tuple[int, int]


class Watermark(NamedTuple):
    """The watermark that brokers are told. Ranges ascend and do not touch."""

    low_watermark: int
    live: tuple[CounterRange, ...] = ()

    def covers(self, counter: int) -> bool:
        """Return whether the watermark says that a counter has ended."""
        if counter >= self.low_watermark:
            return False
        return not any(first <= counter <= last for first, last in self.live)


class WatermarkTracker:
    """Live counters in the order in which they were issued, which is the order of their ages.

    Args:
        next_counter: the first counter that was not issued yet.
        listed_age_ms_min: younger live transactions hold W back.
        ranges_max: when the watermark would need more ranges, W stays.
    """

    def __init__(self, next_counter: int, *, listed_age_ms_min: int, ranges_max: int) -> None:
        if ranges_max <= 0:
            raise BrokenInvariant(f"ranges_max is {ranges_max}")
        self._next_counter = next_counter
        self._listed_age_ms_min = listed_age_ms_min
        self._ranges_max = ranges_max
        # The start of each counter, in run time. Dictionaries keep the order of insertion.
        self._live: dict[int, int] = {}
        self._last = Watermark(0)

    def opened(self, counter: int, start_run_time_ms: int) -> None:
        """Note that a counter was issued. Counters ascend; gaps are counters that ended earlier."""
        if counter in self._live:
            raise BrokenInvariant(f"counter {counter} is issued twice")
        self._live[counter] = start_run_time_ms
        self._next_counter = max(self._next_counter, counter + 1)

    def skipped_to(self, next_counter: int) -> None:
        """Note that smaller counters that were not issued never will be: they count as ended."""
        self._next_counter = max(self._next_counter, next_counter)

    def ended_durably(self, counter: int) -> None:
        """Note that a counter's outcome is durable, not merely applied."""
        del self._live[counter]

    def is_live(self, counter: int) -> bool:
        """Return whether a counter was issued and has not durably ended."""
        return counter in self._live

    def advance(self, run_time_ms: int) -> Watermark:
        """Return the watermark now; W never goes back.

        A counter that an earlier watermark covered may be listed again (see below): a broker that
        remembers the earlier watermark still covers it; another broker is merely cautious.
        """
        low_watermark = self._next_counter
        ranges: list[list[int]] = []
        for counter, start_run_time_ms in self._live.items():
            is_young = run_time_ms - start_run_time_ms < self._listed_age_ms_min
            # A listed counter stays listed, also when a restart set run time back.
            if is_young and counter >= self._last.low_watermark:
                low_watermark = counter
                break
            if ranges and ranges[-1][1] == counter - 1:
                ranges[-1][1] = counter
            elif len(ranges) < self._ranges_max:
                ranges.append([counter, counter])
            elif counter < self._last.low_watermark:
                # Ranges break up when their middle ends. Listing an ended counter as live is always
                # safe; taking W back never is.
                ranges[-1][1] = counter
            else:
                low_watermark = counter
                break
        if low_watermark < self._last.low_watermark:
            raise BrokenInvariant("the watermark goes back")
        self._last = Watermark(low_watermark, tuple((first, last) for first, last in ranges))
        return self._last
