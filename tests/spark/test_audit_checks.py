"""The checks of an audit, without servers."""

from __future__ import annotations

import pytest

from magnetar_spark.jobs.auditing.audit_checks import (
    DAMAGED,
    DUPLICATE,
    GAP,
    NOWHERE,
    OPEN,
    ORPHAN,
    PART,
    SCANNED,
    STORED,
    TRANSACTION,
    PartitionWatch,
    Row,
    judge,
    of_hanging,
    of_rows,
    of_unmarked,
    unmarked,
)
from magnetar_spark.planning import Range

TXN = "0:1:5"


def watch(start: int, end: int) -> PartitionWatch:
    return PartitionWatch(Range("t", 7, 1, start, end))


def see(
    watching: PartitionWatch, first: int, last: int, txn: str = "", entry: int = 0
) -> list[Row]:
    return list(watching.see(first, last, messages=last - first + 1, entry_id=entry, txn_id=txn))


def places(rows: list[Row]) -> list[tuple[str, int | None, int | None]]:
    return [(one.kind, one.first_offset, one.last_offset) for one in of_rows(rows)]


def test_dense_offsets_are_clean() -> None:
    watching = watch(10, 16)
    rows = see(watching, 10, 14) + see(watching, 15, 15) + list(watching.end())
    assert rows == [Row(SCANNED, "t", 7, 1, 10, 15, 6)]
    assert of_rows(rows) == []


def test_a_gap_is_what_no_message_has() -> None:
    watching = watch(0, 12)
    rows = see(watching, 2, 4) + see(watching, 8, 9) + list(watching.end())
    assert places(rows) == [(GAP, 0, 1), (GAP, 5, 7), (GAP, 10, 11)]
    assert rows[-1].messages == 5


def test_a_gap_that_two_tasks_see_is_one() -> None:
    left, right = watch(0, 10), watch(10, 20)
    rows = see(left, 0, 3) + list(left.lose(10, "no entry")) + list(left.end())
    rows += see(right, 12, 19) + list(right.end())
    assert places(rows) == [(GAP, 4, 11)]


def test_the_same_offset_twice() -> None:
    watching = watch(0, 10)
    rows = see(watching, 0, 4) + see(watching, 3, 6) + see(watching, 5, 9) + list(watching.end())
    assert places(rows) == [(DUPLICATE, 3, 4), (DUPLICATE, 5, 6)]


def test_what_was_removed_in_order_is_no_gap() -> None:
    watching = watch(0, 10)
    watching.skip(7)
    assert of_rows([*see(watching, 7, 9), *watching.end()]) == []


def test_a_loss_that_names_its_transaction_is_one_seen_in_part() -> None:
    watching = watch(0, 6)
    rows = see(watching, 0, 1, TXN)
    rows += watching.lose(4, "messages are missing", txn_id=TXN)
    rows += watching.lose(6, "damaged", is_damaged=True)
    rows += watching.end()
    assert [(one.kind, one.first_offset, one.txn_id) for one in of_rows(rows)] == [
        (DAMAGED, 4, ""),
        (TRANSACTION, 2, TXN),
    ]


def test_parts_of_a_transaction() -> None:
    """Batches of one marker make one row, also around what is lost between them."""
    watching = watch(0, 9)
    rows = see(watching, 0, 1, TXN) + see(watching, 2, 3, TXN)
    rows += watching.lose(6, "lost", txn_id=TXN)
    rows += see(watching, 6, 7, TXN) + see(watching, 8, 8, "0:1:6", 8) + list(watching.end())
    parts = [row for row in rows if row.kind == PART]
    assert [(one.txn_id, one.first, one.last, one.messages) for one in parts] == [
        (TXN, 0, 7, 6),
        ("0:1:6", 8, 8, 1),
    ]


def part(topic: str, partition: int, first: int, *, entry: int = 0) -> Row:
    topic_id = ord(topic)
    return Row(PART, topic, topic_id, partition, first, first, 1, TXN, entry or first)


