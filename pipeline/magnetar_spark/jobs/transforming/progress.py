"""The batches of a streaming job, read from Spark's progress reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from magnetar_spark.offsets import METADATA, each, to_places

# What the query observes, by the names that it gives them.
ROWS, WINDOWS = "rows", "windows"


@dataclass(frozen=True)
class Batch:
    """A micro-batch.

    Attributes:
        number: Spark's number; a batch that is repeated after a crash keeps it.
        rows: how many messages it read.
        malformed: how many of them are not flights.
        windows: how many messages it made of the others.
        late: how many rows came too late for their window; None when only Spark's figure is known.
        late_groups: Spark's figure: Spark drops late rows after it has grouped them by window and
            route, and counts each group as one row.
        behind: how many messages were not yet read.
        watermark: ISO 8601; "1970..." before there is a watermark.
    """

    number: int
    rows: int
    malformed: int
    windows: int
    late: int | None
    late_groups: int
    behind: int
    watermark: str
    elapsed_s: float


@dataclass(frozen=True)
class Summary:
    """Totals of a run of a job. Batches that it repeated were done by the previous run, too."""

    batches: int = 0
    rows: int = 0
    malformed: int = 0
    windows: int = 0
    late: int | None = 0
    late_groups: int = 0

    def plus(self, one: Batch) -> Summary:
        """Return the sum of this summary and a batch."""
        return Summary(
            self.batches + 1,
            self.rows + one.rows,
            self.malformed + one.malformed,
            self.windows + one.windows,
            None if self.late is None or one.late is None else self.late + one.late,
            self.late_groups + one.late_groups,
        )


def batch_of(progress: Mapping[str, Any], late: int | None) -> Batch:
    """Return a batch from Spark's progress, which is parsed JSON.

    Args:
        progress: the progress.
        late: how many rows were late, if the job has counted them.
    """
    observed = progress.get("observedMetrics", {})
    rows = observed.get(ROWS, {})
    return Batch(
        number=progress["batchId"],
        rows=rows.get("rows", 0),
        malformed=rows.get("malformed", 0),
        windows=observed.get(WINDOWS, {}).get("windows", 0),
        late=late,
        late_groups=sum(
            one.get("numRowsDroppedByWatermark", 0) for one in progress.get("stateOperators", ())
        ),
        behind=behind(progress),
        watermark=progress.get("eventTime", {}).get("watermark", ""),
        elapsed_s=progress.get("durationMs", {}).get("triggerExecution", 0) / 1_000,
    )


def behind(progress: Mapping[str, Any]) -> int:
    """Return how many offsets a query had not read when a batch ended, by Spark's report."""
    return sum(_behind(one) for one in progress.get("sources", ()))


def _behind(source: Mapping[str, Any]) -> int:
    end, latest = source.get("endOffset"), source.get("latestOffset")
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return 0
    read = to_places({name: some for name, some in end.items() if name != METADATA})
    there = to_places({name: some for name, some in latest.items() if name != METADATA})
    return sum(
        max(0, last - read.get(topic, {}).get(partition, 0))
        for topic, partition, last in each(there)
    )
