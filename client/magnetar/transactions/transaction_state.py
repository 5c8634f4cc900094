"""The states of a transaction at its client, and the table of their transitions. Pure.

Only `next_phase` reads the table, and only `TransactionWork._move` stores the result.
docs/protocol/states.md has the drawing.
Source: docs/design/0001-protocol.md, One transaction; PIP-31, TxnStatus.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Final

from magnetar.enums import TransactionStatus
from magnetar_core.transitions import step


@unique
class Phase(Enum):
    """The state of a transaction at its client, with its meaning."""

    OPEN = "takes sends and acknowledgements"
    FLUSHING = "takes nothing more; what it has is being confirmed"
    PREPARED = "everything in it is confirmed; its end was not asked for"
    BATCH_ASKED = "sent as a single batch; only the broker's answer tells"
    COMMIT_ASKED = "the coordinator may have decided: only its answer tells"
    COMMITTING = "the commit is decided; participants carry it out"
    COMMITTED = "every participant has carried the commit out"
    ABORT_ASKED = "takes nothing more; the coordinator is asked to abort it"
    BOTH_ASKED = "a commit and then an abort: the coordinator may have decided either"
    ABORTING = "the abort is decided; participants carry it out"
    ABORTED = "every participant has carried the abort out"
    LEFT = "another client decides about what this client did"
    WITHDRAWN = "another client decides, and nothing of this client counts"
    FORGOTTEN = "it has ended, and its coordinator no longer knows how"


@unique
class Event(Enum):
    """An event that changes the state of a transaction."""

    FLUSH_BEGUN = "prepare, commit or leave begins to flush"
    FLUSH_CANCELLED = "the call was cancelled before anything was decided"
    FLUSHED = "everything is confirmed"
    BATCH_SENT = "commit sends the whole transaction to the broker, as a single batch"
    COMMIT_REQUESTED = "commit goes to the coordinator"
    ABORT_REQUESTED = "abort begins"
    LEFT = "leave has flushed"
    WITHDRAWN = "withdraw is called, or leave finds that a send or an ack has failed"
    HEARD_COMMITTING = "the coordinator says COMMITTING"
    HEARD_COMMITTED = "the coordinator says COMMITTED"
    HEARD_ABORTING = "the coordinator says ABORTING"
    HEARD_ABORTED = "the coordinator says ABORTED"
    HEARD_FORGOTTEN = "the coordinator no longer knows it"


HEARD: Final[Mapping[TransactionStatus, Event]] = {
    TransactionStatus.COMMITTING: Event.HEARD_COMMITTING,
    TransactionStatus.COMMITTED: Event.HEARD_COMMITTED,
    TransactionStatus.ABORTING: Event.HEARD_ABORTING,
    TransactionStatus.ABORTED: Event.HEARD_ABORTED,
}

# What a client knows of the status.
STATUS_OF: Final[Mapping[Phase, TransactionStatus]] = {
    Phase.OPEN: TransactionStatus.OPEN,
    Phase.FLUSHING: TransactionStatus.OPEN,
    Phase.PREPARED: TransactionStatus.OPEN,
    Phase.BATCH_ASKED: TransactionStatus.OPEN,
    Phase.COMMIT_ASKED: TransactionStatus.OPEN,
    Phase.COMMITTING: TransactionStatus.COMMITTING,
    Phase.COMMITTED: TransactionStatus.COMMITTED,
    Phase.ABORT_ASKED: TransactionStatus.ABORTING,
    Phase.BOTH_ASKED: TransactionStatus.OPEN,
    Phase.ABORTING: TransactionStatus.ABORTING,
    Phase.ABORTED: TransactionStatus.ABORTED,
    Phase.LEFT: TransactionStatus.OPEN,
    Phase.WITHDRAWN: TransactionStatus.OPEN,
    Phase.FORGOTTEN: TransactionStatus.OPEN,
}

# The coordinator may have decided to commit.
COMMIT_WAS_ASKED: Final = frozenset({Phase.BATCH_ASKED, Phase.COMMIT_ASKED, Phase.BOTH_ASKED})
# This client has not asked for an end.
UNDECIDED: Final = frozenset({Phase.OPEN, Phase.FLUSHING, Phase.PREPARED})
DECIDED_COMMIT: Final = frozenset({Phase.COMMITTING, Phase.COMMITTED})
DECIDED_ABORT: Final = frozenset({Phase.ABORTING, Phase.ABORTED})
# An end was asked for here; which one the coordinator has decided, if any, is not known.
IN_DOUBT: Final = COMMIT_WAS_ASKED | {Phase.ABORT_ASKED}
# This client can no longer change the outcome.
ENDED: Final = DECIDED_COMMIT | DECIDED_ABORT | {Phase.FORGOTTEN}
# This client takes no further part in it.
OVER: Final = ENDED | {Phase.LEFT, Phase.WITHDRAWN}
# Of these: what this client did stands, or may stand.
STANDS: Final = DECIDED_COMMIT | {Phase.LEFT}

TRANSITIONS: Final[Mapping[tuple[Phase, Event], Phase]] = {
    (Phase.OPEN, Event.FLUSH_BEGUN): Phase.FLUSHING,
    (Phase.FLUSHING, Event.FLUSH_CANCELLED): Phase.OPEN,
    (Phase.FLUSHING, Event.FLUSHED): Phase.PREPARED,
    # What ends.
    (Phase.OPEN, Event.BATCH_SENT): Phase.BATCH_ASKED,
    (Phase.BATCH_ASKED, Event.BATCH_SENT): Phase.BATCH_ASKED,
    (Phase.PREPARED, Event.COMMIT_REQUESTED): Phase.COMMIT_ASKED,
    (Phase.OPEN, Event.ABORT_REQUESTED): Phase.ABORT_ASKED,
    (Phase.FLUSHING, Event.ABORT_REQUESTED): Phase.ABORT_ASKED,
    (Phase.PREPARED, Event.ABORT_REQUESTED): Phase.ABORT_ASKED,
    (Phase.COMMIT_ASKED, Event.ABORT_REQUESTED): Phase.BOTH_ASKED,
    (Phase.ABORT_ASKED, Event.ABORT_REQUESTED): Phase.ABORT_ASKED,
    (Phase.BOTH_ASKED, Event.ABORT_REQUESTED): Phase.BOTH_ASKED,
    (Phase.PREPARED, Event.LEFT): Phase.LEFT,
    (Phase.OPEN, Event.WITHDRAWN): Phase.WITHDRAWN,
    (Phase.FLUSHING, Event.WITHDRAWN): Phase.WITHDRAWN,
    (Phase.PREPARED, Event.WITHDRAWN): Phase.WITHDRAWN,
    # What the coordinator says. A timeout or an administrator may end it in any phase.
    (Phase.OPEN, Event.HEARD_COMMITTING): Phase.COMMITTING,
    (Phase.FLUSHING, Event.HEARD_COMMITTING): Phase.COMMITTING,
    (Phase.PREPARED, Event.HEARD_COMMITTING): Phase.COMMITTING,
    (Phase.COMMIT_ASKED, Event.HEARD_COMMITTING): Phase.COMMITTING,
    (Phase.ABORT_ASKED, Event.HEARD_COMMITTING): Phase.COMMITTING,
    (Phase.BOTH_ASKED, Event.HEARD_COMMITTING): Phase.COMMITTING,
    (Phase.COMMITTING, Event.HEARD_COMMITTING): Phase.COMMITTING,
    # An answer that was under way when a later one came.
    (Phase.COMMITTED, Event.HEARD_COMMITTING): Phase.COMMITTED,
    (Phase.OPEN, Event.HEARD_COMMITTED): Phase.COMMITTED,
    (Phase.FLUSHING, Event.HEARD_COMMITTED): Phase.COMMITTED,
    (Phase.PREPARED, Event.HEARD_COMMITTED): Phase.COMMITTED,
    (Phase.BATCH_ASKED, Event.HEARD_COMMITTED): Phase.COMMITTED,
    (Phase.COMMIT_ASKED, Event.HEARD_COMMITTED): Phase.COMMITTED,
    (Phase.ABORT_ASKED, Event.HEARD_COMMITTED): Phase.COMMITTED,
    (Phase.BOTH_ASKED, Event.HEARD_COMMITTED): Phase.COMMITTED,
    (Phase.COMMITTING, Event.HEARD_COMMITTED): Phase.COMMITTED,
    (Phase.COMMITTED, Event.HEARD_COMMITTED): Phase.COMMITTED,
    (Phase.OPEN, Event.HEARD_ABORTING): Phase.ABORTING,
    (Phase.FLUSHING, Event.HEARD_ABORTING): Phase.ABORTING,
    (Phase.PREPARED, Event.HEARD_ABORTING): Phase.ABORTING,
    (Phase.COMMIT_ASKED, Event.HEARD_ABORTING): Phase.ABORTING,
    (Phase.ABORT_ASKED, Event.HEARD_ABORTING): Phase.ABORTING,
    (Phase.BOTH_ASKED, Event.HEARD_ABORTING): Phase.ABORTING,
    (Phase.ABORTING, Event.HEARD_ABORTING): Phase.ABORTING,
    (Phase.ABORTED, Event.HEARD_ABORTING): Phase.ABORTED,
    (Phase.OPEN, Event.HEARD_ABORTED): Phase.ABORTED,
    (Phase.FLUSHING, Event.HEARD_ABORTED): Phase.ABORTED,
    (Phase.PREPARED, Event.HEARD_ABORTED): Phase.ABORTED,
    (Phase.BATCH_ASKED, Event.HEARD_ABORTED): Phase.ABORTED,
    (Phase.COMMIT_ASKED, Event.HEARD_ABORTED): Phase.ABORTED,
    (Phase.ABORT_ASKED, Event.HEARD_ABORTED): Phase.ABORTED,
    (Phase.BOTH_ASKED, Event.HEARD_ABORTED): Phase.ABORTED,
    (Phase.ABORTING, Event.HEARD_ABORTED): Phase.ABORTED,
    (Phase.ABORTED, Event.HEARD_ABORTED): Phase.ABORTED,
    # The inquiry knows less than the request for the end, whose answer may still come.
    (Phase.OPEN, Event.HEARD_FORGOTTEN): Phase.FORGOTTEN,
    (Phase.FLUSHING, Event.HEARD_FORGOTTEN): Phase.FORGOTTEN,
    (Phase.PREPARED, Event.HEARD_FORGOTTEN): Phase.FORGOTTEN,
    (Phase.COMMIT_ASKED, Event.HEARD_FORGOTTEN): Phase.FORGOTTEN,
    (Phase.ABORT_ASKED, Event.HEARD_FORGOTTEN): Phase.FORGOTTEN,
    (Phase.BOTH_ASKED, Event.HEARD_FORGOTTEN): Phase.FORGOTTEN,
    (Phase.FORGOTTEN, Event.HEARD_COMMITTING): Phase.COMMITTING,
    (Phase.FORGOTTEN, Event.HEARD_COMMITTED): Phase.COMMITTED,
    (Phase.FORGOTTEN, Event.HEARD_ABORTING): Phase.ABORTING,
    (Phase.FORGOTTEN, Event.HEARD_ABORTED): Phase.ABORTED,
}


def next_phase(phase: Phase, event: Event, name: object) -> Phase:
    """Return the phase after an event.

    Args:
        phase: the phase before.
        event: the event.
        name: its text is the transaction's name in messages for people.
    Raises:
        InvalidTxnState: the event cannot happen in this phase. No effect.
    """
    return step(TRANSITIONS, phase, event, name)
