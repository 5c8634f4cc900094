"""Pauses after looks: what a view costs the servers is bounded, however much there is to see. Pure.

A look that took a while waits this many times as long until the next one.
"""

from __future__ import annotations

from typing import Final

# Answers tell what has changed, and cost little.
CHANGES_PAUSE: Final = 4.0
# Answers are made of all partitions, groups or transactions that a view shows. A server works for a
# part of the time that the look takes: so this keeps it below a fiftieth of a processor.
SCAN_PAUSE: Final = 49.0
