"""An event loop whose time is virtual: it never waits, it moves its clock to the next timer.

No sockets, no threads, no operating system: whatever asks for them fails. The order of everything
is a function of the program and its seed alone. Whose code runs, and what a crash ends, is
magnetar.testing.life_loop's to say, which test servers of users have too.
"""

from __future__ import annotations

import asyncio

from magnetar.testing.life_loop import LifeLoop
from magnetar.testing.lives import SimulationFailure

WALL_EPOCH_MS = 1_700_000_000_000


class Deadlock(SimulationFailure):
    """Something is awaited, and nothing is left that could bring it."""


class DeadlineExceeded(SimulationFailure):
    """Virtual time ran out."""


class VirtualLoop(LifeLoop):
    """Args:
    deadline: virtual seconds after which the run has failed.
    """

    def __init__(self, *, deadline: float = 100_000.0) -> None:
        super().__init__()
        self.deadline = deadline

    def _advance(self) -> None:
        """Move time to the next timer that will really fire."""
        when = self.next_due()
        if when is None:
            if not self._stopping:
                raise Deadlock("nothing is left to happen, but awaited:\n" + self.describe_tasks())
        elif when > self._now:
            if when > self.deadline:
                raise DeadlineExceeded(
                    f"still running after {self.deadline:.0f} virtual seconds\n"
                    + self.describe_tasks()
                )
            self._now = when
            self._steps_at_one_instant = 0


class VirtualClock:
    """One node's clocks; implements magnetar_core.clock.Clock.

    Args:
        loop: whose time it follows; the one that runs, unless given.
        wall_offset_ms: how wrong this node's wall clock is. Survives its restarts.
        monotonic_offset_ms: where this life's monotonic clock began.
    """

    def __init__(
        self,
        loop: VirtualLoop | None = None,
        *,
        wall_offset_ms: int = 0,
        monotonic_offset_ms: float = 0.0,
    ) -> None:
        self._loop = loop
        self.wall_offset_ms = wall_offset_ms
        self.monotonic_offset_ms = monotonic_offset_ms

    def wall_ms(self) -> int:
        return WALL_EPOCH_MS + self.wall_offset_ms + int(self._time_s() * 1000)

    def monotonic_ms(self) -> float:
        return self._time_s() * 1000 + self.monotonic_offset_ms

    def _time_s(self) -> float:
        return (self._loop or asyncio.get_running_loop()).time()
