"""Pauses after looks: what a view costs the servers is bounded, however much there is to see. Pure.

A look that took a while waits this many times as long until the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Answers tell what has changed, and cost little.
CHANGES_PAUSE: Final = 4.0
# Answers are made of all partitions, groups or transactions that a view shows. A server works for a
# part of the time that the look takes: so this keeps it below a fiftieth of a processor, for all
# views of the console together.
SCAN_PAUSE: Final = 49.0
# A page without news for longer is not live. A look that takes longer than a part
# of this waits as after an answer that tells changes: mostly it has waited for a server.
SCAN_PAUSE_S_MAX: Final = 5.0


@dataclass(slots=True)
class Scans:
    """The views that are scanned at present: they share what the servers give.

    Attributes:
        count: how many they are.
    """

    count: int = 0


def pause_s(took_s: float, period_s: float, factor: float, sharers: int = 1) -> float:
    """Return how long to wait after a look, in seconds.

    Args:
        factor: CHANGES_PAUSE or SCAN_PAUSE.
        sharers: how many views are looked at in this way.
    """
    scaled_s = min(took_s * factor * sharers, SCAN_PAUSE_S_MAX)
    return max(period_s - took_s, took_s * CHANGES_PAUSE, scaled_s)
