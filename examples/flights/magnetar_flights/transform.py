"""Transforms flights: windows of event time by route, from topic to topic, exactly once.

There is one streaming query. Its sums so far are Spark's state, in the checkpoint. The output of a
batch is one transaction: windows, and with them the rows that are late or malformed.
Source: Spark, Structured Streaming Programming Guide, Handling Late Data and Watermarking.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from magnetar_flights.windows import parsed, window_end, windows
from magnetar_spark.clients import client_of
from magnetar_spark.data_source import MagnetarDataSource
from magnetar_spark.jobs.failures import JobError, one_line
from magnetar_spark.jobs.spark_session import settings
from magnetar_spark.jobs.transforming.checkpoint import Checkpoint
from magnetar_spark.jobs.transforming.progress import ROWS, WINDOWS, Batch, Summary, batch_of
from magnetar_spark.jobs.transforming.watching import watch
from magnetar_spark.options.given import SERVERS
from magnetar_spark.schema import HEADERS_TYPE
from magnetar_spark.sink import QUERY_ID

FORMAT = MagnetarDataSource.name()
STOP_TIMEOUT = "30s"
# Headers of what did not fit in: why, and where it was read.
REASON, SOURCE = "magnetar.reason", "magnetar.source"
_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LATE_END = "late_end"


class Emit(Enum):
    """When a window becomes a message."""

    UPDATES = "updates"
    FINAL = "final"


class TransformFailed(JobError):
    """The query ended by an error. Committed batches count; started again, it continues."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Input, output and windows of a job.

    Attributes:
        servers: brokers, "host:port".
        checkpoint: a directory or any URL that Spark can write; the job's identity.
        window_ms: length of the windows.
        late_by_ms: how far the watermark stays behind the latest flight.
        error_topic, late_topic: for malformed messages, and late flights; None: only counted.
        starting_offsets: "earliest", "latest" or JSON; of a new checkpoint.
        rows_per_batch_max: about so many.
        shuffle_partitions: of the state; of a new checkpoint.
        interval_ms: between the starts of batches; None: read the present messages, and end.
    """

    servers: tuple[str, ...]
    input: str
    output: str
    checkpoint: str
    window_ms: int
    late_by_ms: int
    emit: Emit
    error_topic: str | None = None
    late_topic: str | None = None
    starting_offsets: str = "earliest"
    rows_per_batch_max: int = 200_000
    shuffle_partitions: int = 2
    interval_ms: int | None = None

    def settings(self) -> dict[str, Any]:
        """Return the settings that a checkpoint fixes, by option."""
        return {
            "job": "transform",
            "--input": self.input,
            "--output": self.output,
            "--window": _duration(self.window_ms),
            "--emit": self.emit.value,
            "--error-topic": self.error_topic,
            "--late-topic": self.late_topic,
        }


def transform(
    spark: SparkSession,
    request: Request,
    *,
    stop: threading.Event,
    on_batch: Callable[[Batch], None],
    on_ready: Callable[[], None] | None = None,
) -> Summary:
    """Run the query until it has read what there is, or is told to stop.

    Args:
        stop: ends it at once; a batch that is not committed then comes again with the next run.
        on_batch: called with each batch when it has ended.
        on_ready: is called when all is there but the query, and holds it back until it returns:
            another one may run on the checkpoint until then.
    Raises:
        CheckpointRefused: it belongs to another query.
        TopicNotFound: one that the request names is not there.
        TransformFailed: the query did.
    """
    checkpoint = Checkpoint(spark, request.checkpoint)
    client = client_of(request.servers)
    for topic in (request.input, request.output, request.error_topic, request.late_topic):
        if topic is not None:
            client.admin.topics.list_offsets(topic)
    job = _Job(spark, request, checkpoint)
    try:
        with settings(spark, _wanted(spark, request)):
            output = job.output()
            if on_ready is not None:
                on_ready()
                if stop.is_set():
                    return Summary()
            checkpoint.claim(request.settings())
            query = job.start(output)
        return _watch(query, job, stop, on_batch)
    except PySparkException as error:
        raise TransformFailed(one_line(str(error))) from error


def _wanted(spark: SparkSession, request: Request) -> dict[str, str]:
    """Settings while the query starts, which takes a copy of them."""
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(request.shuffle_partitions),
        "spark.sql.streaming.stopTimeout": STOP_TIMEOUT,
        # Which watermark decides what is late depends on it.
        "spark.sql.streaming.statefulOperator.allowMultiple": "true",
    }
    if not spark.sparkContext.getConf().contains(_STATE_STORE):
        # On disk: the state may be larger than the memory.
        wanted[_STATE_STORE] = _ROCKSDB
    return wanted


class _Job:
    """The query of a request."""

    def __init__(self, spark: SparkSession, request: Request, checkpoint: Checkpoint) -> None:
        self._spark = spark
        self._request = request
        self._checkpoint = checkpoint
        self._late: dict[int, int] = {}

    def start(self, output: DataFrame) -> StreamingQuery:
        request = self._request
        # By itself the sink does as well, unless rows are to be held against the watermark.
        by_batch = request.emit is Emit.UPDATES or request.late_topic is not None
        writer = (
            output.writeStream.foreachBatch(self._write)
            if by_batch
            else output.writeStream.format(FORMAT).options(**self._sink_options())
        )
        writer = writer.option("checkpointLocation", request.checkpoint).outputMode(
            "update" if request.emit is Emit.UPDATES else "append"
        )
        if request.interval_ms is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{request.interval_ms} milliseconds").start()

    def late(self, batch: int) -> int | None:
        """Late rows of a batch that has ended; None when they are not counted."""
        return None if self._request.late_topic is None else self._late.pop(batch, 0)

    def output(self) -> DataFrame:
        """Messages: windows, and what does not fit in.

        What does not fit in is read once more, since nothing comes out of an aggregation but what
        it has summed up.
        """
        request = self._request
        rows = parsed(self._messages())
        observed = rows.observe(
            ROWS, F.count(F.lit(1)).alias("rows"), F.count_if("is_malformed").alias("malformed")
        )
        made = windows(
            observed.where(~F.col("is_malformed")), request.window_ms, request.late_by_ms
        )
        made = made.observe(WINDOWS, F.count(F.lit(1)).alias("windows"))
        output = made.withColumn("topic", F.lit(request.output))
        if not self._has_others:
            return output
        none = F.lit(None)
        output = output.withColumn("headers", none.cast(HEADERS_TYPE))
        if request.late_topic is not None:
            output = output.withColumn(_LATE_END, none.cast("timestamp"))
        return output.unionByName(self._others(rows))

    def _others(self, rows: DataFrame) -> DataFrame:
        """Malformed rows, and all that may be late: the batch's watermark is told to no plan."""
        request = self._request
        is_malformed = F.col("is_malformed")
        topic = F.lit(request.error_topic).cast("string")
        reason = F.lit("malformed")
        wanted = is_malformed if request.error_topic is not None else F.lit(False)
        columns: list[Column] = []
        if request.late_topic is not None:
            topic = F.when(is_malformed, topic).otherwise(request.late_topic)
            reason = F.when(is_malformed, reason).otherwise("late")
            wanted = wanted | ~is_malformed
            end = window_end(request.window_ms)
            columns.append(F.when(~is_malformed, end).alias(_LATE_END))
        source = F.concat_ws("/", "topic", "partition", "offset")
        headers = F.array(_header(REASON, reason), _header(SOURCE, source))
        return rows.where(wanted).select(
            "key",
            "value",
            topic.alias("topic"),
            headers.cast(HEADERS_TYPE).alias("headers"),
            *columns,
        )

    def _write(self, frame: DataFrame, batch: int) -> None:
        """Write a batch: once, however often Spark asks."""
        request = self._request
        query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query_id is not None
        late = None
        if request.late_topic is not None:
            # Spark drops what the batch before this one has let go of, or would have.
            watermark = F.timestamp_millis(F.lit(self._checkpoint.batch_watermark_ms(batch - 1)))
            end = F.col(_LATE_END)
            late = Observation()
            frame = (
                frame.where(end.isNull() | (end <= watermark))
                .observe(late, F.count(_LATE_END).alias("rows"))
                .drop(_LATE_END)
            )
        frame.write.format(FORMAT).options(
            **self._sink_options(), txnAppId=f"transform/{query_id}", txnVersion=str(batch)
        ).mode("append").save()
        if late is not None:
            self._late[batch] = late.get["rows"]

    def _messages(self) -> DataFrame:
        request = self._request
        return (
            self._spark.readStream.format(FORMAT)
            .options(
                **{SERVERS: ",".join(request.servers)},
                subscribe=request.input,
                startingOffsets=request.starting_offsets,
                maxOffsetsPerTrigger=str(request.rows_per_batch_max),
            )
            .load()
            .select("key", "value", "topic", "partition", "offset")
        )

    @property
    def _has_others(self) -> bool:
        return self._request.error_topic is not None or self._request.late_topic is not None

    def _sink_options(self) -> dict[str, str]:
        return {
            SERVERS: ",".join(self._request.servers),
            "includeHeaders": "true" if self._has_others else "false",
        }


def _duration(ms: int) -> str:
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if ms % unit_ms == 0:
            return f"{ms // unit_ms}{unit}"
    return f"{ms}ms"


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))


def _watch(
    query: StreamingQuery, job: _Job, stop: threading.Event, on_batch: Callable[[Batch], None]
) -> Summary:
    summary = Summary()

    def tell(progress: dict[str, Any]) -> None:
        nonlocal summary
        batch = batch_of(progress, job.late(progress["batchId"]))
        summary = summary.plus(batch)
        on_batch(batch)

    watch(query, stop, tell)
    return summary
