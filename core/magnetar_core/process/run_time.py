"""Accumulated run time: how long a server has been running, in all its lives.

Ages that decide something are measured by run time. Downtime does not count, so a client whose
coordinator was away loses nothing of its timeout; and no step of the wall clock expires a
transaction, or forgets an active member.
"""

from __future__ import annotations

from magnetar_core.clock import Clock


class RunTime:
    """Run time that continues from a stored value, measured by the monotonic clock.

    Args:
        start_ms: run time of earlier lives, in milliseconds.
        jump_ms_min: a smaller difference between the clocks counts as drift, or as a correction.
    """

    def __init__(self, clock: Clock, *, start_ms: int, jump_ms_min: int) -> None:
        self._clock = clock
        self._start_ms = start_ms
        self._jump_ms_min = jump_ms_min
        self._began_monotonic_ms = clock.monotonic_ms()
        self._offset_ms = clock.wall_ms() - self._began_monotonic_ms

    def resume(self, start_ms: int) -> None:
        """Set the run time of earlier lives, once it is known."""
        self._start_ms = max(self._start_ms, start_ms)

    def now_ms(self) -> int:
        """Return the run time in milliseconds. It never goes back within a life."""
        return self._start_ms + int(self._clock.monotonic_ms() - self._began_monotonic_ms)

    def wall_jump_ms(self) -> int:
        """Milliseconds that the wall clock jumped against the monotonic clock since the last call.

        0 means no jump. The value is for reports: no decision uses it.
        """
        offset_ms = self._clock.wall_ms() - self._clock.monotonic_ms()
        jump_ms = int(offset_ms - self._offset_ms)
        self._offset_ms = offset_ms
        return jump_ms if abs(jump_ms) >= self._jump_ms_min else 0
