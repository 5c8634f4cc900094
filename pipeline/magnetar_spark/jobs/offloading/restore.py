"""Restores an offload into a topic: each message into its partition, in order, exactly once.

A restore runs in batches, and each batch is a transaction of a named sequence. The end of a batch
is written beside the offload before the batch runs. So a restore that was killed continues with the
same batch, and the coordinator knows whether it was committed. Source: PIP-31, Compacting
Transaction Log; docs/pipeline.md, Restore.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from magnetar import blocking
from magnetar.admin.topic_descriptions import TopicOffsets
from magnetar.enums import TransactionStatus
from magnetar_core.clock import SystemClock
from magnetar_core.errors import TopicNotFound
from magnetar_spark.clients import client_of
from magnetar_spark.jobs.failures import one_line
from magnetar_spark.jobs.offloading.directory import Directory, open_directory
from magnetar_spark.jobs.offloading.manifest import Manifest, partition_directory, places_of
from magnetar_spark.jobs.offloading.offload_log import OffloadError, OffloadLog, RestoreLog
from magnetar_spark.jobs.offloading.split_points import SplitPoint, Splitter, between
from magnetar_spark.jobs.spark_session import settings
from magnetar_spark.jobs.unfinished_transactions import unfinished_transactions
from magnetar_spark.options.given import SERVERS
from magnetar_spark.planning import new_count
from magnetar_spark.registration import register
from magnetar_spark.schema import HEADERS_TYPE, source_schema
from magnetar_spark.sink import new_run_token
from magnetar_spark.work import name_of_app

MESSAGES_PER_TRANSACTION = 1_000_000
FINISH_PATIENCE_MS = 120_000
FINISH_PERIOD_S = 0.05
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # What is not there or damaged would otherwise be left out in silence.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}
# Not the time of storing: without an event time, the sink would take it for one.
_COLUMNS = ("key", "value", "partition", "event_time")
_SCHEMA = StructType([one for one in source_schema(include_headers=True) if one.name != "topic"])


@dataclass(frozen=True)
class Request:
    """Request to restore an offload into a topic.

    Attributes:
        servers: the addresses of brokers, "host:port".
        transaction_messages: how many messages a transaction has, about and at most.
        transaction_timeout_ms: the timeout of each transaction, in milliseconds.
        append: whether the topic may have messages already; the restore writes behind them.
        include_unfinished: whether to restore the last transactions, which the offload may have in
            part.
    """

    servers: tuple[str, ...]
    directory: str
    topic: str
    transaction_messages: int = MESSAGES_PER_TRANSACTION
    transaction_timeout_ms: int = 600_000
    append: bool = False
    include_unfinished: bool = False


@dataclass(frozen=True)
class Progress:
    """Progress of a run, in the offload's offsets."""

    done: int
    total: int
    transactions: int


@dataclass(frozen=True)
class Report:
    """Result of a run.

    Attributes:
        transactions: how many transactions, of bounded size, this run has written.
        split: how many original transactions are divided among several of them.
        left_out: how many offsets at the end were left, of transactions that the offload has in
            part, and behind these.
    """

    topic: str
    topic_id: int
    directory: str
    messages: int
    transactions: int
    split: int
    left_out: int


