"""Audits topics: finds duplicates, gaps, torn transactions, and orphans in the sidecar.

The audit first lists the sidecars of all partitions, then takes the ends of their logs, then reads
the logs. So a transaction that had ended at the first look has its commit marker before those ends.
Each task keeps a few numbers of what it reads, mostly a row for each transaction and partition.
Spark keeps these rows on disk and groups them by TxnID. The driver gets findings only. The audit
judges from outside, like any client. Source: PIP-31, Broker - Transaction Buffer; KIP-664, Finding
Hanging Transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from magnetar import Cut, blocking
from magnetar.admin.transaction_descriptions import TransactionDescription, UnfinishedParticipant
from magnetar.enums import TransactionStatus
from magnetar_core.errors import TopicNotFound
from magnetar_spark.clients import client_of
from magnetar_spark.jobs.auditing import audit_checks
from magnetar_spark.jobs.auditing.audit_checks import Finding, Row
from magnetar_spark.jobs.auditing.audit_source import checked_in, stored_in
from magnetar_spark.jobs.auditing.audit_transactions import SEEN, Judge, judged
from magnetar_spark.jobs.auditing.audit_unique import check_unique, shared
from magnetar_spark.jobs.failures import JobError, one_line
from magnetar_spark.jobs.job_cuts import cut_at, later_than
from magnetar_spark.jobs.unfinished_transactions import unfinished_transactions
from magnetar_spark.options.source import NOW
from magnetar_spark.planning import Range

ORPHAN_MS_DEFAULT = 10_000


@dataclass(frozen=True)
class Request:
    """Request for an audit.

    Attributes:
        servers: the addresses of brokers, "host:port".
        topics: the topics; all if empty.
        unique: a Spark SQL expression over the source's columns, whose value no two messages of a
            topic may share; null is ignored.
        orphan_ms: how long a transaction must be open at a broker to count as an orphan, in
            milliseconds. A command that comes after the end of its transaction is open for a
            moment, until the coordinator is told of it.
        findings_max: how many findings of each kind to keep; all are counted.
        at: audit what a cut has: its token, or "now"; None: all up to the present ends. Without
            topics, a token means all topics of the cut.
    """

    servers: tuple[str, ...]
    topics: tuple[str, ...] = ()
    unique: str | None = None
    orphan_ms: int = ORPHAN_MS_DEFAULT
    findings_max: int = 1_000
    at: str | None = None


@dataclass(frozen=True)
class Report:
    """Report of an audit.

    Attributes:
        counts: the number of findings of each kind, including those that are not kept.
        transactions: how many transactions readers see.
        cut: the token of the cut that was audited; empty: without.
    """

    topics: int
    partitions: int
    messages: int
    transactions: int
    counts: dict[str, int]
    findings: tuple[Finding, ...]
    cut: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings."""
        return not any(self.counts.values())


class AuditFailed(JobError):
    """The audit failed, and found out nothing. Its text is a single line."""


