"""How long to wait before the next attempt: doubled each time, with jitter. Pure."""

from __future__ import annotations

from typing import Protocol


class Randomness(Protocol):
    """The part of random.Random that jitter needs."""

    def random(self) -> float: ...


class Backoff:
    """Counts failures in a row. The first delay lies in half to all of the least one."""

    __slots__ = ("_max_ms", "_min_ms", "_random", "failures")

    def __init__(self, min_ms: float, max_ms: float, random: Randomness) -> None:
        self._min_ms = min_ms
        self._max_ms = max_ms
        self._random = random
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def next_ms(self) -> float:
        """Note a failure; milliseconds to wait after it."""
        delay_ms = min(self._min_ms * 2.0 ** min(self.failures, 32), self._max_ms)
        self.failures += 1
        return delay_ms * (0.5 + self._random.random() / 2)
