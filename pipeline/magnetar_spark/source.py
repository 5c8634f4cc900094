"""The source: the readers that Spark uses, for streaming queries and batches.

Spark makes a reader on the driver and sends it to executors for read(). So a reader holds options
only. Its plans stay on the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from magnetar_core.clock import SystemClock
from magnetar_core.errors import OutOfRange
from magnetar_spark.arrow_out import RecordBatches
from magnetar_spark.catalog import Catalog, Extent
from magnetar_spark.clients import client_of, close_all, exit_on_sigterm
from magnetar_spark.cut_ranges import ranges_at
from magnetar_spark.errors import UNREADABLE, OffsetsLost, OptionError, said_first
from magnetar_spark.offsets import METADATA, Places, StreamOffset, each, to_json
from magnetar_spark.options.source import SourceOptions
from magnetar_spark.planning import Range, limited, new_count, split

log = logging.getLogger("magnetar.spark")


class RangePartition(InputPartition):
    """The range that a task reads."""

    def __init__(self, range: Range) -> None:
        self.range = range


def read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read the range of a task.

    Raises:
        MagnetarError: the servers cannot be reached, or refuse.
        OffsetsLost: retention, a deletion or a restore has removed messages, and failOnDataLoss is
            on; with a cut, it always is.
    """
    if isinstance(partition, RangePartition):  # Of nothing to read, Spark makes one of its own.
        with said_first():
            yield from _read(options, partition.range)


def _read(options: SourceOptions, wanted: Range) -> Iterator[pa.RecordBatch]:
    batches = RecordBatches(
        wanted.topic,
        wanted.partition,
        include_headers=options.include_headers,
        columns=options.columns,
    )
    client = client_of(options.servers, options.links)
    start = wanted.start
    while start < wanted.end:
        try:
            for pieces in client.read_ahead(
                wanted.topic,
                wanted.partition,
                start,
                wanted.end,
                topic_id=wanted.topic_id,
                cut=wanted.cut,
            ):
                for columns in pieces:
                    start = columns.last_offset + 1
                    yield batches.of(columns)
            return
        except UNREADABLE as error:
            report_loss(options, f"{wanted.topic} partition {wanted.partition}: {error}", error)
            first = int(error.details.get("first_offset", 0))
            if not isinstance(error, OutOfRange) or first <= start:
                return
            start = first


def report_loss(options: SourceOptions, what: str, error: Exception | None = None) -> None:
    """Report lost messages.

    Raises:
        OffsetsLost: failOnDataLoss is on; otherwise there is a warning.
    """
    if options.cut is not None:
        raise OffsetsLost(
            f"{what}. The cut can no longer be read: its messages expired, or the topic was "
            "deleted or restored. Take a new cut"
        ) from error
    if options.fail_on_data_loss:
        raise OffsetsLost(
            f"{what}. Some messages may be lost: aged out, or in a topic that was deleted or"
            " restored. To go on with what is there, set failOnDataLoss to 'false'"
        ) from error
    log.warning("%s: going on with what is there, since failOnDataLoss is off", what)


def _input_partitions(options: SourceOptions, ranges: Sequence[Range]) -> list[InputPartition]:
    pieces = split(ranges, options.min_partitions, options.max_records or None)
    return [RangePartition(piece) for piece in pieces]


