"""The sink: each micro-batch, and each batch write, is one transaction that its driver commits.

Each attempt at a task is a producer of its own in the batch's transaction, and reports what it has
written; the driver commits the parts of the attempts that Spark let win, and nothing else that
anybody wrote. A named sequence makes a repeat harmless: see docs/design/spark.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from magnetar import blocking
from magnetar.model import TransactionAction, TransactionStatus
from magnetar.participants import TransactionPart
from magnetar_core.errors import (
    InvalidTxnState,
    MagnetarError,
    OutcomeUnknown,
    SequenceCommitted,
    SequenceTooOld,
    TopicNotFound,
    TxnForgotten,
)
from magnetar_core.ids import PartitionName, TxnID
from magnetar_spark.arrow_in import LargeMessage, Router, gathered
from magnetar_spark.clients import client_of
from magnetar_spark.errors import SinkError
from magnetar_spark.options import SinkOptions

log = logging.getLogger("magnetar.spark")

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"

# Rows that are put into order together: of many partitions, each is to fill a batch.
GATHER_BYTES = 4 << 20


@dataclass(frozen=True)
class Work:
    """A piece of work that counts once.

    Attributes:
        run_token: of this attempt at it, the same for all its tasks.
    """

    name: str
    sequence: int
    run_token: str

    def __str__(self) -> str:
        return f"{self.name} {self.sequence}"


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What an attempt at a task has done; plain values.

    Attributes:
        txn_id: None: the work had been committed before, and nothing was written.
        producers: topic, partition, topic id, producer id and count of messages.
    """

    name: str
    sequence: int
    txn_id: str | None
    producers: tuple[tuple[str, int, int, int, int], ...] = ()

    def part(self) -> TransactionPart:
        assert self.txn_id is not None
        return TransactionPart(
            TxnID.parse(self.txn_id),
            tuple(
                (PartitionName(topic, partition, topic_id), producer_id, count)
                for topic, partition, topic_id, producer_id, count in self.producers
            ),
        )


def new_run_token() -> str:
    return f"{Random().getrandbits(128):032x}"


def write_task(options: SinkOptions, work: Work, batches: Iterator[pa.RecordBatch]) -> TaskMessage:
    """Write a task's rows in the work's transaction, and say what was written.

    Raises:
        SinkError: a row cannot be written, or the work comes after what is committed.
        MagnetarError: the servers refuse; as when the transaction has ended, which is how an
            attempt learns that it came too late.
    """
    client = client_of(options.servers)
    try:
        txn = client.begin_named_transaction(
            work.name, work.sequence, work.run_token, timeout_s=options.timeout_ms / 1000
        )
    except SequenceCommitted:
        log.info("%s is committed already: nothing is written", work)
        for _ in batches:
            pass  # What feeds it keeps its state only when it was read to its end.
        return TaskMessage(work.name, work.sequence, None)
    except SequenceTooOld as error:
        raise SinkError(
            f"{error}. This batch was written before, and later ones too: the checkpoint is older"
            " than the topic, as when a copy of it was put back. Go on with the newer checkpoint,"
            " or begin with a new one, which writes everything that it reads again"
        ) from error
    try:
        with _Producers(client, options, txn) as producers:
            for batch in gathered(batches, GATHER_BYTES):
                producers.write(batch)
            part = txn.leave()
    except BaseException:
        txn.withdraw()
        raise
    return TaskMessage(
        work.name,
        work.sequence,
        str(part.txn_id),
        tuple(
            (name.topic, name.partition, name.topic_id, producer_id, count)
            for name, producer_id, count in part.producers
        ),
    )


