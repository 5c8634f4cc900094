"""Delay before the next attempt: doubled each time, with jitter. Pure."""

from __future__ import annotations

from typing import Protocol

_DOUBLINGS_MAX = 32


class Randomness(Protocol):
    """The part of random.Random that jitter needs."""

    def random(self) -> float:
        """Return a number of at least 0 and less than 1."""
        ...


def delay_ms(failures: int, min_ms: float, max_ms: float, random: Randomness) -> float:
    """Return the milliseconds to wait after several failures in a row.

    They lie between a half and all of the doubled delay.
    """
    doubled_ms = min(min_ms * 2.0 ** min(failures, _DOUBLINGS_MAX), max_ms)
    return doubled_ms * (0.5 + random.random() / 2)


class Backoff:
    """Counts failures in a row, and returns the delay after each."""

    __slots__ = ("_max_ms", "_min_ms", "_random", "failures")

    def __init__(self, min_ms: float, max_ms: float, random: Randomness) -> None:
        self._max_ms = max_ms
        self._min_ms = min_ms
        self._random = random
        self.failures = 0

    def reset(self) -> None:
        """Forget the failures: an attempt was successful."""
        self.failures = 0

    def next_ms(self) -> float:
        """Note a failure, and return the milliseconds to wait after it."""
        wait_ms = delay_ms(self.failures, self._min_ms, self._max_ms, self._random)
        self.failures += 1
        return wait_ms