class Tally:
    """Counts the findings of each kind, and keeps the first of them."""

    def __init__(self, findings_max: int) -> None:
        self.counts = dict.fromkeys(audit_checks.KINDS, 0)
        self._findings_max = findings_max
        self._kept: dict[str, list[Finding]] = {kind: [] for kind in audit_checks.KINDS}

    def add(self, findings: Iterable[Finding]) -> None:
        """Count findings, and keep them while there is room."""
        for finding in findings:
            self.counts[finding.kind] += 1
            if len(self._kept[finding.kind]) < self._findings_max:
                self._kept[finding.kind].append(finding)

    def add_untold(self, kind: str, count: int) -> None:
        """Count findings that are not kept."""
        self.counts[kind] += count

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the kept findings."""
        return tuple(
            one for kind in audit_checks.KINDS for one in sorted(self._kept[kind], key=_order)
        )


def audit(
    spark: SparkSession, request: Request, on_step: Callable[[str], None] = lambda _: None
) -> Report:
    """Read topics to their present ends and judge them.

    Args:
        spark: the session.
        request: what to audit.
        on_step: called with each step, to show progress.
    Raises:
        OptionError: `unique` is not an expression over the source's columns.
        TopicNotFound: the request names a topic that does not exist.
        MagnetarError: the servers cannot be reached.
        AuditFailed: a task failed, for these or other reasons.
        JobError: the topics cannot be audited at this cut.
    """
    try:
        return _audit(spark, request, on_step)
    except (PySparkException, Py4JError) as error:
        raise AuditFailed(one_line(str(error))) from error


def tasks_done(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the running stages are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
    known = [one for one in stages if one is not None]
    return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)


def _audit(spark: SparkSession, request: Request, on_step: Callable[[str], None]) -> Report:
    if request.unique is not None:
        check_unique(spark, request.unique)
    client = client_of(request.servers)
    given = None if request.at in (None, NOW) else cut_at(client, request.at, request.topics)
    topics = _topics(client, request.topics or (() if given is None else given.topics))
    tally = Tally(request.findings_max)
    places = _ranges(client, topics)
    on_step(f"listing what {len(places):,} partitions have in their sidecars")
    with _kept(stored_in(spark, request.servers, places)) as stored:
        stored.count()  # Now, before the ends are taken.
        cut = taken_now(client, topics) if request.at == NOW else given
        later = None if cut is None else later_than(client, cut, topics)
        ranges = _ranges(client, topics) if cut is None else _ranges_at(cut, topics)
        refusals = _refusals(client)
        tally.add(
            _of_refusal(*refusal) for refusal in refusals if refusal[1].partition.topic in topics
        )
        on_step(f"reading {sum(one.count for one in ranges):,} offsets")
        some = [one for one in ranges if one.count]
        with _kept(checked_in(spark, request.servers, some, later)) as rows:
            messages = _sum(rows.where(F.col("kind") == audit_checks.SCANNED))
            on_step("bringing transactions together")
            judge = Judge(
                request.servers,
                {(one.topic_id, one.partition): one.end for one in ranges},
                frozenset(
                    (part.partition.topic_id, part.partition.partition, str(one.txn_id))
                    for one, part in refusals
                    if not part.subscription
                ),
                request.orphan_ms,
            )
            with _kept(judged(spark, rows.unionByName(stored), judge)) as verdicts:
                transactions = _sum(verdicts.where(F.col("kind") == SEEN))
                _add_told(tally, rows.unionByName(verdicts), request.findings_max)
    if request.unique is not None:
        on_step(f"looking for messages that share {request.unique}")
        found, total = shared(
            spark, request.servers, request.unique, some, request.findings_max, later
        )
        tally.add(found)
        tally.add_untold(audit_checks.DUPLICATE, total - len(found))
    tally.add(_hanging_acks(client, ranges, request.orphan_ms))
    return Report(
        len({one.topic for one in ranges}),
        len(ranges),
        messages,
        transactions,
        tally.counts,
        tally.findings,
        "" if cut is None else str(cut),
    )


@contextmanager
def _kept(rows: DataFrame) -> Iterator[DataFrame]:
    """On disk, as long as they are needed."""
    rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield rows
    finally:
        rows.unpersist()


def _sum(rows: DataFrame) -> int:
    found = rows.agg(F.sum("messages")).first()
    return int((found[0] if found is not None else 0) or 0)


def _order(one: Finding) -> tuple[str, int, int, str]:
    place = -1 if one.first_offset is None else one.first_offset
    return one.topic, one.partition, place, one.txn_id


def _topics(client: blocking.Client, named: Iterable[str]) -> dict[str, bool]:
    """Return the topics to read; the value says whether a topic was named, and so must exist."""
    chosen = sorted(set(named))
    if chosen:
        return dict.fromkeys(chosen, True)
    return dict.fromkeys(sorted(one.topic for one in client.admin.topics.list()), False)


def _ranges(client: blocking.Client, topics: dict[str, bool]) -> list[Range]:
    """Return the present range of each partition."""
    ranges = []
    for topic, is_named in topics.items():
        try:
            found = client.admin.topics.list_offsets(topic)
        except TopicNotFound:
            if is_named:
                raise
            continue  # It was deleted just now.
        ranges += [
            Range(topic, found.topic_id, one.partition, one.first_offset, one.end_offset)
            for one in found.partitions
        ]
    return ranges


def taken_now(client: blocking.Client, topics: dict[str, bool]) -> Cut | None:
    """Return a cut of topics; None if there are none.

    Args:
        topics: whether each was named, and so must be there. Others that are deleted meanwhile are
            taken out of it.
    Raises:
        TopicNotFound: a topic that was named does not exist.
        MagnetarError: as cut_at.
    """
    while topics:
        try:
            return cut_at(client, NOW, list(topics))
        except TopicNotFound:
            there = {one.topic for one in client.admin.topics.list()}
            gone = [topic for topic in topics if topic not in there]
            if not gone or any(topics[topic] for topic in gone):
                raise
            for topic in gone:
                del topics[topic]
    return None


def _ranges_at(cut: Cut, topics: Iterable[str]) -> list[Range]:
    """Return the range of each partition that a cut has."""
    return [
        Range(topic, cut.taken.topic(topic).topic_id, number, one.first_offset, one.end_offset)
        for topic in topics
        for number, one in enumerate(cut.taken.topic(topic).partitions)
    ]


def _add_told(tally: Tally, rows: DataFrame, findings_max: int) -> None:
    """The first findings of each kind, and how many there are."""
    found = rows.where(F.col("kind").isin(*audit_checks.KINDS))
    counts = {one[0]: one[1] for one in found.groupBy("kind").count().collect()}
    for kind, count in counts.items():
        chosen = found.where(F.col("kind") == kind).orderBy("topic", "partition", "first", "txn_id")
        some = [Row(*one) for one in chosen.limit(findings_max).collect()]
        tally.add(audit_checks.of_rows(some))
        tally.add_untold(kind, count - len(some))


def _refusals(
    client: blocking.Client,
) -> list[tuple[TransactionDescription, UnfinishedParticipant]]:
    """Decided transactions, and the participants that refuse to end them: what they had is lost.

    Raises:
        JobError: there are so many that a coordinator left some out.
    """
    unfinished = unfinished_transactions(
        client, (TransactionStatus.COMMITTING, TransactionStatus.ABORTING)
    )
    return [
        (transaction, one)
        for transaction in unfinished
        for one in transaction.unfinished
        if one.refuses
    ]


def _of_refusal(transaction: TransactionDescription, one: UnfinishedParticipant) -> Finding:
    who = f"subscription {one.subscription}" if one.subscription else "the partition"
    return Finding(
        audit_checks.TRANSACTION,
        one.partition.topic,
        one.partition.partition,
        txn_id=str(transaction.txn_id),
        detail=f"{transaction.status.name}, and {who} refuses: {one.last_error}",
    )


def _hanging_acks(
    client: blocking.Client, ranges: Sequence[Range], orphan_ms: int
) -> Iterator[Finding]:
    """Acknowledgements that are open at a subscription, and at no coordinator."""
    for one in ranges:
        try:
            producers = client.admin.transactions.describe_producers(one.topic, one.partition)
        except TopicNotFound:
            continue
        acks = [each for each in producers if each.subscription]
        for hanging in client.admin.transactions.hanging_among(acks, age_ms_min=orphan_ms):
            yield Finding(
                audit_checks.ORPHAN,
                one.topic,
                one.partition,
                hanging.producer.start_offset,
                txn_id=str(hanging.producer.txn_id),
                detail=f"acks of {hanging.producer.subscription}: {hanging.reason}",
            )
