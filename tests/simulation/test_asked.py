"""Each answer finds its request."""

from __future__ import annotations

from tests.simulation.asked import Unanswered


def test_an_answer_finds_the_request_of_its_link_and_number() -> None:
    unanswered = Unanswered[str]()
    unanswered.add(1, 7, "new_txn")
    unanswered.add(1, 8, "end_txn")
    unanswered.add(2, 7, "init_producer")
    assert unanswered.take(1, 8) == "end_txn"
    assert unanswered.take(2, 7) == "init_producer"
    assert unanswered.take(1, 7) == "new_txn"
    assert unanswered.take(1, 7) is None
    assert unanswered.take(3, 7) is None


def test_copies_on_one_link_are_answered_in_their_order() -> None:
    unanswered = Unanswered[str]()
    unanswered.add(1, 7, "first")
    unanswered.add(1, 7, "copy")
    assert [unanswered.take(1, 7) for _ in range(3)] == ["first", "copy", None]


def test_a_link_that_is_gone_has_no_requests() -> None:
    unanswered = Unanswered[str]()
    unanswered.add(1, 7, "gone")
    unanswered.add(2, 7, "kept")
    unanswered.forget(1)
    assert unanswered.take(1, 7) is None
    assert unanswered.take(2, 7) == "kept"
