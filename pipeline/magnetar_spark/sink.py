"""The sink: each micro-batch and each batch write is a transaction that its driver commits.

Each attempt at a task is a separate producer in the batch's transaction, and reports what it has
written. The driver commits the attempts that Spark accepts, and nothing else in the transaction. A
named sequence makes a repeat harmless: see docs/design/0005-spark.md.
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
from magnetar.enums import TransactionAction, TransactionStatus
from magnetar.transactions.transaction_part import TransactionPart
from magnetar_core.batch import Codec
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import (
    MagnetarError,
    SequenceCommitted,
    SequenceTooOld,
    TopicNotFound,
)
from magnetar_core.ids import PartitionName, TxnID
from magnetar_spark.arrow_in import LargeMessage, Router, Rows, gathered
from magnetar_spark.clients import client_of
from magnetar_spark.content import Content
from magnetar_spark.errors import SinkError, said_first
from magnetar_spark.options.sink import SinkOptions
from magnetar_spark.work import (
    Work,
    begin,
    name_of_app,
    name_of_query,
    require_same,
    too_old,
    total,
)

log = logging.getLogger("magnetar.spark")

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"

# Rows that are put into order together: of many partitions, each is to fill a batch.
GATHER_BYTES = 4 << 20


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """Result of an attempt at a task, in plain values.

    Attributes:
        txn_id: the transaction; None: the work was committed before, and nothing was written.
        content: the fingerprint of the task's rows, written or not.
        committed: the fingerprint of the committed work; None: unknown.
        producers: topic, partition, topic id, producer id and count of messages.
    """

    name: str
    sequence: int
    txn_id: str | None
    content: Content
    committed: str | None = None
    producers: tuple[tuple[str, int, int, int, int], ...] = ()

    def part(self) -> TransactionPart:
        """Return the part of the transaction, for the commit."""
        assert self.txn_id is not None
        return TransactionPart(
            TxnID.parse(self.txn_id),
            tuple(
                (PartitionName(topic, partition, topic_id), producer_id, count)
                for topic, partition, topic_id, producer_id, count in self.producers
            ),
        )


def new_run_token() -> str:
    """Return a random number that identifies an attempt at a batch."""
    return f"{Random().getrandbits(128):032x}"


def write_task(options: SinkOptions, work: Work, batches: Iterator[pa.RecordBatch]) -> TaskMessage:
    """Write the rows of a task in the transaction of its work, and return what was written.

    Raises:
        SinkError: a row cannot be written, or later work is committed already.
        MagnetarError: the servers refuse. An attempt that comes too late learns so that the
            transaction has ended.
    """
    client = client_of(options.servers, options.links)
    router = Router(options.topic, include_headers=options.include_headers)
    rows = _Counted(router, gathered(batches, GATHER_BYTES))
    try:
        txn = begin(client, work, timeout_ms=options.timeout_ms)
    except SequenceCommitted as error:
        # Whether these are the rows that were committed, all tasks together can tell. And what
        # feeds this one keeps its state only when it was read to its end.
        for _ in rows:
            pass
        return TaskMessage(work.name, work.sequence, None, rows.content, error.fingerprint)
    except SequenceTooOld as error:
        raise too_old(work, error) from error
    try:
        with _Producers(client, options, txn) as producers:
            for topic, some in rows:
                producers.write(topic, some)
            part = txn.leave()
    except BaseException:
        txn.withdraw()
        raise
    return TaskMessage(
        work.name,
        work.sequence,
        str(part.txn_id),
        rows.content,
        None,
        tuple(
            (name.topic, name.partition, name.topic_id, producer_id, count)
            for name, producer_id, count in part.producers
        ),
    )


class _Counted:
    """A task's rows by topic, and what those that have come so far consist of."""

    def __init__(self, router: Router, batches: Iterator[pa.RecordBatch]) -> None:
        self._router = router
        self._batches = batches
        self.content = Content()

    def __iter__(self) -> Iterator[tuple[str, Rows]]:
        for batch in self._batches:
            for topic, rows in self._router.rows(batch):
                self.content += rows.content(topic)
                yield topic, rows