class _Producers:
    """One of each topic that a task writes to, in its transaction."""

    def __init__(
        self, client: blocking.Client, options: SinkOptions, txn: blocking.Transaction
    ) -> None:
        self._client = client
        self._options = options
        self._txn = txn
        self._router = Router(options.topic, include_headers=options.include_headers)
        self._by_topic: dict[str, blocking.Producer] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        for topic, rows in self._router.topics(batch):
            producer = self._producer(topic)
            for _, partition, one in self._router.batches(topic, producer.partition_count, rows):
                if isinstance(one, LargeMessage):
                    producer.enqueue(
                        one.value,
                        one.key,
                        properties=one.properties,
                        event_time_ms=one.event_time_ms,
                        partition=partition,
                        txn=self._txn,
                    )
                else:
                    producer.send_columns([one], partition=partition, txn=self._txn)

    def _producer(self, topic: str) -> blocking.Producer:
        found = self._by_topic.get(topic)
        if found is None:
            try:
                found = self._client.create_producer(topic, codec=self._options.codec)
            except TopicNotFound as error:
                raise SinkError(f"cannot write to topic {topic!r}: {error}") from error
            self._by_topic[topic] = found
        return found

    def __enter__(self) -> _Producers:
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self._by_topic.values():
            producer.close()


def commit_tasks(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit what the winning attempts have written. Harmless when it is committed already.

    Raises:
        SinkError: it cannot count; nothing of it does.
        OutcomeUnknown: no answer in time. It may be committed; a replay finds out.
    """
    tasks = [one for one in messages if isinstance(one, TaskMessage)]
    if not tasks:
        return
    work = f"{tasks[0].name} {tasks[0].sequence}"
    if any(one.txn_id is None for one in tasks):
        log.info("%s is committed already", work)
        return
    if len({one.txn_id for one in tasks}) > 1:
        raise SinkError(
            f"the tasks of {work} wrote in several transactions: the first one ended before its"
            " time, by transactionTimeout, by an administrator, or because another query runs on"
            " the same checkpoint. Nothing of this run counts; restart the query"
        )
    client = client_of(options.servers)
    parts = [one.part() for one in tasks]
    try:
        status = client.commit_parts(parts)
    except (InvalidTxnState, TxnForgotten) as error:
        raise SinkError(
            f"the transaction of {work} had been aborted: by transactionTimeout, by an"
            " administrator, or because another query runs on the same checkpoint. Nothing of this"
            f" run counts; restart the query ({error})"
        ) from error
    if status is not TransactionStatus.COMMITTED:
        try:
            # So that the next batch comes behind this one in every partition.
            client.commit_parts(parts, wait_finished=True)
        except OutcomeUnknown as error:
            log.warning("%s is decided, and not yet carried out everywhere: %s", work, error)


def abort_tasks(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Let go of what was written. What is decided stays: the coordinator refuses then.

    Spark also calls this when a commit raised, whose outcome may be either.
    """
    txn_ids = {one.txn_id for one in messages if isinstance(one, TaskMessage) and one.txn_id}
    for txn_id in txn_ids:
        try:
            client_of(options.servers).end_transaction(
                TxnID.parse(txn_id), TransactionAction.ABORT, wait_finished=False
            )
        except MagnetarError as error:
            log.info("%s was not aborted: %s", txn_id, error)


class StreamWriter(DataSourceStreamArrowWriter):
    """Of one run of a micro-batch.

    Spark makes one on the driver for each run, and sends it to all attempts at its tasks; and
    another one to commit or abort, which knows only what the messages carry.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._run_token = new_run_token()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch_id = context.getLocalProperty(BATCH_ID) if context is not None else None
        if query_id is None or batch_id is None:
            raise SinkError(
                f"this Spark does not tell its tasks which query and batch they belong to"
                f" ({QUERY_ID}, {BATCH_ID}): the sink needs Spark 4.2 or later"
            )
        work = Work(f"spark/{query_id}", int(batch_id), self._run_token)
        return write_task(self._options, work, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit_tasks(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        abort_tasks(self._options, messages)


class BatchWriter(DataSourceArrowWriter):
    """Of one batch write: with txnAppId and txnVersion it counts once, whatever is repeated."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        token = new_run_token()
        self._is_named = options.app_id is not None
        name = f"spark/app/{options.app_id}" if self._is_named else f"spark/write/{token}"
        self._work = Work(name, options.app_version, token)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        return write_task(self._options, self._work, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_tasks(self._options, messages)
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_tasks(self._options, messages)

    def _forget(self) -> None:
        """A name that nobody will ask for again."""
        if self._is_named:
            return
        try:
            client_of(self._options.servers).remove_name(self._work.name)
        except MagnetarError as error:
            log.info("%s was not removed: %s", self._work.name, error)
