"""Deadlines: only what is OPEN expires, in order, whatever was removed in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar_coordinator.transactions.transaction_table import ExpiryQueue
from magnetar_core.ids import TxnID


def txn(counter: int) -> TxnID:
    return TxnID.of(0, 1, counter)


def test_expired_ones_stay_until_they_are_removed() -> None:
    queue = ExpiryQueue()
    for counter, deadline in enumerate([30, 10, 20]):
        queue.add(txn(counter), deadline)
    assert queue.expired(9, count_max=9) == []
    assert queue.expired(20, count_max=9) == [txn(1), txn(2)]
    assert queue.expired(20, count_max=1) == [txn(1)]
    queue.remove(txn(1))
    assert queue.expired(20, count_max=9) == [txn(2)]


def test_kept_ones_do_not_hide_later_ones() -> None:
    """Promise B: a thousand commits whose selection was lost once kept all others from expiring."""
    queue = ExpiryQueue()
    for counter in range(4):
        queue.add(txn(counter), counter)
    kept = {txn(0), txn(1)}
    assert queue.expired(9, count_max=1, kept=kept) == [txn(2)]
    queue.remove(txn(2))
    assert queue.expired(9, count_max=1, kept=kept) == [txn(3)]
    assert queue.expired(9, count_max=1) == [txn(0)]


def test_the_heap_does_not_grow_with_what_has_ended() -> None:
    queue = ExpiryQueue()
    for counter in range(10_000):
        queue.add(txn(counter), 60_000 + counter)
        queue.remove(txn(counter))
    assert len(queue) == 0
    assert len(queue._heap) < 2_000
    queue.add(txn(10_000), 1)
    assert queue.expired(1, count_max=1) == [txn(10_000)]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60),
    st.integers(0, 60),
)
def test_equals_a_sorted_list(entries: list[tuple[int, bool]], now_ms: int) -> None:
    queue = ExpiryQueue()
    for counter, (deadline, _) in enumerate(entries):
        queue.add(txn(counter), deadline)
    for counter, (_, removed) in enumerate(entries):
        if removed:
            queue.remove(txn(counter))
    queue.check()
    expected = sorted(
        (deadline, txn(counter))
        for counter, (deadline, removed) in enumerate(entries)
        if not removed and deadline <= now_ms
    )
    assert queue.expired(now_ms, count_max=100) == [txn_id for _, txn_id in expected]
