"""Finds where a restore may split an offload: each transaction on a single side, in all partitions.

A split point is an offset in each partition. It moves down until no transaction lies on both sides.
The driver gets only sums of a few numbers for each partition.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from magnetar_spark.jobs.offloading.manifest import places_of
from magnetar_spark.planning import limited

# A chain of transactions that takes longer to follow counts as one without an end.
ROUNDS_MAX = 100

SplitPoint = dict[int, int]


@dataclass(frozen=True)
class Batch:
    """A batch of a restore.

    Attributes:
        split: how many transactions lie on both sides of its end.
    """

    end: SplitPoint
    split: int


def between(rows: DataFrame, begin: SplitPoint, end: SplitPoint) -> DataFrame:
    """Return the rows from a split point to another."""
    # The narrow bounds find files' groups of rows; the others are exact.
    return rows.where(
        (F.col("offset") >= min(begin.values())) & (F.col("offset") < max(end.values()))
    ).where((F.col("offset") >= _of_row(begin)) & (F.col("offset") < _of_row(end)))


class Splitter:
    """Finds split points in the rows of a restore.

    Args:
        rows: with columns partition, offset and txn_id.
    """

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows
        self._spans: DataFrame | None = None

    def close(self) -> None:
        """Free the table on disk."""
        if self._spans is not None:
            self._spans.unpersist()

    def spans(self) -> DataFrame:
        """Return the first and last offset of each transaction in each partition; kept on disk."""
        if self._spans is None:
            parts = (
                self._rows.where(F.col("txn_id").isNotNull())
                .groupBy("txn_id", "partition")
                .agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
            )
            self._spans = (
                parts.groupBy("txn_id")
                .agg(F.collect_list(F.struct("partition", "first", "last")).alias("parts"))
                .persist(StorageLevel.DISK_ONLY)
            )
        return self._spans

    def before(self, begin: SplitPoint, end: SplitPoint, unfinished: Collection[str]) -> SplitPoint:
        """The last split point up to `end` with no message of the given transactions before it.

        It splits no transaction either.

        Args:
            begin: the search does not look before this point.
        """
        if not unfinished:
            return end
        parts = self._behind(begin).where(F.col("txn_id").isin(*unfinished))
        found, is_settled = self._whole(begin, _lowered(end, parts))
        return found if is_settled else begin

    def batch(self, begin: SplitPoint, end: SplitPoint, count_max: int) -> Batch:
        """Return the next batch, of at most `count_max` offsets or an offset of each partition.

        Args:
            begin: where the batch begins.
            end: a split point that splits no transaction.
            count_max: how many offsets the batch has at most.
        """
        wanted = limited(places_of(begin), places_of(end), count_max)[""]
        if wanted == end:
            return Batch(end, 0)
        found, is_settled = self._whole(begin, wanted)
        if is_settled and found != begin:
            return Batch(found, 0)
        # A transaction, or a chain of them, that does not fit.
        return Batch(wanted, self._crossing(begin, wanted).count())

    def _whole(self, begin: SplitPoint, cut: SplitPoint) -> tuple[SplitPoint, bool]:
        """Lower a cut until it splits nothing; and whether that came to an end."""
        for _ in range(ROUNDS_MAX):
            lower = _lowered(cut, self._crossing(begin, cut))
            if lower == cut:
                return cut, True
            cut = lower
        return cut, False

    def _behind(self, begin: SplitPoint) -> DataFrame:
        """Return the messages of transactions from a split point on."""

        def is_behind(part: Column) -> Column:
            return part["last"] >= _at(begin, part)

        def clipped(part: Column) -> Column:
            return F.struct(
                part["partition"].alias("partition"),
                F.greatest(part["first"], _at(begin, part)).alias("first"),
                part["last"].alias("last"),
            )

        return self.spans().select(
            "txn_id", F.transform(F.filter("parts", is_behind), clipped).alias("parts")
        )

    def _crossing(self, begin: SplitPoint, cut: SplitPoint) -> DataFrame:
        """Transactions of which some, from `begin` on, lies on both sides of a cut."""

        def is_before(part: Column) -> Column:
            return part["first"] < _at(cut, part)

        def is_behind(part: Column) -> Column:
            return part["last"] >= _at(cut, part)

        return self._behind(begin).where(
            F.exists("parts", is_before) & F.exists("parts", is_behind)
        )


def _of_row(cut: SplitPoint) -> Column:
    return F.element_at(_offsets(cut), F.col("partition") + 1)


def _at(cut: SplitPoint, row: Column) -> Column:
    """The cut's offset in the partition that a structure names."""
    return F.element_at(_offsets(cut), row["partition"] + 1)


def _offsets(cut: SplitPoint) -> Column:
    return F.array(*[F.lit(cut[number]).cast("bigint") for number in range(len(cut))])


def _lowered(cut: SplitPoint, transactions: DataFrame) -> SplitPoint:
    """The highest cut up to `cut` with no message of the transactions before it."""
    firsts = (
        transactions.select(F.explode("parts").alias("part"))
        .groupBy("part.partition")
        .agg(F.min("part.first").alias("first"))
        .collect()
    )
    lower = dict(cut)
    for one in firsts:
        lower[one["partition"]] = min(lower[one["partition"]], one["first"])
    return lower
