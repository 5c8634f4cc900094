"""The low watermark: which of this incarnation's transactions have durably ended. Pure.

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
    """What brokers are told. Ranges ascend and do not touch."""

    low_watermark: int
    live: tuple[CounterRange, ...] = ()

    def covers(self, counter: int) -> bool:
        if counter >= self.low_watermark:
            return False
        return not any(first <= counter <= last for first, last in self.live)


class WatermarkTracker:
    """Live counters in the order in which they were issued, which is the order of their ages.

    Args:
        next_counter: the first counter that was not issued yet.
        listed_age_ms_min: younger live transactions hold W back.
        ranges_max: when more would be needed, W stays.
    """

    def __init__(self, next_counter: int, *, listed_age_ms_min: int, ranges_max: int) -> None:
        if ranges_max <= 0:
            raise BrokenInvariant(f"ranges_max is {ranges_max}")
        self._next_counter = next_counter
        self._listed_age_ms_min = listed_age_ms_min
        self._ranges_max = ranges_max
        # Start in run time by counter. Dictionaries keep the order of insertion.
        self._live: dict[int, int] = {}
        self._last = Watermark(0)

    def opened(self, counter: int, start_run_time_ms: int) -> None:
        """A counter was issued; in ascending order, gaps being counters that ended earlier."""
        if counter in self._live:
            raise BrokenInvariant(f"counter {counter} is issued twice")
        self._live[counter] = start_run_time_ms
        self._next_counter = max(self._next_counter, counter + 1)

    def skipped_to(self, next_counter: int) -> None:
        """Counters below it that were not issued never will be: they count as ended."""
        self._next_counter = max(self._next_counter, next_counter)

    def ended_durably(self, counter: int) -> None:
        """Its outcome is durable, not merely applied."""
        del self._live[counter]

    def is_live(self, counter: int) -> bool:
        """Whether a counter was issued and has not durably ended."""
        return counter in self._live

    def advance(self, run_time_ms: int) -> Watermark:
        """The watermark now; W never goes back.

        What an earlier one covered may be listed again (see below): whoever remembers that one goes
        on covering it, whoever does not is merely cautious.
        """
        low_watermark = self._next_counter
        ranges: list[list[int]] = []
        for counter, start_run_time_ms in self._live.items():
            is_young = run_time_ms - start_run_time_ms < self._listed_age_ms_min
            # What was listed stays listed, also when run time was set back by a restart.
            if is_young and counter >= self._last.low_watermark:
                low_watermark = counter
                break
            if ranges and ranges[-1][1] == counter - 1:
                ranges[-1][1] = counter
            elif len(ranges) < self._ranges_max:
                ranges.append([counter, counter])
            elif counter < self._last.low_watermark:
                # Ranges break up when their middle ends. To list what has ended as live is always
                # safe; to take W back never is.
                ranges[-1][1] = counter
            else:
                low_watermark = counter
                break
        if low_watermark < self._last.low_watermark:
            raise BrokenInvariant("the watermark goes back")
        self._last = Watermark(low_watermark, tuple((first, last) for first, last in ranges))
        return self._last
