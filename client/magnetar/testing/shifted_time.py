"""Time that runs as the machine's does, and jumps when a test says so.

The servers of a cluster have one such time, and so has each event loop on which their clients run:
its timers follow. A jump goes from timer to timer, and all loops come to rest in between, so that
what falls due happens in its order, and clients that live send their heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from magnetar.errors import UnsupportedEnvironment
from magnetar_core.clock import SystemClock

# Each time, a loop that never rests has had so many turns.
TURNS_MAX = 2_000
# A loop on which a program may set timers meanwhile is looked at this often, in seconds that pass.
LOOK_S = 5.0


class ShiftedClock(SystemClock):
    """The machine's clocks, and what was added to them.

    Attributes:
        shift_s: what was added, in seconds.
    """

    def __init__(self) -> None:
        self.shift_s = 0.0

    def wall_ms(self) -> int:
        """Return the time for people, in milliseconds since the Unix epoch."""
        return super().wall_ms() + int(self.shift_s * 1000)

    def monotonic_ms(self) -> float:
        """Return the time that measures durations, in milliseconds."""
        return super().monotonic_ms() + self.shift_s * 1000

    def now_s(self) -> float:
        """Return the same in seconds, for event loops."""
        return self.monotonic_ms() / 1000


class Loop(Protocol):
    """Parts of asyncio's own event loops that others need not have."""

    _ready: Any
    _scheduled: list[Any]


# A loop keeps its clock when the cluster has ended: time never goes back.
_clocks: WeakKeyDictionary[asyncio.AbstractEventLoop, ShiftedClock] = WeakKeyDictionary()


def clock_of(loop: asyncio.AbstractEventLoop) -> ShiftedClock:
    """Return the clock of a client's event loop, whose timers follow it from now on.

    Raises:
        UnsupportedEnvironment: the loop cannot follow another clock.
    """
    clock = _clocks.get(loop)
    if clock is None:
        clock = ShiftedClock()
        try:
            if not isinstance(loop, asyncio.BaseEventLoop):
                raise AttributeError
            loop.time = clock.now_s  # type: ignore[method-assign]
        except AttributeError:
            raise UnsupportedEnvironment(
                f"virtual time needs an event loop of asyncio; {type(loop).__module__} has a clock"
                " of its own: run this test without it, or in real time"
            ) from None
        _clocks[loop] = clock
    return clock


class FollowedLoop:
    """A client's event loop, in the time of a cluster.

    Attributes:
        due_s: when its next timer fires, on the clock of the loop; None: it is not known.
        looked_s: when that was known, on the same clock.
        is_stuck: whether a callback of the program holds it up.
        posted_count: functions that links had called then, anywhere.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock = clock_of(loop)
        self.due_s: float | None = None
        self.looked_s = 0.0
        self.posted_count = -1
        self.is_stuck = False

    def rest(self, rested: Callable[[], None]) -> bool:
        """Have a function called, on this loop, when nothing is left to do there now.

        Returns:
            Whether the loop runs at all.
        """
        if self.loop.is_closed() or not self.loop.is_running():
            return False
        try:
            self.loop.call_soon_threadsafe(self._look, rested, TURNS_MAX)
        except RuntimeError:
            return False
        return True

    def _look(self, rested: Callable[[], None], turns: int) -> None:
        loop: Any = self.loop
        timers = [one._when for one in loop._scheduled if not one._cancelled]
        self.due_s = min(timers, default=float("inf"))
        self.looked_s = self.clock.now_s()
        if turns and (loop._ready or self.due_s <= self.looked_s):
            loop.call_soon(self._look, rested, turns - 1)
        else:
            rested()
