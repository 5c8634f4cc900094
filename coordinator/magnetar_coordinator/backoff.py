"""Delay before the next attempt: doubled each time, with jitter. Pure."""

from __future__ import annotations

from typing import Protocol

_DOUBLINGS_MAX = 32


class Randomness(Protocol):
    """The part of random.Random that jitter needs."""

    def random(self) -> float:
        """Return a random number from 0 to 1."""


def delay_ms(attempts: int, min_ms: int, max_ms: int, random: Randomness) -> float:
    """Return the milliseconds to wait after several failures: half to all of the doubled delay."""
    doubled_ms = min(min_ms * 2.0 ** min(attempts, _DOUBLINGS_MAX), float(max_ms))
    return doubled_ms * (0.5 + random.random() / 2)
