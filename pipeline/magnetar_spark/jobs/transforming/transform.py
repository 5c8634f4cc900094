"""Transforms a topic into another by a SQL query, exactly once.

One streaming query. Each micro-batch is decoded once, and written as one transaction: what the
query makes of the rows that could be decoded, and the others to a topic for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField, StructType

from magnetar_spark.clients import client_of
from magnetar_spark.data_source import MagnetarDataSource
from magnetar_spark.errors import OptionError
from magnetar_spark.jobs.failures import JobError, one_line
from magnetar_spark.jobs.spark_session import DECODING_SETTINGS, settings
from magnetar_spark.jobs.transforming.checkpoint import Checkpoint
from magnetar_spark.jobs.transforming.progress import behind
from magnetar_spark.jobs.transforming.transform_query import MESSAGE, RESERVED, TransformQuery
from magnetar_spark.jobs.transforming.watching import watch
from magnetar_spark.options.given import SERVERS
from magnetar_spark.options.sink import TRANSACTION_TIMEOUT_MS_DEFAULT
from magnetar_spark.payloads.formats import payload_of
from magnetar_spark.payloads.payload import ERROR, RECORD, Payload
from magnetar_spark.schema import HEADERS_TYPE, source_schema
from magnetar_spark.sink import QUERY_ID

FORMAT = MagnetarDataSource.name()
QUERY_DEFAULT = "SELECT * FROM input"
STOP_TIMEOUT = "30s"
# Headers of what could not be decoded: why, and where it was read.
REASON, SOURCE = "magnetar.reason", "magnetar.source"
_DECODED = "decoded"


class TransformFailed(JobError):
    """The job ended by an error. Committed batches count; started again, the job goes on."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request for a transform.

    Attributes:
        servers: brokers, "host:port".
        checkpoint: a directory, or any other place in which Spark can keep one; the job's identity.
        payload_format, schema_path, message_name, framed: see `payload_of`.
        sql: the query; see `TransformQuery`.
        error_topic: for values that cannot be decoded; None: the first one ends the job.
        accepts_all_bad: whether the first batch may consist of such values alone.
        accepts_loss: whether to go on without messages that retention has removed.
        accepts_committed: whether a batch that is committed counts as it is when it comes again
            with other rows.
        transaction_timeout_ms: a batch that takes longer is aborted.
        starting_offsets: "earliest", "latest" or JSON; of a new checkpoint.
        offsets_per_batch_max: about so many.
        interval_ms: between the starts of batches; None: read what is there now, and end.
    """

    servers: tuple[str, ...]
    input: str
    output: str
    checkpoint: str
    payload_format: str
    schema_path: str | None = None
    message_name: str | None = None
    framed: bool = False
    sql: str = QUERY_DEFAULT
    error_topic: str | None = None
    accepts_all_bad: bool = False
    accepts_loss: bool = False
    accepts_committed: bool = False
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT
    starting_offsets: str = "earliest"
    offsets_per_batch_max: int = 100_000
    interval_ms: int | None = None

    def settings(self) -> dict[str, Any]:
        """Settings that must stay the same for as long as the checkpoint lives, by option."""
        return {
            "job": "transform",
            "INPUT": self.input,
            "OUTPUT": self.output,
            "--errors": self.error_topic,
        }


@dataclass(frozen=True)
class Report:
    """Totals of a run so far. Batches that it repeated were done by the previous run, too.

    Attributes:
        read: how many messages it read.
        written: how many it wrote to the output.
        bad: how many could not be decoded.
        behind: how many it had not read at the end of its last batch.
    """

    batches: int = 0
    read: int = 0
    written: int = 0
    bad: int = 0
    behind: int = 0

    @property
    def is_all_bad(self) -> bool:
        """Whether it read something, and could decode nothing."""
        return 0 < self.read == self.bad


def transform(
    spark: SparkSession,
    request: Request,
    *,
    stop: threading.Event,
    on_batch: Callable[[Report], None],
) -> Report:
    """Run the query until it has read what there is, or is told to stop.

    Args:
        stop: ends it at once; a batch that is not committed then comes again with the next run.
        on_batch: is told the totals when a batch has ended.
    Raises:
        OptionError: the request is not valid.
        CheckpointRefused: the checkpoint belongs to another job.
        TopicNotFound: one that the request names is not there.
        TransformFailed: the query failed.
    """
    if request.input in (request.output, request.error_topic):
        raise OptionError(f"it would read what it writes to {request.input}: name another topic")
    if request.output == request.error_topic:
        raise OptionError("values that cannot be decoded need a topic of their own")
    client = client_of(request.servers)
    for topic in (request.input, request.output, request.error_topic):
        if topic is not None:
            client.admin.topics.list_offsets(topic)
    job = _Job(spark, request)
    wanted = {**DECODING_SETTINGS, "spark.sql.streaming.stopTimeout": STOP_TIMEOUT}
    try:
        with settings(spark, wanted):
            job.check()
            Checkpoint(spark, request.checkpoint).claim(request.settings())
            query = job.start()
        watch(query, stop, lambda progress: on_batch(job.ended(progress)))
    except PySparkException as error:
        raise TransformFailed(one_line(str(error))) from error
    return job.report


class _Job:
    """The query of a request."""

    def __init__(self, spark: SparkSession, request: Request) -> None:
        self._spark = spark
        self._request = request
        self._payload: Payload = payload_of(
            request.payload_format,
            topic=request.input,
            schema_path=request.schema_path,
            message_name=request.message_name,
            framed=request.framed,
            reserved=RESERVED,
        )
        self._query = TransformQuery(request.sql, request.output)
        self._counts: dict[int, tuple[int, int, int]] = {}
        self.report = Report()

    def check(self) -> None:
        message = StructField(MESSAGE, source_schema(include_headers=True), False)
        self._query.check(self._spark, StructType([*self._payload.schema, message]))

    def start(self) -> StreamingQuery:
        request = self._request
        messages = (
            self._spark.readStream.format(FORMAT)
            .options(
                **{SERVERS: ",".join(request.servers)},
                subscribe=request.input,
                startingOffsets=request.starting_offsets,
                maxOffsetsPerTrigger=str(request.offsets_per_batch_max),
                includeHeaders="true",
                failOnDataLoss=_flag(not request.accepts_loss),
            )
            .load()
        )
        message = F.struct(*messages.columns).alias(MESSAGE)
        writer = (
            messages.select(message, self._payload.decoded(F.col("value")).alias(_DECODED))
            .writeStream.foreachBatch(self._write)
            .option("checkpointLocation", request.checkpoint)
        )
        if request.interval_ms is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{request.interval_ms} milliseconds").start()

    def ended(self, progress: dict[str, Any]) -> Report:
        """A batch has ended: add it to the report."""
        counts = self._counts.pop(progress["batchId"], None)
        so_far = self.report
        if counts is None:
            return so_far  # Nothing was there, and no batch.
        read, bad, written = counts
        self.report = Report(
            so_far.batches + 1,
            so_far.read + read,
            so_far.written + written,
            so_far.bad + bad,
            behind(progress),
        )
        return self.report

    def _write(self, frame: DataFrame, batch: int) -> None:
        """Write a batch: once, however often Spark asks."""
        request = self._request
        query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query_id is not None
        # Whether there are bad values has to be known before anything is written.
        frame = frame.persist()
        try:
            read, bad = frame.agg(F.count(F.lit(1)), F.count(f"{_DECODED}.{ERROR}")).collect()[0]
            if bad:
                self._judge(frame, batch, read, bad)
            output = self._query.messages(_good(frame))
            made = Observation()
            output = output.observe(made, F.count(F.lit(1)).alias("rows"))
            if bad:
                output = output.unionByName(_bad(frame, request.error_topic))
            output.write.format(FORMAT).options(
                **{SERVERS: ",".join(request.servers)},
                includeHeaders="true",
                transactionTimeout=f"{request.transaction_timeout_ms}ms",
                failOnReplayMismatch=_flag(not request.accepts_committed),
                txnAppId=f"transform/{query_id}",
                txnVersion=str(batch),
            ).mode("append").save()
            self._counts[batch] = (read, bad, made.get["rows"])
        finally:
            frame.unpersist()

    def _judge(self, frame: DataFrame, batch: int, read: int, bad: int) -> None:
        """Raises: TransformFailed: a batch with such bad values is not written."""
        request = self._request
        if request.error_topic is not None and (bad < read or batch > 0 or request.accepts_all_bad):
            return
        place, reason = (
            frame.where(F.col(f"{_DECODED}.{ERROR}").isNotNull())
            .select(_place(), f"{_DECODED}.{ERROR}")
            .take(1)[0]
        )
        if request.error_topic is None:
            raise TransformFailed(
                f"{bad:,} of {read:,} values cannot be decoded, such as {place}: {reason}. Nothing"
                " of this batch was written. Name a topic for them with --errors"
            )
        raise TransformFailed(
            f"none of the first {read:,} values can be decoded, such as {place}: {reason}. Nothing"
            f" was written. Look whether they are {request.payload_format} of this schema; with"
            f" --accept-all-bad they go to {request.error_topic}"
        )


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _good(frame: DataFrame) -> DataFrame:
    """Return the rows that the query sees."""
    return frame.where(F.col(f"{_DECODED}.{ERROR}").isNull()).select(
        f"{_DECODED}.{RECORD}.*", MESSAGE
    )


def _bad(frame: DataFrame, topic: str | None) -> DataFrame:
    """Messages as they were read, and why they are here."""
    reasons = F.array(
        _header(REASON, F.col(f"{_DECODED}.{ERROR}")), _header(SOURCE, _place())
    ).cast(HEADERS_TYPE)
    headers = F.col(f"{MESSAGE}.headers")
    return frame.where(F.col(f"{_DECODED}.{ERROR}").isNotNull()).select(
        F.lit(topic).alias("topic"),
        F.col(f"{MESSAGE}.key").alias("key"),
        F.col(f"{MESSAGE}.value").alias("value"),
        F.concat(F.coalesce(headers, F.array().cast(HEADERS_TYPE)), reasons).alias("headers"),
        F.col(f"{MESSAGE}.event_time").alias("event_time"),
    )


def _place() -> Column:
    return F.concat_ws("/", f"{MESSAGE}.topic", f"{MESSAGE}.partition", f"{MESSAGE}.offset")


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))