class _Producers:
    """Producers of a task's transaction, by topic."""

    def __init__(
        self, client: blocking.Client, options: SinkOptions, txn: blocking.Transaction
    ) -> None:
        self._client = client
        self._options = options
        self._txn = txn
        self._by_topic: dict[str, blocking.Producer] = {}

    def write(self, topic: str, rows: Rows) -> None:
        producer = self._producer(topic)
        for partition, one in rows.batches(topic, producer.partition_count):
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
                found = self._client.create_producer(
                    topic, codec=Codec[self._options.codec.upper()]
                )
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
    """Commit the messages that the accepted attempts have written.

    If the work is committed already, with the same rows, nothing happens.

    Raises:
        SinkError: the work cannot be committed; nothing of it counts.
        OutcomeUnknown: no answer came in time. The work may be committed; a repeat finds out.
    """
    tasks = [one for one in messages if isinstance(one, TaskMessage)]
    if not tasks:
        return
    work = f"{tasks[0].name} {tasks[0].sequence}"
    content = total(one.content for one in tasks)
    idle = [one for one in tasks if one.txn_id is None]
    if idle:
        require_same(options, work, content, (one.committed for one in idle))
        return
    if len({one.txn_id for one in tasks}) > 1:
        raise SinkError(
            f"the tasks of {work} wrote in several transactions: the first one ended before its"
            " time, by transactionTimeout, by an administrator, or because another query runs on"
            " the same checkpoint. Nothing of this run counts; restart the query"
        )
    client = client_of(options.servers, options.links)
    parts = [one.part() for one in tasks]
    try:
        status = client.commit_parts(parts, fingerprint=str(content))
    except MagnetarError as error:
        if error.kind is not ErrorKind.START_OVER:
            raise
        raise SinkError(
            f"the transaction of {work} had been aborted: by transactionTimeout, by an"
            " administrator, or because another query runs on the same checkpoint. Nothing of this"
            f" run counts; restart the query ({error})"
        ) from error
    if status is not TransactionStatus.COMMITTED:
        try:
            # So that the next batch comes behind this one in every partition.
            client.commit_parts(parts, wait_finished=True)
        except MagnetarError as error:
            if not error.kind.may_pass:
                raise
            log.warning("%s is decided, and not yet carried out everywhere: %s", work, error)


def abort_tasks(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort the write, unless its outcome is decided: the coordinator refuses then.

    Spark calls this also after a commit that raised, whose outcome may be either.
    """
    txn_ids = {
        message.txn_id
        for message in messages
        if isinstance(message, TaskMessage) and message.txn_id
    }
    for txn_id in txn_ids:
        try:
            client_of(options.servers, options.links).admin.transactions.end(
                TxnID.parse(txn_id), TransactionAction.ABORT, wait_finished=False
            )
        except MagnetarError as error:
            log.info("%s was not aborted: %s", txn_id, error)


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a micro-batch.

    Spark makes a writer on the driver for each run of a batch, and sends it to all attempts at its
    tasks. It makes another writer to commit or abort, which knows only what the messages say.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._run_token = new_run_token()

    @said_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of a task; called in executors."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch_id = context.getLocalProperty(BATCH_ID) if context is not None else None
        if query_id is None or batch_id is None:
            raise SinkError(
                f"this Spark does not tell its tasks which query and batch they belong to"
                f" ({QUERY_ID}, {BATCH_ID}): the sink needs Spark 4.2 or later"
            )
        work = Work(name_of_query(query_id), int(batch_id), self._run_token)
        return write_task(self._options, work, iterator)

    @said_first()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the batch; called on the driver."""
        commit_tasks(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the batch; called on the driver."""
        abort_tasks(self._options, messages)


class BatchWriter(DataSourceArrowWriter):
    """The sink of a batch write. With txnAppId and txnVersion it counts once, even if repeated."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        token = new_run_token()
        self._is_named = options.app_id is not None
        self._work = (
            Work(f"spark/write/{token}", 0, token)
            if options.app_id is None
            else Work(name_of_app(options.app_id, options.topic), options.app_version, token)
        )

    @said_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of a task; called in executors."""
        return write_task(self._options, self._work, iterator)

    @said_first()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the write; called on the driver."""
        commit_tasks(self._options, messages)
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the write; called on the driver."""
        abort_tasks(self._options, messages)

    def _forget(self) -> None:
        """Delete the name of this write's sequence, which is used only once."""
        if self._is_named:
            return
        try:
            client_of(self._options.servers, self._options.links).admin.named_sequences.remove(
                self._work.name
            )
        except MagnetarError as error:
            log.info("%s was not removed: %s", self._work.name, error)
