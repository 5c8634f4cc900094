"""When something was wrong with whom: what takes long beside a fault elsewhere has no excuse.

A bound on time holds for the time in which nothing was wrong with those who had a part in it, and
a moment after, in which they notice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

# From the end of a fault until whoever it concerned goes on: reconnects, with backoff.
GRACE_SECONDS = 1.5
FOR_EVER = float("inf")
# Of faults that concern all nodes.
EVERYBODY = "everybody"


class _Trouble(NamedTuple):
    node: str
    start: float
    end: float


class Calm:
    """Args:
    time: virtual seconds.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._troubles: list[_Trouble] = []

    def trouble(self, nodes: Collection[str], seconds: float = 0.0) -> None:
        """Something is wrong with these nodes from now on."""
        now = self._time()
        self._troubles += [_Trouble(node, now, now + seconds) for node in nodes]

    def over(self, node: str) -> None:
        """A node is up: what was to last until then ends. A partition, for one, goes on."""
        now = self._time()
        self._troubles = [
            one._replace(end=now) if one.node == node and one.end == FOR_EVER else one
            for one in self._troubles
        ]

    def seconds(self, nodes: Collection[str], since: float) -> float:
        """How much of the time since then was calm for all of these nodes."""
        now = self._time()
        concerned = sorted(
            (one.start, min(now, one.end + GRACE_SECONDS))
            for one in self._troubles
            if one.node in nodes or one.node == EVERYBODY
        )
        calm, reached = 0.0, since
        for start, end in concerned:
            calm += max(0.0, start - reached)
            reached = max(reached, end)
        return calm + max(0.0, now - reached)
