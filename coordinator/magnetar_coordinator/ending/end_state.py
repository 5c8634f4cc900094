"""States of an end command, and the table of their transitions. Pure.

Only `MACHINE` reads the table, and only `PendingEnd.move` stores its result. The drawing is
docs/protocol/states.md.
Source: docs/design/0001-protocol.md, Ends at a participant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, unique
from typing import Final

from magnetar_coordinator.metadata.transaction import Participant, Transaction
from magnetar_core.transitions import Machine
from magnetar_core.wire.common_pb2 import ServerError


@unique
class EndState(Enum):
    """States of an end command, each with its meaning."""

    # Enum's own hash is a Python function, and each end command looks up two transitions.
    __hash__ = object.__hash__

    AWAY = "its broker's link is down: it is sent when the link comes back"
    SENT = "sent once; nearly all are answered from here"
    DUE = "it waits for its answer, or after an error, until it is sent again"
    ANSWERED = "its participants have ended the transaction, or are gone"


@unique
class EndEvent(Enum):
    """Events that move an end command to another state."""

    __hash__ = object.__hash__

    FIRST_SENT = "the link is up when the end begins"
    SENT_AGAIN = "its time came, its link came back, or something has changed at the participant"
    ERROR = "a participant refuses for now"
    LINK_DOWN = "the link broke"
    ANSWER = "all participants have answered that they have ended it, or that they are gone"


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


MACHINE: Final = Machine(TRANSITIONS, "an end")


class PendingEnd:
    """End command that some of its participants, all at a broker, have not answered yet.

    Attributes:
        on_ended: called with participants that have ended their parts, or no longer exist.
        on_error: called with each error of a participant, and whether that is a refusal: then the
            transaction waits for an administrator.
        participants: those that have not; the command is sent again for these only.
        due_ms: when the command is sent again; meaningless in AWAY and ANSWERED.
    """

    __slots__ = (
        "attempts",
        "due_ms",
        "on_ended",
        "on_error",
        "participants",
        "request_id",
        "state",
        "transaction",
    )

    def __init__(
        self,
        transaction: Transaction,
        participants: Sequence[Participant],
        request_id: int,
        on_ended: OnEnded,
        on_error: OnError,
    ) -> None:
        self.on_ended = on_ended
        self.on_error = on_error
        self.transaction = transaction
        self.participants = participants
        # All attempts have the same id, so that any answer serves.
        self.request_id = request_id
        self.attempts = 0
        self.due_ms = 0.0
        self.state = EndState.AWAY

    def move(self, event: EndEvent) -> None:
        """Move to the state to which an event leads."""
        self.state = MACHINE.next(self.state, event)

    def is_due(self, now_ms: float) -> bool:
        """Return whether it is time to send the command again."""
        return self.state in (EndState.SENT, EndState.DUE) and self.due_ms <= now_ms


OnEnded = Callable[[PendingEnd, Sequence[Participant]], None]
OnError = Callable[[PendingEnd, Participant, ServerError, bool], None]
