"""The states of a transaction at its client, and the table of their transitions. Pure.

Only `MACHINE` reads the table, and only `TransactionWork._move` stores the result.
docs/protocol/states.md has the drawing.
Source: docs/design/0001-protocol.md, One transaction; PIP-31, TxnStatus.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Final

from magnetar.enums import TransactionStatus
from magnetar_core.transitions import Machine


@unique
class TransactionPhase(Enum):
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

    # Members are single objects. Enum's own __hash__ is a function in Python, which takes longer.
    __hash__ = object.__hash__


@unique
class TransactionEvent(Enum):
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

    __hash__ = object.__hash__


# Constants for the usual transitions: Python finds the members of an enumeration slowly.
OPEN: Final = TransactionPhase.OPEN
PREPARED: Final = TransactionPhase.PREPARED
FLUSH_BEGUN: Final = TransactionEvent.FLUSH_BEGUN
FLUSHED: Final = TransactionEvent.FLUSHED
COMMIT_REQUESTED: Final = TransactionEvent.COMMIT_REQUESTED

HEARD: Final[Mapping[TransactionStatus, TransactionEvent]] = {
    TransactionStatus.COMMITTING: TransactionEvent.HEARD_COMMITTING,
    TransactionStatus.COMMITTED: TransactionEvent.HEARD_COMMITTED,
    TransactionStatus.ABORTING: TransactionEvent.HEARD_ABORTING,
    TransactionStatus.ABORTED: TransactionEvent.HEARD_ABORTED,
}

# What a client knows of the status.
STATUS_OF: Final[Mapping[TransactionPhase, TransactionStatus]] = {
    TransactionPhase.OPEN: TransactionStatus.OPEN,
    TransactionPhase.FLUSHING: TransactionStatus.OPEN,
    TransactionPhase.PREPARED: TransactionStatus.OPEN,
    TransactionPhase.BATCH_ASKED: TransactionStatus.OPEN,
    TransactionPhase.COMMIT_ASKED: TransactionStatus.OPEN,
    TransactionPhase.COMMITTING: TransactionStatus.COMMITTING,
    TransactionPhase.COMMITTED: TransactionStatus.COMMITTED,
    TransactionPhase.ABORT_ASKED: TransactionStatus.ABORTING,
    TransactionPhase.BOTH_ASKED: TransactionStatus.OPEN,
    TransactionPhase.ABORTING: TransactionStatus.ABORTING,
    TransactionPhase.ABORTED: TransactionStatus.ABORTED,
    TransactionPhase.LEFT: TransactionStatus.OPEN,
    TransactionPhase.WITHDRAWN: TransactionStatus.OPEN,
    TransactionPhase.FORGOTTEN: TransactionStatus.OPEN,
}

# The coordinator may have decided to commit.
COMMIT_WAS_ASKED: Final = frozenset(
    {TransactionPhase.BATCH_ASKED, TransactionPhase.COMMIT_ASKED, TransactionPhase.BOTH_ASKED}
)
# This client has not asked for an end.
UNDECIDED: Final = frozenset(
    {TransactionPhase.OPEN, TransactionPhase.FLUSHING, TransactionPhase.PREPARED}
)
DECIDED_COMMIT: Final = frozenset({TransactionPhase.COMMITTING, TransactionPhase.COMMITTED})
DECIDED_ABORT: Final = frozenset({TransactionPhase.ABORTING, TransactionPhase.ABORTED})
# An end was asked for here; which one the coordinator has decided, if any, is not known.
IN_DOUBT: Final = COMMIT_WAS_ASKED | {TransactionPhase.ABORT_ASKED}
# This client can no longer change the outcome.
ENDED: Final = DECIDED_COMMIT | DECIDED_ABORT | {TransactionPhase.FORGOTTEN}
# This client takes no further part in it.
OVER: Final = ENDED | {TransactionPhase.LEFT, TransactionPhase.WITHDRAWN}
# Of these: what this client did stands, or may stand.
STANDS: Final = DECIDED_COMMIT | {TransactionPhase.LEFT}

TRANSITIONS: Final[Mapping[tuple[TransactionPhase, TransactionEvent], TransactionPhase]] = {
    (TransactionPhase.OPEN, TransactionEvent.FLUSH_BEGUN): TransactionPhase.FLUSHING,
    (TransactionPhase.FLUSHING, TransactionEvent.FLUSH_CANCELLED): TransactionPhase.OPEN,
    (TransactionPhase.FLUSHING, TransactionEvent.FLUSHED): TransactionPhase.PREPARED,
    # What ends.
    (TransactionPhase.OPEN, TransactionEvent.BATCH_SENT): TransactionPhase.BATCH_ASKED,
    (TransactionPhase.BATCH_ASKED, TransactionEvent.BATCH_SENT): TransactionPhase.BATCH_ASKED,
    (TransactionPhase.PREPARED, TransactionEvent.COMMIT_REQUESTED): TransactionPhase.COMMIT_ASKED,
    (TransactionPhase.OPEN, TransactionEvent.ABORT_REQUESTED): TransactionPhase.ABORT_ASKED,
    (TransactionPhase.FLUSHING, TransactionEvent.ABORT_REQUESTED): TransactionPhase.ABORT_ASKED,
    (TransactionPhase.PREPARED, TransactionEvent.ABORT_REQUESTED): TransactionPhase.ABORT_ASKED,
    (TransactionPhase.COMMIT_ASKED, TransactionEvent.ABORT_REQUESTED): TransactionPhase.BOTH_ASKED,
    (TransactionPhase.ABORT_ASKED, TransactionEvent.ABORT_REQUESTED): TransactionPhase.ABORT_ASKED,
    (TransactionPhase.BOTH_ASKED, TransactionEvent.ABORT_REQUESTED): TransactionPhase.BOTH_ASKED,
    (TransactionPhase.PREPARED, TransactionEvent.LEFT): TransactionPhase.LEFT,
    (TransactionPhase.OPEN, TransactionEvent.WITHDRAWN): TransactionPhase.WITHDRAWN,
    (TransactionPhase.FLUSHING, TransactionEvent.WITHDRAWN): TransactionPhase.WITHDRAWN,
    (TransactionPhase.PREPARED, TransactionEvent.WITHDRAWN): TransactionPhase.WITHDRAWN,
    # What the coordinator says. A timeout or an administrator may end it in any phase.
    (TransactionPhase.OPEN, TransactionEvent.HEARD_COMMITTING): TransactionPhase.COMMITTING,
    (TransactionPhase.FLUSHING, TransactionEvent.HEARD_COMMITTING): TransactionPhase.COMMITTING,
    (TransactionPhase.PREPARED, TransactionEvent.HEARD_COMMITTING): TransactionPhase.COMMITTING,
    (TransactionPhase.COMMIT_ASKED, TransactionEvent.HEARD_COMMITTING): TransactionPhase.COMMITTING,
    (TransactionPhase.ABORT_ASKED, TransactionEvent.HEARD_COMMITTING): TransactionPhase.COMMITTING,
    (TransactionPhase.BOTH_ASKED, TransactionEvent.HEARD_COMMITTING): TransactionPhase.COMMITTING,
    (TransactionPhase.COMMITTING, TransactionEvent.HEARD_COMMITTING): TransactionPhase.COMMITTING,
    # An answer that was under way when a later one came.
    (TransactionPhase.COMMITTED, TransactionEvent.HEARD_COMMITTING): TransactionPhase.COMMITTED,
    (TransactionPhase.OPEN, TransactionEvent.HEARD_COMMITTED): TransactionPhase.COMMITTED,
    (TransactionPhase.FLUSHING, TransactionEvent.HEARD_COMMITTED): TransactionPhase.COMMITTED,
    (TransactionPhase.PREPARED, TransactionEvent.HEARD_COMMITTED): TransactionPhase.COMMITTED,
    (TransactionPhase.BATCH_ASKED, TransactionEvent.HEARD_COMMITTED): TransactionPhase.COMMITTED,
    (TransactionPhase.COMMIT_ASKED, TransactionEvent.HEARD_COMMITTED): TransactionPhase.COMMITTED,
    (TransactionPhase.ABORT_ASKED, TransactionEvent.HEARD_COMMITTED): TransactionPhase.COMMITTED,
    (TransactionPhase.BOTH_ASKED, TransactionEvent.HEARD_COMMITTED): TransactionPhase.COMMITTED,
    (TransactionPhase.COMMITTING, TransactionEvent.HEARD_COMMITTED): TransactionPhase.COMMITTED,
    (TransactionPhase.COMMITTED, TransactionEvent.HEARD_COMMITTED): TransactionPhase.COMMITTED,
    (TransactionPhase.OPEN, TransactionEvent.HEARD_ABORTING): TransactionPhase.ABORTING,
    (TransactionPhase.FLUSHING, TransactionEvent.HEARD_ABORTING): TransactionPhase.ABORTING,
    (TransactionPhase.PREPARED, TransactionEvent.HEARD_ABORTING): TransactionPhase.ABORTING,
    (TransactionPhase.COMMIT_ASKED, TransactionEvent.HEARD_ABORTING): TransactionPhase.ABORTING,
    (TransactionPhase.ABORT_ASKED, TransactionEvent.HEARD_ABORTING): TransactionPhase.ABORTING,
    (TransactionPhase.BOTH_ASKED, TransactionEvent.HEARD_ABORTING): TransactionPhase.ABORTING,
    (TransactionPhase.ABORTING, TransactionEvent.HEARD_ABORTING): TransactionPhase.ABORTING,
    (TransactionPhase.ABORTED, TransactionEvent.HEARD_ABORTING): TransactionPhase.ABORTED,
    (TransactionPhase.OPEN, TransactionEvent.HEARD_ABORTED): TransactionPhase.ABORTED,
    (TransactionPhase.FLUSHING, TransactionEvent.HEARD_ABORTED): TransactionPhase.ABORTED,
    (TransactionPhase.PREPARED, TransactionEvent.HEARD_ABORTED): TransactionPhase.ABORTED,
    (TransactionPhase.BATCH_ASKED, TransactionEvent.HEARD_ABORTED): TransactionPhase.ABORTED,
    (TransactionPhase.COMMIT_ASKED, TransactionEvent.HEARD_ABORTED): TransactionPhase.ABORTED,
    (TransactionPhase.ABORT_ASKED, TransactionEvent.HEARD_ABORTED): TransactionPhase.ABORTED,
    (TransactionPhase.BOTH_ASKED, TransactionEvent.HEARD_ABORTED): TransactionPhase.ABORTED,
    (TransactionPhase.ABORTING, TransactionEvent.HEARD_ABORTED): TransactionPhase.ABORTED,
    (TransactionPhase.ABORTED, TransactionEvent.HEARD_ABORTED): TransactionPhase.ABORTED,
    # The inquiry knows less than the request for the end, whose answer may still come.
    (TransactionPhase.OPEN, TransactionEvent.HEARD_FORGOTTEN): TransactionPhase.FORGOTTEN,
    (TransactionPhase.FLUSHING, TransactionEvent.HEARD_FORGOTTEN): TransactionPhase.FORGOTTEN,
    (TransactionPhase.PREPARED, TransactionEvent.HEARD_FORGOTTEN): TransactionPhase.FORGOTTEN,
    (TransactionPhase.COMMIT_ASKED, TransactionEvent.HEARD_FORGOTTEN): TransactionPhase.FORGOTTEN,
    (TransactionPhase.ABORT_ASKED, TransactionEvent.HEARD_FORGOTTEN): TransactionPhase.FORGOTTEN,
    (TransactionPhase.BOTH_ASKED, TransactionEvent.HEARD_FORGOTTEN): TransactionPhase.FORGOTTEN,
    (TransactionPhase.FORGOTTEN, TransactionEvent.HEARD_COMMITTING): TransactionPhase.COMMITTING,
    (TransactionPhase.FORGOTTEN, TransactionEvent.HEARD_COMMITTED): TransactionPhase.COMMITTED,
    (TransactionPhase.FORGOTTEN, TransactionEvent.HEARD_ABORTING): TransactionPhase.ABORTING,
    (TransactionPhase.FORGOTTEN, TransactionEvent.HEARD_ABORTED): TransactionPhase.ABORTED,
}


MACHINE: Final = Machine(TRANSITIONS, "a transaction")
