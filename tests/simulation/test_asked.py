"""Copies of several requests under one number: each answer finds its own."""

from __future__ import annotations

from collections import deque

from tests.simulation.asked import take


def test_an_answer_finds_the_request_of_its_kind() -> None:
    waiting = deque(["new_txn", "end_txn"])
    assert take(waiting, "end_txn_response", str) == "end_txn"
    assert take(waiting, "end_txn_response", str) is None
    assert take(waiting, "error", str) == "new_txn"
    assert take(waiting, "error", str) is None
    assert take(None, "error", str) is None


def test_an_error_that_may_answer_either_of_two_is_nobodys() -> None:
    assert take(deque(["new_txn", "end_txn"]), "error", str) is None
