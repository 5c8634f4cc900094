"""The SDK's descriptions of transactions, from the servers' answers."""

from __future__ import annotations

import pytest

from magnetar import InternalError, InvalidTxnState, LogUnavailable, TxnIncomplete
from magnetar.admin.transaction_descriptions import UnfinishedParticipant
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import MagnetarError
from magnetar_core.wire import common_pb2, transaction_pb2

P0 = common_pb2.Partition(topic="t", partition=0)


def told(**fields: object) -> UnfinishedParticipant:
    wire = transaction_pb2.UnfinishedParticipant(partition=P0, **fields)  # type: ignore[arg-type]
    return UnfinishedParticipant.from_wire(wire)


@pytest.mark.parametrize(
    ("error", "refuses"),
    [
        (TxnIncomplete("2 of 3 messages", have=2), True),
        (InvalidTxnState("it is open"), True),
        (LogUnavailable("starting"), False),
    ],
)
def test_what_a_participant_answered_is_an_error(error: MagnetarError, refuses: bool) -> None:
    part = told(error=error.to_wire())
    assert type(part.error) is type(error)
    assert part.error is not None
    assert (str(part.error), part.error.details) == (str(error), error.details)
    assert part.last_error.endswith(f": {error}")
    assert part.refuses is refuses


def test_who_has_not_answered_refuses_nothing() -> None:
    part = told()
    assert (part.error, part.refuses, part.last_error, part.subscription) == (None, False, "", None)


def test_an_error_of_a_later_version_has_its_kind() -> None:
    wire = common_pb2.ServerError(message="new", kind=ErrorKind.LIMIT.to_wire())
    wire.code = 999  # type: ignore[assignment]
    part = told(error=wire)
    assert part.last_error == "error 999: new"
    assert type(part.error) is InternalError
    assert part.error.kind is ErrorKind.LIMIT
    assert not part.refuses
