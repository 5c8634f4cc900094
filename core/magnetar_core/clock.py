"""Time, injected. Nothing else in the project asks the operating system for it.

The simulator puts a virtual clock here; coordinators decide by accumulated run time on top of it.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds from two sources that must not be mixed."""

    def wall_ms(self) -> int:
        """Since the Unix epoch. May jump; shown to people and stored as append time."""
        ...

    def monotonic_ms(self) -> float:
        """Since an arbitrary point. Never jumps; measures durations."""
        ...


class SystemClock:
    """The operating system's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000
