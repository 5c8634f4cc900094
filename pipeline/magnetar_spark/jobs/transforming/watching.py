"""Waits for a query to end, and tells of its batches meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.1


def watch(
    query: StreamingQuery, stop: threading.Event, on_batch: Callable[[dict[str, Any]], None]
) -> None:
    """Return when the query has ended, or was told to stop.

    Args:
        stop: ends the query at once; a batch that is not committed then comes again with the next
            run.
        on_batch: is given Spark's report of each batch that has ended.
    Raises:
        PySparkException: the query failed.
    """
    told = -1

    def tell() -> None:
        nonlocal told
        last = query.lastProgress
        if last is None or last.batchId <= told:
            return
        for one in query.recentProgress:
            if one.batchId > told:
                told = one.batchId
                on_batch(json.loads(one.json))

    try:
        while query.isActive and not stop.is_set():
            tell()
            stop.wait(POLL_S)
        if not stop.is_set():
            query.awaitTermination()  # Raises what ended it.
    except PySparkException:
        # Ctrl-C is heard by Spark's other processes as well, and the query may see them go.
        if not stop.is_set():
            raise
    finally:
        query.stop()
        tell()