@dataclass(frozen=True)
class _Batch:
    """Batch as the log has it."""

    offload_id: str
    begin: SplitPoint
    end: SplitPoint
    messages: int
    split: int

    def to_json(self) -> dict[str, Any]:
        return {
            "offload_id": self.offload_id,
            "begin": [self.begin[number] for number in sorted(self.begin)],
            "end": [self.end[number] for number in sorted(self.end)],
            "messages": self.messages,
            "split": self.split,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> _Batch:
        return cls(
            found["offload_id"],
            dict(enumerate(found["begin"])),
            dict(enumerate(found["end"])),
            found["messages"],
            found["split"],
        )


def restore(
    spark: SparkSession, request: Request, on_progress: Callable[[Progress], None] | None = None
) -> Report:
    """Restore the messages that the topic does not have yet.

    Args:
        spark: the session.
        request: what to restore.
        on_progress: called with the progress.
    Raises:
        OffloadError: there is no offload, or a damaged offload; the topic cannot take it; or a task
            failed.
        DirectoryError: the file system refuses.
        MagnetarError: the servers cannot be reached.
    """
    client = client_of(request.servers)
    directory = open_directory(spark, request.directory)
    log = OffloadLog(directory)
    manifest = log.latest()
    if manifest is None:
        raise OffloadError(f"there is no offload in {directory.url}")
    if not manifest.settled_at_ms and not request.include_unfinished:
        raise OffloadError(
            f"the offload in {directory.url} was interrupted: run it again. What there is can be"
            " restored with --include-unfinished, transactions in part too"
        )
    log.check_files(manifest)
    topic = _topic(client, request.topic, len(manifest.partitions))
    restoring = _Restoring(spark, request, client, directory, manifest, topic)
    with settings(spark, SETTINGS):
        return restoring.run(on_progress)


def _topic(client: blocking.Client, topic: str, partitions: int) -> TopicOffsets:
    """The topic to write into, made if it is not there."""
    try:
        found = client.admin.topics.list_offsets(topic)
    except TopicNotFound:
        client.admin.topics.create(topic, partitions=partitions)
        found = client.admin.topics.list_offsets(topic)
    if len(found.partitions) < partitions:
        raise OffloadError(
            f"topic {topic!r} has {len(found.partitions)} partitions, and the offload {partitions}:"
            " name another topic, which will be made"
        )
    return found


class _Restoring:
    """Into one topic."""

    def __init__(
        self,
        spark: SparkSession,
        request: Request,
        client: blocking.Client,
        directory: Directory,
        manifest: Manifest,
        topic: TopicOffsets,
    ) -> None:
        self._spark = spark
        register(self._spark)
        self._request = request
        self._client = client
        self._directory = directory
        self._manifest = manifest
        self._topic = topic
        self._app_id = f"restore/{manifest.offload_id}/{topic.topic_id}"
        self._log = RestoreLog(directory, client.admin.cluster_info().cluster_id, topic.topic_id)
        self._clock = SystemClock()

    def run(self, on_progress: Callable[[Progress], None] | None) -> Report:
        number, begin = self._begin()
        wanted = self._rows(begin, self._manifest.ends())
        splitter = Splitter(wanted.select("partition", "offset", "txn_id"))
        at, count, messages, split = begin, 0, 0, 0
        try:
            end = self._end(splitter, begin)
            total = _count(begin, end)
            while _count(at, end):
                batch = self._planned(number, at, end, splitter)
                # Messages keep their order only behind what is carried out.
                self._wait_finished()
                self._write(number, batch)
                number, at = number + 1, batch.end
                # A run before this one may have planned to include more.
                end = {one: max(offset, at[one]) for one, offset in end.items()}
                count, messages, split = count + 1, messages + batch.messages, split + batch.split
                if on_progress is not None:
                    on_progress(Progress(_count(begin, at), max(total, _count(begin, at)), count))
            self._wait_finished()
        finally:
            splitter.close()
        return Report(
            *(self._request.topic, self._topic.topic_id, self._directory.url),
            *(messages, count, split, _count(at, self._manifest.ends())),
        )

    def _begin(self) -> tuple[int, SplitPoint]:
        """The next batch's number, and where it begins.

        Raises:
            OffloadError: the topic has messages of others; or batches were committed of which
                nothing is written down here.
        """
        firsts = self._manifest.firsts()
        name = name_of_app(self._app_id, self._request.topic)
        committed = self._client.admin.named_sequences.describe(name).committed_sequence
        if committed is None:
            if any(one.end_offset for one in self._topic.partitions) and not self._request.append:
                raise OffloadError(
                    f"topic {self._request.topic!r} has messages already: name another topic, or"
                    " write behind them with --append"
                )
            return 0, firsts
        last = self._written_down(committed)
        if last is None:
            raise OffloadError(
                f"this offload was restored into topic {self._request.topic!r} from another copy"
                f" of {self._directory.url}, which alone knows how far that came: continue there, "
                "or restore into another topic"
            )
        return committed + 1, {**firsts, **last.end}

    def _end(self, splitter: Splitter, begin: SplitPoint) -> SplitPoint:
        """Return the end of the messages to restore."""
        manifest = self._manifest
        if self._request.include_unfinished:
            end = manifest.ends()
        else:
            settled = {one: max(offset, begin[one]) for one, offset in manifest.settled().items()}
            end = splitter.before(begin, settled, manifest.unfinished)
        return {one: max(offset, begin[one]) for one, offset in end.items()}

    def _planned(
        self, number: int, begin: SplitPoint, end: SplitPoint, splitter: Splitter
    ) -> _Batch:
        """A batch as it is written down, by this run or by one that was killed."""
        found = self._written_down(number)
        if found is None:
            cut = splitter.batch(begin, end, self._request.transaction_messages)
            planned = _Batch(
                *(self._manifest.offload_id, begin, cut.end),
                *(self._rows(begin, cut.end).count(), cut.split),
            )
            self._log.write(number, planned.to_json(), new_run_token())
            found = self._written_down(number)
        if found is None or found.begin != begin:
            raise OffloadError(
                f"what is written down of batch {number} beside {self._directory.url} does not fit"
                " what was restored before. Nothing was written"
            )
        return found

    def _written_down(self, number: int) -> _Batch | None:
        found = self._log.read(number)
        if found is None:
            return None
        ends = self._manifest.ends()
        try:
            batch = _Batch.from_json(found)
            fits = all(batch.begin[one] <= offset <= ends[one] for one, offset in batch.end.items())
        except (KeyError, TypeError) as error:
            raise OffloadError(f"what is written down of batch {number} is damaged") from error
        if not fits:
            raise OffloadError(f"what is written down of batch {number} is damaged")
        if batch.offload_id != self._manifest.offload_id:
            return None
        # Partitions that the topic has got since.
        firsts = self._manifest.firsts()
        return replace(batch, begin={**firsts, **batch.begin}, end={**firsts, **batch.end})

    def _rows(self, begin: SplitPoint, end: SplitPoint) -> DataFrame:
        """The offload's rows from one cut to another."""
        names = [
            self._directory.path(f"{partition_directory(one.partition)}/{file.name}")
            for one in self._manifest.partitions
            for file in one.files
            if file.first_offset < end[one.partition] and begin[one.partition] < file.end_offset
        ]
        if not names:
            return self._spark.createDataFrame([], _SCHEMA)
        rows = (
            self._spark.read.schema(_SCHEMA)
            .option("basePath", self._directory.url)
            .option("parquet.page.verify-checksum.enabled", "true")
            .parquet(*names)
        )
        return between(rows, begin, end)

    def _write(self, number: int, batch: _Batch) -> None:
        """Commit a batch, unless it is committed."""
        count = len(self._manifest.partitions)
        # For each null list, Spark's way to Arrow looks at all rows of the batch before it.
        headers = F.coalesce("headers", F.array().cast(HEADERS_TYPE)).alias("headers")
        # One task for all of a partition, which keeps its order.
        rows = (
            self._rows(batch.begin, batch.end)
            .repartitionById(count, "partition")
            .sortWithinPartitions("partition", "offset")
            .select(*_COLUMNS, headers)
        )
        try:
            rows.write.format("magnetar").options(
                **{
                    SERVERS: ",".join(self._request.servers),
                    "topic": self._request.topic,
                    "includeHeaders": "true",
                    "transactionTimeout": f"{self._request.transaction_timeout_ms}ms",
                    "txnAppId": self._app_id,
                    "txnVersion": str(number),
                }
            ).mode("append").save()
        except (PySparkException, Py4JJavaError) as error:
            raise OffloadError(
                f"{one_line(str(error))}. Transaction {number} may count or not: run this again,"
                " and it goes on from there"
            ) from error

    def _wait_finished(self) -> None:
        """Wait until readers see the committed messages.

        Raises:
            OffloadError: a participant does not answer.
        """
        deadline_ms = self._clock.monotonic_ms() + FINISH_PATIENCE_MS
        pause = threading.Event()
        while True:
            waiting = [
                one.txn_id
                for one in unfinished_transactions(self._client, [TransactionStatus.COMMITTING])
                if any(of.partition.topic_id == self._topic.topic_id for of in one.unfinished)
            ]
            if not waiting:
                return
            if self._clock.monotonic_ms() > deadline_ms:
                raise OffloadError(
                    f"transaction {waiting[0]} is committed, and not yet carried out: `magnetar"
                    f" transactions describe {waiting[0]}` shows the participants. Run this again "
                    "afterwards"
                )
            pause.wait(FINISH_PERIOD_S)


def _count(begin: SplitPoint, end: SplitPoint) -> int:
    return new_count(places_of(begin), places_of(end))
