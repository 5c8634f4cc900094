"""docs/spark.md, One moment: what a batch plans and what its tasks read, on real servers.

Without Spark: it calls these functions in processes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.spark.cut_world import PARTITIONS, Bank, changed, rows_of, values, with_ends_of

from magnetar_spark.catalog import Catalog
from magnetar_spark.cut_ranges import ranges_at
from magnetar_spark.errors import OffsetsLost, OptionError
from magnetar_spark.options.source import NOW, source_options
from magnetar_spark.source import RangePartition

pytestmark = pytest.mark.chaos

ROUNDS = 30


@pytest.fixture
def bank(shared_address: str) -> Iterator[Bank]:
    with Bank.of_a_test(shared_address) as made:
        yield made


def test_sums_never_change_while_money_moves(bank: Bank) -> None:
    """Each read has every transfer whole, and all that were answered before."""
    with bank.busy():
        before = 0
        for number in range(ROUNDS):
            bank.wait_for_more()
            answered = bank.transfers
            found = values(bank.read(cut="now", minPartitions=number % 4 or ""))
            assert sum(found) == 0
            assert len(found) >= 2 * answered
            assert len(found) >= before
            before = len(found)
    found = values(bank.read(cut="now"))
    assert (len(found), sum(found)) == (2 * bank.transfers, 0)


def test_a_token_reads_the_same_tomorrow(bank: Bank) -> None:
    for _ in range(5):
        bank.transfer()
    token = str(bank.cut())
    first = bank.read(cut=token)
    assert values(first) == [-1] * 5 + [1] * 5
    with bank.busy():
        for pieces in ("", 3, 16):
            bank.wait_for_more(3)
            assert sorted(bank.read(cut=token, minPartitions=pieces)) == sorted(first)
    only = bank.read(cut=token, subscribe="savings")
    assert only == [row for row in first if row[0] == "savings"]
    named = bank.read(cut=token, subscribe="", assign='{"savings": [1]}')
    assert named == [row for row in first if row[:2] == ("savings", 1)]


def test_an_attempt_at_a_task_reads_what_the_attempt_before_has_read(bank: Bank) -> None:
    """With 'now', too: the cut is taken once, by who plans."""
    bank.transfer()
    reader = bank.reader(cut="now")
    partitions = reader.partitions()
    first = rows_of(reader, partitions)
    bank.transfer(2)
    assert rows_of(reader, partitions) == first
    assert values(first) == [-1, 1]
    assert values(bank.read(cut="now")) == [-2, -1, 1, 2]


def test_transactions_that_came_after_the_moment_are_left_out_below_the_ends(bank: Bank) -> None:
    """As when a commit is carried out between the two looks at the ends."""
    bank.transfer(1)
    early = bank.cut()
    bank.transfer(2)
    late = bank.cut()
    torn = with_ends_of(early, late)
    assert values(bank.read(cut=torn)) == [-1, 1]
    # They come with the next cut, though they lie below the ends of this one.
    assert values(bank.read(cut=str(late), since=torn)) == [-2, 2]
    assert values(bank.read(cut=str(late))) == [-2, -1, 1, 2]


def test_from_cut_to_cut_each_message_comes_once(bank: Bank) -> None:
    tokens = []
    for amount in (1, 2, 3):
        bank.transfer(amount)
        tokens.append(str(bank.cut()))
    first, second, third = tokens
    assert values(bank.read(cut=second, since=first)) == [-2, 2]
    assert values(bank.read(cut=third, since=first)) == [-3, -2, 2, 3]
    assert bank.read(cut=third, since=third) == []
    bank.transfer(4)
    assert values(bank.read(cut="now", since=third)) == [-4, 4]


def test_a_pattern_takes_all_topics_that_match(bank: Bank) -> None:
    bank.transfer()
    token = str(bank.cut())
    pattern: dict[str, Any] = {"subscribe": "", "subscribePattern": "current|savings|other"}
    assert values(bank.read(cut="now", **pattern)) == [-1, 1]
    assert values(bank.read(cut=token, **pattern)) == [-1, 1]
    assert bank.read(cut="now", **(pattern | {"subscribePattern": "nothing"})) == []
    bank.client.admin.topics.create("other", partitions=1)
    try:
        assert values(bank.read(cut="now", **pattern)) == [-1, 1]
        with pytest.raises(OptionError, match=r"no topic 'other'.*take one cut of all"):
            bank.read(cut=token, **pattern)
    finally:
        bank.client.admin.topics.delete("other", force=True)
    bank.client.admin.topics.delete("savings", force=True)
    with pytest.raises(OptionError, match="'savings' was deleted since"):
        bank.read(cut=token, **pattern)
    bank.client.admin.topics.create("savings", partitions=PARTITIONS)
    with pytest.raises(OptionError, match="'savings' was deleted since"):
        bank.read(cut=token)


def test_a_topic_that_is_deleted_while_a_pattern_is_planned_is_left_out(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = bank.options(subscribePattern=".*")
    del given["subscribe"]
    catalog = Catalog(bank.client, source_options(given, streaming=False).topics)
    looks = [[("current", ()), ("deleted", ())], [("current", ())]]
    monkeypatch.setattr(catalog, "chosen", lambda: looks.pop(0))
    ranges = ranges_at(bank.client, catalog, NOW, None)
    assert [(one.topic, one.partition) for one in ranges] == [("current", 0), ("current", 1)]
    assert not looks


def test_what_a_cut_does_not_have_is_refused(bank: Bank) -> None:
    bank.transfer()
    part = str(bank.client.cut("current"))
    whole = bank.cut()
    for options, complaint in (
        ({"cut": part}, r"no topic 'savings', but current: take one cut of all"),
        ({"cut": str(whole), "since": part}, "no topic 'savings'"),
        ({"cut": str(whole)[:-4]}, "cut: the cut's token is damaged"),
        ({"cut": "yesterday"}, "cut: 'yesterday' is not the token"),
        ({"cut": "cut9-AAAA"}, "upgrade it"),
        ({"cut": str(whole), "since": "x"}, "since: 'x' is not the token"),
        ({"cut": changed(whole, cluster_id="elsewhere")}, "of the cluster 'elsewhere'"),
        ({"cut": str(whole), "since": str(bank.cut())}, "the first cut is later"),
        ({"cut": changed(whole, topics={"topic_id": 12345})}, "was deleted since"),
        ({"cut": "now", "subscribe": "nothing"}, "cannot read at a cut: .*nothing"),
        ({"cut": str(whole), "subscribe": "nothing"}, "cannot read topic 'nothing'"),
    ):
        # What is refused is refused on the driver, before any task.
        with pytest.raises(OptionError, match=complaint):
            bank.reader(**options).partitions()


def test_a_cut_that_is_not_all_there_any_more_is_an_error(bank: Bank) -> None:
    bank.transfer()
    restored = changed(bank.cut(), partitions={"ledger_id": 12345})
    with pytest.raises(OffsetsLost, match=r"was restored.*Take a new cut"):
        bank.read(cut=restored)
    token = str(bank.cut())
    reader = bank.reader(cut=token)
    partitions = reader.partitions()
    bank.client.admin.topics.delete("current", force=True)
    with pytest.raises(OffsetsLost, match=r"cut can no longer be read.*Take a new cut"):
        rows_of(reader, partitions)
    bank.client.admin.topics.create("current", partitions=PARTITIONS)


def test_tasks_divide_a_cut_among_them(bank: Bank) -> None:
    for _ in range(8):
        bank.transfer()
    reader = bank.reader(cut="now", maxRecordsPerPartition=1)
    partitions = reader.partitions()
    assert len(partitions) == 16
    assert all(
        isinstance(partition, RangePartition) and partition.range.count == 1
        for partition in partitions
    )
    assert values(rows_of(reader, partitions)) == [-1] * 8 + [1] * 8
