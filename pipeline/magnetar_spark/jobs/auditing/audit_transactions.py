"""Groups the rows of each transaction, and asks the servers about it.

This runs in Spark's tasks, with some hundred transactions at a time, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from magnetar import blocking
from magnetar.admin.producer_descriptions import ProducerDescription
from magnetar_core.errors import Gone, TopicNotFound
from magnetar_core.ids import PartitionName, TxnID
from magnetar_spark.clients import client_of
from magnetar_spark.jobs.auditing import audit_checks
from magnetar_spark.jobs.auditing.audit_checks import Row
from magnetar_spark.jobs.auditing.audit_source import ROW_SCHEMA

TXNS_AT_ONCE = 1_000
# Of a row that says how many transactions readers see.
SEEN = "seen"

# A transaction at a partition: topic id, partition, TxnID.
Place = tuple[int, int, str]


@dataclass(frozen=True)
class Judge:
    """Judge of transactions in tasks. It is pickled to all tasks, so it is small.

    Attributes:
        ends: up to which offsets logs were read, by topic id and partition.
        refused: participants that refuse a commit, which is a finding already.
        orphan_ms: how long a transaction must be open to be an orphan, in milliseconds.
    """

    servers: tuple[str, ...]
    ends: Mapping[tuple[int, int], int]
    refused: frozenset[Place]
    orphan_ms: int

    def judge(self, together: Iterable[Any]) -> Iterator[Row]:
        """Return the findings, and how many transactions readers see.

        Args:
            together: for each transaction its `txn_id` and its `rows`.
        """
        client = client_of(self.servers)
        transactions = iter(together)
        while some := list(islice(transactions, TXNS_AT_ONCE)):
            by_txn = {one.txn_id: [Row(*row) for row in one.rows] for one in some}
            seen = sum(
                any(row.kind == audit_checks.PART and row.messages for row in rows)
                for rows in by_txn.values()
            )
            yield Row(SEEN, "", 0, 0, messages=seen)
            yield from self._ended(client, by_txn)
            yield from self._hanging(client, by_txn)

    def _ended(self, client: blocking.Client, by_txn: Mapping[str, Sequence[Row]]) -> Iterator[Row]:
        """Yield errors in what readers see, or should see."""
        chosen = [
            txn_id
            for txn_id, rows in by_txn.items()
            if any(row.kind != audit_checks.OPEN for row in rows)
        ]
        known = client.admin.transactions.statuses([TxnID.parse(txn_id) for txn_id in chosen])
        statuses = {
            txn_id: "" if status is None else status.name
            for txn_id, status in zip(chosen, known, strict=True)
        }
        suspects = []
        for txn_id, status in statuses.items():
            yield from audit_checks.judge(by_txn[txn_id], status)
            suspects += [
                row
                for row in audit_checks.unmarked(by_txn[txn_id], self.ends)
                if (*row.place, txn_id) not in self.refused
            ]
        # At an end before the first offset, readers no longer see the transaction nor its messages.
        for row in still_stored(client, suspects, is_open=False):
            yield audit_checks.of_unmarked(row, by_txn[row.txn_id], statuses[row.txn_id])

    def _hanging(
        self, client: blocking.Client, by_txn: Mapping[str, Sequence[Row]]
    ) -> Iterator[Row]:
        rows = [row for rows in by_txn.values() for row in rows if row.kind == audit_checks.OPEN]
        by_producer = {_producer_of(row): row for row in rows}
        hanging = client.admin.transactions.hanging_among(by_producer, age_ms_min=self.orphan_ms)
        reasons = {by_producer[one.producer]: one.reason for one in hanging}
        for row in still_stored(client, list(reasons), is_open=True):
            yield audit_checks.of_hanging(row, reasons[row])


def judged(spark: SparkSession, rows: DataFrame, judge: Judge) -> DataFrame:
    """Return a `Row` for each finding, and a row of kind SEEN for each portion."""
    together = (
        rows.where(F.col("txn_id") != "")
        .groupBy("txn_id")
        .agg(F.collect_list(F.struct(*Row._fields)).alias("rows"))
    )
    found = together.rdd.mapPartitions(judge.judge)
    return spark.createDataFrame(found, ROW_SCHEMA, verifySchema=False)


def still_stored(client: blocking.Client, rows: Sequence[Row], *, is_open: bool) -> Iterator[Row]:
    """Return the rows whose transaction is in its partition's sidecar now, open or not."""
    by_place: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        by_place.setdefault((row.topic, row.topic_id, row.partition), []).append(row)
    for (topic, topic_id, partition), some in by_place.items():
        try:
            page = client.admin.topics.stored_transactions(
                topic,
                partition,
                txn_ids=[TxnID.parse(row.txn_id) for row in some],
                topic_id=topic_id,
            )
        except (Gone, TopicNotFound):
            continue
        there = {str(one.txn_id) for one in page.transactions if one.is_open == is_open}
        yield from (row for row in some if row.txn_id in there)


def _producer_of(row: Row) -> ProducerDescription:
    return ProducerDescription(
        PartitionName(row.topic, row.partition, row.topic_id),
        "",
        0,
        row.producer_epoch,
        0,
        row.start_ms,
        TxnID.parse(row.txn_id),
        row.first,
        row.start_ms,
    )
