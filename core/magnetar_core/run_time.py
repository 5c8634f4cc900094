"""Accumulated run time: how long a server has been running, over all its lives.

Ages that decide something are measured by it. Downtime does not count, so a client whose
coordinator was away loses nothing of its timeout; and no step of the wall clock expires a
transaction, or forgets who is active.
"""

from __future__ import annotations

from magnetar_core.clock import Clock


class RunTime:
    """Counts on from what was persisted, by the monotonic clock.

    Args:
        start_ms: run time of earlier lives.
        jump_ms_min: a smaller difference between the clocks is drift, or a clock being corrected.
    """

    def __init__(self, clock: Clock, *, start_ms: int, jump_ms_min: int) -> None:
        self._clock = clock
        self._start_ms = start_ms
        self._jump_ms_min = jump_ms_min
        self._began_monotonic_ms = clock.monotonic_ms()
        self._offset_ms = clock.wall_ms() - self._began_monotonic_ms

    def resume(self, start_ms: int) -> None:
        """Earlier lives have run for so long, as is found out now."""
        self._start_ms = max(self._start_ms, start_ms)

    def now_ms(self) -> int:
        """Milliseconds of run time. Never goes back within one life."""
        return self._start_ms + int(self._clock.monotonic_ms() - self._began_monotonic_ms)

    def wall_jump_ms(self) -> int:
        """How far the wall clock has jumped against the monotonic one since the last call; 0: not.

        It is for reporting: nothing is decided by it.
        """
        offset_ms = self._clock.wall_ms() - self._clock.monotonic_ms()
        jump_ms = int(offset_ms - self._offset_ms)
        self._offset_ms = offset_ms
        return jump_ms if abs(jump_ms) >= self._jump_ms_min else 0
