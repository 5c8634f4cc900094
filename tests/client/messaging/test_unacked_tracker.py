"""docs/design/0001-protocol.md, Redelivery and the client."""

from __future__ import annotations

from magnetar.messaging.acknowledging.unacked_tracker import UnackedTracker

# Transactions, by what their client calls them.
TXN, OTHER = 1, 2


def holding(*ranges: tuple[int, int]) -> UnackedTracker:
    unacked = UnackedTracker()
    for first, last in unacked.arrive(ranges):
        unacked.hand_out(first, last, 0)
    return unacked


def test_a_copy_of_what_the_application_holds_is_dropped() -> None:
    unacked = holding((0, 4))
    unacked.detach()
    assert unacked.arrive([(3, 8)]) == [(5, 8)]


def test_what_was_not_handed_out_arrives_again_after_a_reconnect() -> None:
    unacked = UnackedTracker()
    assert unacked.arrive([(0, 4)]) == [(0, 4)]
    assert unacked.arrive([(0, 4)]) == []
    unacked.detach()
    assert unacked.arrive([(0, 4)]) == [(0, 4)]


def test_an_ack_under_way_still_holds_and_a_confirmed_one_does_not() -> None:
    unacked = holding((0, 4))
    unacked.ack_begins([(0, 1)])
    assert unacked.arrive([(0, 0)]) == []
    assert unacked.held_up_to(3) == [(2, 3)]
    unacked.ack_confirmed([(0, 1)])
    assert list(unacked.held) == [(2, 4)]
    assert not unacked.dropped


def test_an_abort_asks_for_dropped_copies_and_for_acks_that_never_arrived() -> None:
    unacked = holding((0, 9))
    unacked.ack_in_transaction(TXN, [(0, 5)])
    unacked.ack_in_transaction_confirmed(TXN, [(0, 3)])
    assert unacked.arrive([(1, 1), (8, 8)]) == []
    assert unacked.end_transaction(TXN, committed=False) == [(1, 1), (4, 5)]
    # They have left the set: the next copies are news.
    assert unacked.arrive([(0, 5)]) == [(0, 5)]
    assert list(unacked.dropped) == [(8, 8)]


def test_a_commit_asks_for_nothing() -> None:
    unacked = holding((0, 9))
    unacked.ack_in_transaction(TXN, [(0, 5)])
    unacked.arrive([(1, 1)])
    assert unacked.end_transaction(TXN, committed=True) == []
    assert not unacked.dropped


def test_what_another_transaction_acknowledged_is_not_asked_for() -> None:
    unacked = holding((0, 3))
    unacked.ack_in_transaction(TXN, [(0, 1)])
    unacked.ack_in_transaction(OTHER, [(1, 2)])
    assert unacked.end_transaction(OTHER, committed=False) == [(2, 2)]


def test_only_what_is_held_and_not_being_acknowledged_is_given_back() -> None:
    unacked = holding((0, 4))
    unacked.ack_begins([(2, 2)])
    unacked.ack_in_transaction(TXN, [(4, 4)])
    assert unacked.nack_begins([(0, 9)]) == [(0, 1), (3, 3)]
    assert unacked.nack_begins([(0, 9)]) == []
    assert unacked.arrive([(3, 3)]) == []
    assert unacked.nack_due([(0, 1), (3, 3)]) == {0: [(0, 1), (3, 3)]}
    assert list(unacked.held) == [(2, 2)]


def test_a_nack_of_an_earlier_copy_does_not_give_back_a_later_one() -> None:
    unacked = holding((0, 0))
    unacked.nack_begins([(0, 0)])
    unacked.ack_in_transaction(TXN, [(0, 0)])
    unacked.ack_in_transaction_confirmed(TXN, [(0, 0)])
    assert unacked.end_transaction(TXN, committed=False) == []
    unacked.arrive([(0, 0)])
    unacked.hand_out(0, 0, 1)
    assert unacked.nack_due([(0, 0)]) == {}
    assert list(unacked.held) == [(0, 0)]


def test_an_ack_of_an_earlier_copy_takes_the_queued_one_along() -> None:
    unacked = UnackedTracker()
    unacked.arrive([(0, 4)])
    assert unacked.claim([(3, 9)]) == [(3, 4)]
    assert list(unacked.queued) == [(0, 2)]
    assert list(unacked.held) == [(3, 4)]


def test_what_the_application_has_bears_the_count_of_the_copy_that_it_has() -> None:
    unacked = UnackedTracker()
    unacked.arrive([(0, 9)])
    unacked.hand_out(0, 4, 0)
    unacked.hand_out(5, 7, 2)
    # Of these the application sees nothing.
    assert unacked.arrive([(3, 6)]) == []
    unacked.ack_begins([(5, 5)])
    assert unacked.unacknowledged() == {2: [(6, 7)], 0: [(0, 4)]}
    assert unacked.by_count([(4, 6)]) == {2: [(5, 6)], 0: [(4, 4)]}
    assert unacked.nack_begins([(3, 6)]) == [(3, 4), (6, 6)]
    assert unacked.nack_due([(3, 6)]) == {2: [(6, 6)], 0: [(3, 4)]}
    unacked.arrive([(3, 6)])
    unacked.hand_out(3, 4, 1)
    assert unacked.unacknowledged() == {2: [(7, 7)], 1: [(3, 4)], 0: [(0, 2)]}


def test_a_message_that_is_settled_leaves_its_count_behind() -> None:
    unacked = UnackedTracker()
    unacked.arrive([(0, 9)])
    unacked.hand_out(0, 9, 3)
    unacked.ack_begins([(0, 1)])
    unacked.ack_confirmed([(0, 1)])
    unacked.ack_in_transaction(TXN, [(2, 3)])
    unacked.end_transaction(TXN, committed=True)
    assert unacked.by_count([(0, 4)]) == {3: [(4, 4)], 0: [(0, 3)]}
    unacked.reset()
    assert unacked.by_count([(4, 9)]) == {0: [(4, 9)]}
