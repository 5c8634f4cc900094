"""The timeline of a transaction: what happened, in order, and what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from magnetar import (
    DetailsMissing,
    EndCause,
    ParticipantHistory,
    TransactionClient,
    TransactionDescription,
    TransactionHistory,
    TransactionStatus,
)
from magnetar_cli.commands.transaction_timeline import (
    CAUSES,
    NO_DETAILS,
    clock_of,
    deadline_of,
    missing,
    moments,
)
from magnetar_core.ids import PartitionName, TxnID

BEGAN_MS = 1_700_000_000_000
ORDERS = PartitionName("orders", 0, 7)


def described(status: str, **fields: Any) -> TransactionDescription:
    given: dict[str, Any] = {
        "timeout_ms": 60_000,
        "age_ms": 1_500,
        "opened_at_ms": BEGAN_MS,
        "partitions": (),
        "subscriptions": (),
        "unfinished": (),
        **fields,
    }
    return TransactionDescription(TxnID.of(0, 1, 7), TransactionStatus[status], **given)


def part(number: int, subscription: str | None = None, **fields: Any) -> ParticipantHistory:
    given: dict[str, Any] = {
        "status": None,
        "confirmed": None,
        "count": 0,
        "bytes": 0,
        "counted_partly": False,
        "pending_ack_count": 0,
        "first_write_at_ms": 0,
        "ended_at_ms": 0,
        "last_error": "",
        "unanswered": "",
        **fields,
    }
    return ParticipantHistory(PartitionName("orders", number, 7), subscription, **given)


def texts(one: TransactionDescription, *parts: ParticipantHistory) -> list[tuple[int, str]]:
    """What happened, each with the milliseconds since the beginning."""
    found = moments(TransactionHistory(one, parts))
    return [(each.time_ms - BEGAN_MS, each.text) for each in found]


def lacks(one: TransactionDescription, *parts: ParticipantHistory) -> list[str]:
    return list(missing(TransactionHistory(one, parts)))


def test_a_commit_is_told_in_order() -> None:
    one = described(
        "COMMITTED",
        client=TransactionClient("flights", "10.0.0.7", is_connected=False),
        cause=EndCause.BY_CLIENT,
        decided_at_ms=BEGAN_MS + 30,
        ended_at_ms=BEGAN_MS + 50,
    )
    parts = [
        part(0, first_write_at_ms=BEGAN_MS + 10, ended_at_ms=BEGAN_MS + 40),
        part(1, first_write_at_ms=BEGAN_MS + 5, ended_at_ms=BEGAN_MS + 50),
        part(2, ended_at_ms=BEGAN_MS + 40),
        part(0, "billing", first_write_at_ms=BEGAN_MS + 20, ended_at_ms=BEGAN_MS + 50),
    ]
    assert texts(one, *parts) == [
        (0, "begun by flights at 10.0.0.7, gone"),
        (5, "first write at orders-partition-1"),
        (10, "first write at orders-partition-0"),
        (20, "first ack at orders-partition-0/billing"),
        (30, "decided: COMMIT, by its client"),
        (40, "ended at orders-partition-0, orders-partition-2"),
        (50, "ended at orders-partition-1, orders-partition-0/billing"),
        (50, "COMMITTED everywhere"),
    ]
    assert lacks(one, *parts) == []


def test_an_abort_names_who_caused_it() -> None:
    one = described(
        "ABORTED",
        cause=EndCause.BY_HAND,
        caused_by="magnetar-cli at 10.0.0.8 (alice)",
        decided_at_ms=BEGAN_MS + 30,
        ended_at_ms=BEGAN_MS + 50,
    )
    assert texts(one)[1] == (30, "decided: ABORT, by hand: magnetar-cli at 10.0.0.8 (alice)")


def test_many_participants_are_named_in_part() -> None:
    one = described("COMMITTED", ended_at_ms=BEGAN_MS + 9)
    found = texts(one, *(part(number, ended_at_ms=BEGAN_MS + 9) for number in range(1_204)))
    assert found[1][1].startswith("ended at orders-partition-0, orders-partition-1,")
    assert found[1][1].endswith("orders-partition-3, 1,200 more")


def test_an_open_one_lacks_its_decision() -> None:
    assert lacks(described("OPEN")) == ["a decision: it expires in 58.5s"]
    two_phase = described("OPEN", two_phase_commit=True, timeout_ms=0)
    assert lacks(two_phase) == [
        "a decision: it may be prepared, and its database knows the outcome"
    ]


def test_participants_that_have_not_ended_it_stand_out() -> None:
    one = described("COMMITTING", decided_at_ms=BEGAN_MS + 30)
    parts = [
        part(0, ended_at_ms=BEGAN_MS + 31),
        part(1, last_error="TXN_INCOMPLETE: 2 of 3 are here"),
        part(2),
        part(3),
    ]
    assert lacks(one, *parts) == [
        "the end at orders-partition-1: TXN_INCOMPLETE: 2 of 3 are here",
        "the end at orders-partition-2, orders-partition-3: no answer yet",
    ]


def test_brokers_that_do_not_answer_and_messages_that_are_lost_stand_out() -> None:
    one = described("COMMITTED", ended_at_ms=BEGAN_MS + 9)
    ended: dict[str, Any] = {
        "ended_at_ms": BEGAN_MS + 9,
        "confirmed": 5,
        "status": TransactionStatus.COMMITTED,
    }
    parts = [
        part(0, **ended, count=5),
        part(1, **ended, count=3),
        part(2, **ended, count=3, counted_partly=True),
        part(3, **{**ended, "status": None}, unanswered="LOG_UNAVAILABLE: no link"),
    ]
    assert lacks(one, *parts) == [
        "what orders-partition-3 has: LOG_UNAVAILABLE: no link",
        "2 of 5 confirmed messages at orders-partition-1",
    ]


@pytest.mark.parametrize("reason", [one for one in DetailsMissing if one])
def test_details_that_are_not_kept_are_said_to_be_missing(reason: DetailsMissing) -> None:
    one = described("COMMITTED", details_missing=reason, ended_at_ms=BEGAN_MS + 9)
    assert lacks(one) == [NO_DETAILS[reason.name]]
    assert texts(one) == [(0, "begun"), (9, "COMMITTED everywhere")]


def test_every_cause_has_a_text() -> None:
    assert set(CAUSES) == {one.name for one in EndCause if one}


def test_deadlines() -> None:
    assert deadline_of(described("OPEN")) == "in 58.5s"
    assert deadline_of(described("OPEN", age_ms=60_001)) == "now"
    assert deadline_of(described("COMMITTING")) == "-"
    two_phase = described("OPEN", two_phase_commit=True)
    assert deadline_of(two_phase) == "never"
    assert deadline_of(replace(two_phase, ended_at_ms=BEGAN_MS)) == "-"


def test_times_have_milliseconds() -> None:
    assert clock_of(BEGAN_MS + 7).endswith(":20.007")
