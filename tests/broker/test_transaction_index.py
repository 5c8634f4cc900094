"""protocol.md, Ends at a participant: the table, row by row; rules c, d, g, h, k, n."""

from __future__ import annotations

import pytest
from tests.broker.harness import new_index, txn

from magnetar_broker.transactions.order import Order
from magnetar_broker.transactions.transaction_index import End, Outcome, TransactionIndex
from magnetar_core.errors import (
    InvalidTxnState,
    QuotaExceeded,
    SequenceGap,
    TxnIncomplete,
    TxnNotFound,
)
from magnetar_core.ids import TxnID

T1, T2 = txn(1), txn(2)
COMMIT, ABORT = Outcome.COMMITTED, Outcome.ABORTED


def index_with(
    writes: dict[int, int] | None = None, *, covered: set[TxnID] | None = None
) -> TransactionIndex:
    """T1 open with these counts by writer."""
    index = new_index((covered or set()).__contains__)
    for writer_id, count in (writes or {}).items():
        index.record_write(T1, writer_id, count, now_ms=0)
    return index


def commit(**fields: object) -> End:
    return End(txn_id=T1, outcome=COMMIT, **fields)  # type: ignore[arg-type]


ABORT_T1 = End(txn_id=T1, outcome=ABORT)


def kept(index: TransactionIndex, end: End) -> dict[int, int]:
    plan = index.plan_end(end)
    assert not plan.already_ended
    return {writer.writer_id: count for writer, count in plan.writers}


@pytest.mark.parametrize(
    ("writes", "end", "expected"),
    [
        ({1: 3, 2: 1}, commit(counts={1: 3, 2: 1}), {1: 3, 2: 1}),
        ({1: 3, 2: 1}, commit(), {1: 3, 2: 1}),
        ({1: 3}, commit(counts={1: 2}), {1: 2}),
        ({1: 3, 2: 1}, commit(counts={1: 3}), {1: 3, 2: 0}),
        ({1: 3, 2: 1}, commit(counts={}), {1: 0, 2: 0}),
        ({1: 3, 2: 1}, commit(selection=frozenset({2})), {1: 0, 2: 1}),
        ({1: 3, 2: 2}, commit(selection=frozenset({2}), counts={1: 9, 2: 1}), {1: 0, 2: 1}),
        ({1: 3, 2: 2}, commit(selection=frozenset({2}), counts={1: 3}), {1: 0, 2: 0}),
        ({1: 3}, commit(selection=frozenset()), {1: 0}),
        ({1: 3}, commit(counts={1: 5, 2: 1}, loss_accepted=True), {1: 3}),
        ({1: 3}, ABORT_T1, {1: 0}),
        ({1: 3}, End(txn_id=T1, outcome=ABORT, counts={1: 9}), {1: 0}),
    ],
)
def test_an_open_transaction(writes: dict[int, int], end: End, expected: dict[int, int]) -> None:
    assert kept(index_with(writes), end) == expected


@pytest.mark.parametrize(
    ("writes", "end"),
    [
        ({1: 3}, commit(counts={1: 4})),
        ({1: 3}, commit(counts={1: 3, 2: 1})),
        ({}, commit(counts={1: 1})),
        ({1: 3}, commit(counts={1: 4}, selection=frozenset({1}))),
        ({1: 3}, commit(counts={2: 1}, selection=frozenset({2}))),
    ],
)
def test_less_than_counted(writes: dict[int, int], end: End) -> None:
    index = index_with(writes)
    with pytest.raises(TxnIncomplete):
        index.plan_end(end)
    assert not index.ended


@pytest.mark.parametrize("end", [commit(), commit(counts={}), ABORT_T1])
def test_an_unknown_transaction_is_recorded_and_late_writes_refused(end: End) -> None:
    index = index_with()
    assert kept(index, end) == {}
    index.record_end(end)
    with pytest.raises(InvalidTxnState):
        index.check_write(T1, 1, 0, 1, writers_max=9)
    assert index.ended[T1].outcome is end.outcome


