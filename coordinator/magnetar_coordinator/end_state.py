"""The states of an end that a participant has to be told, and the one table that moves them. Pure.

Only `next_state` reads the table, and only `PendingEnd.move` stores what it says. The drawing is
docs/protocol/states.md.
Source: docs/design/0001-protocol.md, Ends at a participant.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Final

from magnetar_coordinator.transaction import Participant, Transaction
from magnetar_core.transitions import step


@unique
class EndState(Enum):
    """Where an end is, with what that means."""

    AWAY = "its broker's link is down: it is sent when the link comes back"
    SENT = "sent once; nearly all are answered from here"
    DUE = "it waits for its answer, or after an error, until it is sent again"
    ANSWERED = "its participant has ended the transaction, or is no more"


@unique
class EndEvent(Enum):
    """What moves an end."""

    FIRST_SENT = "the link is up when the end begins"
    SENT_AGAIN = "its time came, its link came back, or something has changed at the participant"
    ERROR = "the participant refuses for now"
    LINK_DOWN = "the link broke"
    ANSWER = "the participant answers that it has ended it, or that it is no more"


TRANSITIONS: Final[Mapping[tuple[EndState, EndEvent], EndState]] = {
    (EndState.AWAY, EndEvent.FIRST_SENT): EndState.SENT,
    (EndState.AWAY, EndEvent.SENT_AGAIN): EndState.DUE,
    (EndState.AWAY, EndEvent.LINK_DOWN): EndState.AWAY,
    (EndState.SENT, EndEvent.SENT_AGAIN): EndState.DUE,
    (EndState.SENT, EndEvent.ERROR): EndState.DUE,
    (EndState.SENT, EndEvent.LINK_DOWN): EndState.AWAY,
    (EndState.SENT, EndEvent.ANSWER): EndState.ANSWERED,
    (EndState.DUE, EndEvent.SENT_AGAIN): EndState.DUE,
    (EndState.DUE, EndEvent.ERROR): EndState.DUE,
    (EndState.DUE, EndEvent.LINK_DOWN): EndState.AWAY,
    (EndState.DUE, EndEvent.ANSWER): EndState.ANSWERED,
}


def next_state(state: EndState, event: EndEvent) -> EndState:
    """Where an event leads.

    Raises:
        InvalidTxnState: nowhere from this state. No effect.
    """
    return step(TRANSITIONS, state, event, "an end")


class PendingEnd:
    """One participant that has not answered yet.

    Attributes:
        due_ms: when it is sent again; says nothing in AWAY and ANSWERED.
    """

    __slots__ = ("attempts", "due_ms", "participant", "request_id", "state", "transaction")

    def __init__(self, transaction: Transaction, participant: Participant, request_id: int) -> None:
        self.transaction = transaction
        self.participant = participant
        # It keeps its id over all attempts, so that any answer serves.
        self.request_id = request_id
        self.attempts = 0
        self.due_ms = 0.0
        self.state = EndState.AWAY

    def move(self, event: EndEvent) -> None:
        self.state = next_state(self.state, event)

    def is_due(self, now_ms: float) -> bool:
        return self.state in (EndState.SENT, EndState.DUE) and self.due_ms <= now_ms