def stored(topic: str, partition: int, end: int = 10, kind: str = STORED) -> Row:
    return Row(kind, topic, ord(topic), partition, last=end, txn_id=TXN)


ENDS = {(ord("a"), 0): 10, (ord("b"), 0): 10}


def test_a_committed_transaction_is_clean_and_so_is_one_long_ended() -> None:
    rows = [part("a", 0, 3), part("b", 0, 4), stored("a", 0), stored("b", 0)]
    for status in ("COMMITTED", "COMMITTING", ""):
        assert judge(rows, status) == []
        assert unmarked(rows, ENDS) == []


def test_nobody_may_see_what_is_not_committed() -> None:
    for status in ("OPEN", "ABORTING", "ABORTED"):
        (found,) = judge([part("a", 0, 3), stored("a", 0)], status)
        assert (found.kind, found.first, found.txn_id) == (TRANSACTION, 3, TXN)


def test_a_marker_that_stands_twice() -> None:
    (found,) = judge([part("a", 0, 9), part("a", 0, 3), part("b", 0, 3)], "COMMITTED")
    assert (found.kind, found.topic, found.first) == (DUPLICATE, "a", 9)
    # Two tasks have seen one marker.
    assert judge([part("a", 0, 3), part("a", 0, 4, entry=3)], "") == []


def test_what_is_stored_and_ended_has_its_marker() -> None:
    rows = [part("a", 0, 3), stored("a", 0), stored("b", 0)]
    assert unmarked(rows, ENDS) == [stored("b", 0)]
    assert unmarked([*rows, part("b", 0, 4)], ENDS) == []


def test_what_is_open_needs_none() -> None:
    assert unmarked([part("a", 0, 3), stored("b", 0, kind=OPEN)], ENDS) == []


def test_a_marker_whose_messages_are_lost_is_there() -> None:
    for kind in (TRANSACTION, DAMAGED, DUPLICATE):
        assert unmarked([part("b", 0, 3)._replace(kind=kind), stored("b", 0)], ENDS) == []


@pytest.mark.parametrize("place", [("b", 0, 11), ("b", 1, 5), ("c", 0, 5)])
def test_a_log_that_was_read_too_early_says_nothing(place: tuple[str, int, int]) -> None:
    """The sidecar was looked at again, by a task that Spark repeated; or a topic is new."""
    assert unmarked([stored(*place)], ENDS) == []


def test_a_missing_marker_is_a_transaction_seen_in_part_or_an_orphan() -> None:
    row = stored("b", 0)
    for rows, status, kind, detail in (
        ([part("a", 0, 3), row], "", TRANSACTION, "it is seen in a partition 0"),
        ([row], "COMMITTED", TRANSACTION, "has it COMMITTED"),
        ([row], "COMMITTING", TRANSACTION, "has it COMMITTING"),
        ([row], "ABORTED", ORPHAN, "has it ABORTED"),
        ([row], "OPEN", ORPHAN, "has it OPEN"),
        ([row], "", ORPHAN, "does not know it"),
    ):
        found = of_unmarked(row, rows, status)
        assert (found.kind, found.topic, found.partition, found.txn_id) == (kind, "b", 0, TXN)
        assert detail in found.detail
        (finding,) = of_rows([found])
        assert (finding.first_offset, finding.last_offset) == (None, None)


def test_a_hanging_transaction_is_an_orphan_where_it_began() -> None:
    row = Row(OPEN, "a", 1, 0, first=4, last=NOWHERE, txn_id=TXN)
    (finding,) = of_rows([of_hanging(row, "nobody knows it")])
    assert (finding.kind, finding.first_offset, finding.last_offset) == (ORPHAN, 4, None)
    assert finding.detail == "nobody knows it"


def test_what_has_no_place_is_not_joined() -> None:
    rows = [of_unmarked(stored("b", 0), [], "COMMITTED") for _ in range(2)]
    assert len(of_rows(rows)) == 2