@pytest.mark.parametrize(
    ("first", "again", "succeeds"),
    [
        (commit(), commit(), True),
        (ABORT_T1, ABORT_T1, True),
        (commit(), commit(counts={1: 99}), True),
        (commit(), ABORT_T1, False),
        (ABORT_T1, commit(), False),
        (ABORT_T1, commit(loss_accepted=True), False),
        (commit(selection=frozenset({1, 2})), commit(selection=frozenset({2, 1})), True),
        (commit(selection=frozenset({1})), commit(selection=frozenset({2})), False),
        (commit(selection=frozenset({1})), commit(selection=frozenset()), False),
        (commit(), commit(selection=frozenset({1})), False),
        (commit(selection=frozenset({1})), commit(), True),
        (ABORT_T1, End(txn_id=T1, outcome=ABORT, selection=frozenset({1})), True),
    ],
)
def test_a_repeated_end(first: End, again: End, succeeds: bool) -> None:
    """Rule e, and g: what is omitted is not compared."""
    index = index_with({1: 1})
    index.plan_end(first)
    index.record_end(first)
    if succeeds:
        assert index.plan_end(again).already_ended
    else:
        with pytest.raises(InvalidTxnState):
            index.plan_end(again)


def test_covered_and_not_open() -> None:
    index = index_with(covered={T1})
    for end in (commit(), commit(counts={1: 3}), ABORT_T1):
        assert index.plan_end(end).already_ended
    with pytest.raises(InvalidTxnState):
        index.check_write(T1, 1, 0, 1, writers_max=9)


def test_covered_and_open_stays_until_it_is_ended() -> None:
    covered: set[TxnID] = set()
    index = new_index(covered.__contains__)
    index.record_write(T1, 1, 2, now_ms=0)
    covered.add(T1)
    assert T1 in index.open
    assert index.forget_covered() == []
    with pytest.raises(InvalidTxnState):
        index.check_write(T1, 1, 2, 1, writers_max=9)
    assert kept(index, ABORT_T1) == {1: 0}
    index.record_end(ABORT_T1)
    assert index.forget_covered() == [T1]
    assert index.plan_end(commit()).already_ended


def test_writes_are_numbered_without_gaps() -> None:
    index = index_with({1: 2})
    assert index.check_write(T1, 1, 0, 2, writers_max=9)
    assert not index.check_write(T1, 1, 2, 1, writers_max=9)
    assert not index.check_write(T1, 2, 0, 1, writers_max=2)
    with pytest.raises(QuotaExceeded):
        index.check_write(T1, 2, 0, 1, writers_max=1)
    for writer_id, sequence in ((1, 3), (2, 1)):
        with pytest.raises(SequenceGap):
            index.check_write(T1, writer_id, sequence, 1, writers_max=9)
    with pytest.raises(SequenceGap):
        index.check_write(T2, 1, 1, 1, writers_max=9)
    index.check()


def test_a_superseded_incarnation_takes_no_writes_but_ends() -> None:
    index = new_index(is_superseded=lambda txn_id: txn_id.incarnation < 2)
    with pytest.raises(InvalidTxnState):
        index.check_write(T1, 1, 0, 1, writers_max=9)
    assert not index.plan_end(commit()).already_ended


def test_what_nobody_can_have_been_given_takes_no_writes() -> None:
    def check_issued(txn_id: TxnID) -> None:
        if txn_id == T2:
            raise TxnNotFound

    told: list[tuple[str, TxnID]] = []
    index = new_index(check_issued=check_issued, told=told)
    with pytest.raises(TxnNotFound):
        index.check_write(T2, 1, 0, 1, writers_max=9)
    assert not index.check_write(T1, 1, 0, 1, writers_max=9)
    index.record_write(T1, 1, 1, now_ms=0)
    index.record_write(T1, 1, 1, now_ms=0)
    assert told == [("opened", T1)]
    index.record_end(ABORT_T1)
    index.record_end(End(txn_id=T2, outcome=ABORT))
    assert told == [("opened", T1), ("closed", T1)]


def test_the_end_of_what_is_dropped_is_not_remembered() -> None:
    index = index_with({1: 2})
    index.record_end(End.dropping(T1))
    assert not index.open
    assert not index.ended
    assert not index.check_write(T1, 1, 0, 1, writers_max=9)


def test_only_what_counts_makes_a_marker_wait() -> None:
    """Rule k: the next transaction's marker waits for the end of the one it follows."""
    index = index_with({1: 1})
    order = Order(index, lambda call: call())
    index.record_write(T2, 1, 1, follows=(T1,), now_ms=0)
    index.record_write(T2, 2, 1, now_ms=0)

    def awaited(**fields: object) -> TxnID | None:
        end = End(txn_id=T2, outcome=COMMIT, **fields)  # type: ignore[arg-type]
        return order.awaited(index.plan_end(end).writers)

    assert awaited() == T1
    assert awaited(selection=frozenset({2})) is None
    assert awaited(counts={2: 1}) is None
    index.record_end(commit())
    assert awaited() is None
