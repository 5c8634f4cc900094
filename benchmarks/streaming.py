"""Runs a streaming query of Spark for a number of batches: what its batches took."""

from __future__ import annotations

import time
from typing import Any


def batches_of(writer: Any, count: int, *, endless: bool) -> list[Any]:
    """Run a query, and return the progress of so many of its batches with rows, in order.

    Args:
        writer: a DataStreamWriter with everything but its trigger.
        endless: whether its source has no end: then it is stopped.
    """
    if endless:
        query = writer.start()
        while len(query.recentProgress) < count and query.isActive:
            time.sleep(0.05)
        query.stop()
    else:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    return [one for one in query.recentProgress if one.numInputRows][:count]


def rows_and_seconds(batches: list[Any]) -> tuple[int, float]:
    """Return how many rows batches had, and how long they took."""
    rows = sum(batch.numInputRows for batch in batches)
    return rows, sum(batch.durationMs["triggerExecution"] for batch in batches) / 1000
