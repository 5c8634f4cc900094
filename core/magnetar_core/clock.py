"""Clocks as injected objects. No other module asks the operating system for the time.

The simulator injects a virtual clock; coordinators measure timeouts by accumulated run time.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds from two sources that must not be mixed."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch. May jump; shown to people, stored as append time."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary point. Never jumps; measures durations."""
        ...


class SystemClock:
    """The operating system's clocks."""

    # Tests of programs replace the functions of `time` that modules have (freezegun). Durations
    # would never end then, on some threads.
    monotonic_ns = staticmethod(time.monotonic_ns)

    def wall_ms(self) -> int:
        """Return the operating system's time, in milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Return the operating system's monotonic clock, in milliseconds."""
        return self.monotonic_ns() / 1_000_000


def since_boot_ms() -> float:
    """Return milliseconds since the machine was started. Never jumps, and counts its sleep.

    For leases: other machines go on counting while this one is suspended. The monotonic clock of
    Linux and of macOS stops then.
    """
    # Linux has CLOCK_BOOTTIME; CLOCK_MONOTONIC counts sleep elsewhere, other than time.monotonic.
    number = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    if number is None:
        return time.monotonic_ns() / 1_000_000
    return time.clock_gettime_ns(number) / 1_000_000
