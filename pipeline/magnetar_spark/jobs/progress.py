"""What a streaming job tells of its batches, read from what Spark reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from magnetar_spark.offsets import METADATA, each, to_places

# What the query observes, by the names that it gives them.
ROWS, WINDOWS = "rows", "windows"


@dataclass(frozen=True)
class Batch:
    """One micro-batch.

    Attributes:
        number: Spark's; a batch that is repeated after a crash keeps it.
        rows: messages that it read.
        malformed: those of them that are no flights.
        windows: messages that it made of the others.
        late: rows that came too late for their window; None when Spark's own figure is all that is
            known.
        late_groups: Spark's figure: it drops rows after it has gathered those of a window and
            route, and counts each gathering as one.
        behind: messages that were there and not yet read.
        watermark: ISO 8601; "1970..." before there is one.
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
    """What one run of a job did. Batches that it repeated were done by the run before it, too."""

    batches: int = 0
    rows: int = 0
    malformed: int = 0
    windows: int = 0
    late: int | None = 0
    late_groups: int = 0

    def plus(self, one: Batch) -> Summary:
        return Summary(
            self.batches + 1,
            self.rows + one.rows,
            self.malformed + one.malformed,
            self.windows + one.windows,
            None if self.late is None or one.late is None else self.late + one.late,
            self.late_groups + one.late_groups,
        )


def batch_of(progress: Mapping[str, Any], late: int | None) -> Batch:
    """A batch, from Spark's progress as parsed JSON.

    Args:
        late: rows, where the job has counted them.
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
        behind=sum(_behind(one) for one in progress.get("sources", ())),
        watermark=progress.get("eventTime", {}).get("watermark", ""),
        elapsed_s=progress.get("durationMs", {}).get("triggerExecution", 0) / 1_000,
    )


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