class BatchReader(DataSourceReader):
    """Reads between two offsets, or at a cut. Both are fixed when Spark plans the query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @said_first()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the range of each task."""
        options = self._options
        client = client_of(options.servers, options.links)
        catalog = Catalog(client, options.topics)
        if options.cut is not None:
            ranges = ranges_at(client, catalog, options.cut, options.since)
            return _input_partitions(options, ranges)
        extent = catalog.extent()
        extent.require_topics()
        begin = catalog.resolve(options.starting, extent)
        end = catalog.resolve(options.ending, extent)
        ranges = [
            Range(topic, extent.topic_ids[topic], partition, first, end[topic][partition])
            for topic, partition, first in each(begin)
        ]
        return _input_partitions(options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of a task; called in executors."""
        return read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of a streaming query.

    Spark stores where a batch ends before it runs the batch, but it does not store where the first
    batch begins: after a crash it asks again. So the first offset is empty, and the end of the
    first batch says where the query began. "latest" is fixed as soon as Spark's log has an entry.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        # Of a run with Trigger.AvailableNow: where it ends.
        self._target: Extent | None = None
        self._extent: Extent | None = None
        self._planned: Places | None = None
        self._triggered_at_ms: float | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where the query begins, before its first batch."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a batch may read."""
        if self._options.max_offsets:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    @said_first()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the ends up to which the query reads."""
        self._target = self._look()

    @said_first()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends."""
        extent = self._look() if self._target is None else self._target
        self._extent = extent
        if not start:
            extent.require_topics()
            begin = self._catalog().resolve(self._options.starting, extent)
            end = self._limited(begin, extent.end, limit, settled=False)
            self._planned = end
            return StreamOffset(end, extent.topic_ids, start=begin).to_json()
        before = StreamOffset.from_json(start)
        if self._options.fail_on_data_loss:
            # What was read before is lost, which says more of it.
            extent.require_topics(except_for=before.places)
        begin, available = self._continued(before, extent)
        end = self._limited(begin, available, limit, settled=True)
        self._planned = end
        if end == before.places:
            # The same text: nothing to do.
            return start
        return StreamOffset(end, extent.topic_ids).to_json()

    @said_first()
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of all partitions and the query's lag, for its progress."""
        extent = self._look()
        report = to_json(extent.end)
        if self._planned is not None:
            behind = [
                max(0, end - self._planned.get(topic, {}).get(partition, 0))
                for topic, partition, end in each(extent.end)
            ]
            if behind:
                # As Spark's Kafka source names its metrics.
                report[METADATA] = {
                    "minOffsetsBehindLatest": min(behind),
                    "maxOffsetsBehindLatest": max(behind),
                    "avgOffsetsBehindLatest": sum(behind) / len(behind),
                }
        return report

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the range of each task of a batch."""
        last = StreamOffset.from_json(end)
        before = StreamOffset.from_json(start) if start else None
        ranges = []
        for topic, partition, stop in each(last.places):
            topic_id = last.topic_ids.get(topic, 0)
            begin = last.start or {}
            if before is not None:
                same = before.topic_ids.get(topic, topic_id) == topic_id
                begin = before.places if same else {}
            # A partition that was not there begins where every partition does.
            first = begin.get(topic, {}).get(partition, 0)
            ranges.append(Range(topic, topic_id, partition, first, stop))
        return _input_partitions(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of a task; called in executors."""
        return read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint says how far the query has come."""

    def stop(self) -> None:
        """Close the clients of this process."""
        close_all()

    def _catalog(self) -> Catalog:
        return Catalog(client_of(self._options.servers, self._options.links), self._options.topics)

    def _look(self) -> Extent:
        exit_on_sigterm()
        return self._catalog().extent()

    def _continued(self, before: StreamOffset, extent: Extent) -> tuple[Places, Places]:
        """Return where to go on, and how far, in the present partitions.

        Raises:
            OffsetsLost: partitions or offsets have gone, and failOnDataLoss is on.
        """
        lost = {
            topic: some
            for topic, some in before.places.items()
            if topic not in extent.end
            or before.topic_ids.get(topic, 0) not in (0, extent.topic_ids[topic])
        }
        if lost:
            report_loss(self._options, f"deleted, or made anew: {', '.join(sorted(lost))}")
        begin: Places = {}
        available: Places = {}
        for topic, partition, end in each(extent.end):
            known = {} if topic in lost else before.places.get(topic, {})
            first = known.get(partition, 0)
            if end < first:
                report_loss(
                    self._options,
                    f"{topic} partition {partition} ends at {end}, and was read up to {first}",
                )
            begin.setdefault(topic, {})[partition] = first
            available.setdefault(topic, {})[partition] = end
        return begin, available

    def _limited(self, begin: Places, end: Places, limit: ReadLimit, *, settled: bool) -> Places:
        if isinstance(limit, ReadAllAvailable):
            return end
        options = self._options
        now_ms = self._clock.monotonic_ms()
        waits = (
            settled
            and self._target is None
            and self._triggered_at_ms is not None
            and now_ms - self._triggered_at_ms < options.trigger_delay_ms
        )
        if waits and new_count(begin, end) < options.min_offsets:
            return {topic: {one: begin[topic][one] for one in some} for topic, some in end.items()}
        self._triggered_at_ms = now_ms
        if isinstance(limit, ReadMaxRows):
            return limited(begin, end, limit.max_rows)
        return end


class RefusedStreamReader(DataSourceStreamReader):
    """Takes the place of a reader whose options are wrong, and raises at its first call.

    Spark (4.3) also stops a reader that could not be made. It then shows an UnboundLocalError of
    its own and not the error that was raised.
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    @said_first()
    def initialOffset(self) -> dict[str, Any]:
        """Raise the error."""
        raise self._error

    @said_first()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raise the error."""
        raise self._error

    @said_first()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        raise self._error
