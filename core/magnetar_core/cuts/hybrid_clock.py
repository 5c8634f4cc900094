"""Hybrid logical clock of a coordinator: the stamps of commits. Pure.

A stamp has milliseconds in its upper 48 bits, and a counter in the lower 16; the counter overflows
into the milliseconds. Stamps rise with each decision, and above every stamp that the clock was
told. A stored bound lies ahead of them: after a start they continue there, so that no stamp is
given twice, whatever the wall clock says by then.
Source: docs/design/0015-cuts.md, Stamps.
"""

from __future__ import annotations

from typing import Final

from magnetar_core.errors import InvalidArgument
from magnetar_core.invariants import BrokenInvariant

# The stamp of plain messages, and of transactions that are not committed.
NO_STAMP: Final = 0
COUNTER_BITS: Final = 16
# The farthest that a stamp from another server or a client may be ahead of the time here: a
# century, so that no client can use the stamps up.
AHEAD_MS_MAX: Final = 100 * 366 * 86_400_000
# How far a new bound lies ahead: a second, in which it need not be stored again.
BOUND_AHEAD: Final = 1_000 << COUNTER_BITS
# Half of the times that fit: stamps are left, even if a clock shows nonsense.
_TIME_MS_MAX: Final = (1 << 47) - 1


def stamp_at(time_ms: int) -> int:
    """Return the first stamp of a time, in milliseconds since the Unix epoch."""
    return min(max(time_ms, 0), _TIME_MS_MAX) << COUNTER_BITS


def time_ms_of(stamp: int) -> int:
    """Return the time that a stamp shows, in milliseconds since the Unix epoch."""
    return stamp >> COUNTER_BITS


def bound_above(bound: int, stamp: int) -> int:
    """Return a bound above a stamp: the present bound, if it is."""
    return bound if stamp < bound else stamp + BOUND_AHEAD


def check_told(stamp: int, time_ms: int, *, ahead_ms_max: int) -> None:
    """Check a stamp that comes from another server or a client.

    Args:
        time_ms: the wall clock here, since the Unix epoch.
        ahead_ms_max: how far the stamp may lie ahead of it.
    Raises:
        InvalidArgument: it lies too far in the future.
    """
    if stamp > stamp_at(time_ms) + (min(ahead_ms_max, AHEAD_MS_MAX) << COUNTER_BITS):
        raise InvalidArgument(
            f"the stamp {stamp} lies more than stamp_ahead_ms_max, {ahead_ms_max} ms, ahead of this"
            " server's clock: is a server's clock wrong, or was it once?"
        )


class HybridClock:
    """Clock of a coordinator, in one life.

    Args:
        bound: above the stamps of the lives before; 0: there were none.
        ahead_ms_max: how far a stamp from elsewhere may be ahead of the time here.
    Attributes:
        last: the highest stamp that was given, or told to the clock.
    """

    __slots__ = ("_ahead_ms_max", "last")

    def __init__(self, bound: int = 0, *, ahead_ms_max: int = AHEAD_MS_MAX) -> None:
        self.last = max(bound - 1, NO_STAMP)
        self._ahead_ms_max = ahead_ms_max

    def next(self, time_ms: int) -> int:
        """Return the stamp of the next decision; it is given when `advance` is told.

        Args:
            time_ms: the wall clock here, since the Unix epoch. It may be wrong.
        """
        return max(self.last + 1, stamp_at(time_ms))

    def advance(self, stamp: int) -> None:
        """Note that a stamp was given, here or by an earlier coordinator with the same decision."""
        self.last = max(self.last, stamp)

    def hear(self, stamp: int, time_ms: int) -> None:
        """Give only higher stamps from now on.

        Args:
            stamp: from another server or a client.
            time_ms: as for next().
        Raises:
            InvalidArgument: it lies too far in the future. No effect.
        """
        if stamp > self.last:
            check_told(stamp, time_ms, ahead_ms_max=self._ahead_ms_max)
        self.advance(stamp)

    def now(self, time_ms: int) -> int:
        """Return a stamp that no stamp so far exceeds, and that all later ones do.

        Args:
            time_ms: as for next().
        """
        self.advance(stamp_at(time_ms))
        return self.last

    def check(self, bound: int) -> None:
        """Check that stamps lie below the bound, which is stored no later than what they do."""
        if self.last >= max(bound, 1):
            raise BrokenInvariant(f"the stamp {self.last} is not below the bound {bound}")
