"""Batches of a restore: no transaction lies in two, unless it is too large for a batch."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from magnetar_spark.jobs.offloading.split_points import SplitPoint, Splitter, between

Row = tuple[int, int, str | None]


def cutter_of(spark: SparkSession, rows: list[Row]) -> Splitter:
    return Splitter(spark.createDataFrame(rows, "partition int, offset long, txn_id string"))


def log(*partitions: str) -> list[Row]:
    """A letter is a message of the transaction of this name, a dot a plain one."""
    return [
        (number, offset, None if letter == "." else letter)
        for number, text in enumerate(partitions)
        for offset, letter in enumerate(text)
    ]


def lowered(rows: list[Row], begin: SplitPoint, cut: SplitPoint) -> SplitPoint:
    """The same by hand."""
    rows = [row for row in rows if row[1] >= begin[row[0]]]
    while True:
        before = {txn for number, offset, txn in rows if txn and offset < cut[number]}
        behind = {txn for number, offset, txn in rows if txn and offset >= cut[number]}
        lower = dict(cut)
        for number, offset, txn in rows:
            if txn in before & behind:
                lower[number] = min(lower[number], offset)
        if lower == cut:
            return cut
        cut = lower


def test_plain_messages_are_cut_anywhere(spark: SparkSession) -> None:
    splitter = cutter_of(spark, log("." * 10, "." * 30))
    found = splitter.batch({0: 0, 1: 0}, {0: 10, 1: 30}, 20)
    assert (found.end, found.split) == ({0: 5, 1: 15}, 0)
    splitter.close()


def test_transactions_stay_on_one_side(spark: SparkSession) -> None:
    # b stands on both sides of the middle; with it goes a, which in partition 1 comes behind it.
    splitter = cutter_of(spark, log("..aabb..", "bb..aa.."))
    found = splitter.batch({0: 0, 1: 0}, {0: 8, 1: 8}, 10)
    assert (found.end, found.split) == ({0: 2, 1: 0}, 0)
    found = splitter.batch({0: 2, 1: 0}, {0: 8, 1: 8}, 13)
    assert (found.end, found.split) == ({0: 7, 1: 7}, 0)
    splitter.close()


def test_what_is_larger_than_a_batch_is_split_and_counted(spark: SparkSession) -> None:
    splitter = cutter_of(spark, log("aaaaaaaa", "ababbbbb"))
    found = splitter.batch({0: 0, 1: 0}, {0: 8, 1: 8}, 4)
    assert (found.end, found.split) == ({0: 2, 1: 2}, 2)
    # What is left of them counts from there.
    found = splitter.batch({0: 2, 1: 2}, {0: 8, 1: 8}, 100)
    assert (found.end, found.split) == ({0: 8, 1: 8}, 0)
    splitter.close()


def test_a_small_batch_is_better_than_a_split_transaction(spark: SparkSession) -> None:
    splitter = cutter_of(spark, log("." + 300 * "a" + "."))
    assert splitter.batch({0: 0}, {0: 302}, 300).end == {0: 1}
    assert splitter.batch({0: 1}, {0: 302}, 300).end == {0: 301}
    splitter.close()


def test_what_is_not_whole_at_the_end_is_left_out(spark: SparkSession) -> None:
    splitter = cutter_of(spark, log("..aab..", "..bcc.."))
    begin, end = {0: 0, 1: 0}, {0: 7, 1: 7}
    assert splitter.before(begin, end, ()) == end
    assert splitter.before(begin, end, ("c",)) == {0: 7, 1: 3}
    assert splitter.before(begin, end, ("b",)) == {0: 4, 1: 2}
    assert splitter.before(begin, end, ("elsewhere",)) == end
    splitter.close()


@pytest.mark.parametrize("seed", range(4))
def test_as_by_hand(spark: SparkSession, seed: int) -> None:
    """Transactions whose messages lie together in each partition, in orders that differ a bit."""
    random = Random(seed)
    rows: list[Row] = []
    sizes = {}
    for number in range(3):
        order = sorted(range(40), key=lambda txn: txn + random.uniform(0, 3))
        names = [
            None if txn % 4 == 0 else str(txn)
            for txn in order
            if random.random() < 0.7
            for _ in range(random.randint(1, 3))
        ]
        rows += [(number, offset, name) for offset, name in enumerate(names)]
        sizes[number] = len(names)
    splitter = cutter_of(spark, rows)
    begin = dict.fromkeys(sizes, 0)
    batches = 0
    while begin != sizes:
        found = splitter.batch(begin, sizes, 50)
        assert found.split == 0
        assert all(begin[one] <= found.end[one] for one in sizes)
        assert found.end != begin
        assert lowered(rows, begin, found.end) == found.end
        begin = found.end
        batches += 1
    assert batches >= sum(sizes.values()) // 50
    splitter.close()


def test_rows_between_cuts(spark: SparkSession) -> None:
    frame = spark.createDataFrame(log("....", "...."), "partition int, offset long, txn_id string")
    found = between(frame, {0: 1, 1: 3}, {0: 2, 1: 4}).collect()
    assert sorted((one.partition, one.offset) for one in found) == [(0, 1), (1, 3)]
