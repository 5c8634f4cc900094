r"""State of a transaction in its coordinator, and the table of transitions between states.

    OPEN --COMMIT_REQUESTED--> COMMITTING --PARTICIPANTS_ENDED--> COMMITTED
      \--ABORT_REQUESTED, EXPIRED--> ABORTING --PARTICIPANTS_ENDED--> ABORTED

Only `shard.next_status` reads it, and only `TransactionTable.apply` stores what it says. Pure.
Source: PIP-31, Transaction Coordinator, Concepts, TxnStatus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import NamedTuple, TypeAlias

from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import common_pb2 as common


class TxnStatus(IntEnum):
    """Status of a transaction, with the numbers of the wire. PIP-31, TxnStatus."""

    __hash__ = int.__hash__

    OPEN = 1
    COMMITTING = 2
    COMMITTED = 3
    ABORTING = 4
    ABORTED = 5


class TxnAction(IntEnum):
    """Action of CommandEndTxn, with the numbers of the wire."""

    __hash__ = int.__hash__

    COMMIT = 0
    ABORT = 1


class TxnEvent(Enum):
    """Events that move a transaction to another status."""

    # Enum's own hash is a Python function, and each transaction looks up two transitions.
    __hash__ = object.__hash__

    COMMIT_REQUESTED = auto()
    ABORT_REQUESTED = auto()
    EXPIRED = auto()
    PARTICIPANTS_ENDED = auto()


TRANSITIONS: Mapping[tuple[TxnStatus, TxnEvent], TxnStatus] = {
    (TxnStatus.OPEN, TxnEvent.COMMIT_REQUESTED): TxnStatus.COMMITTING,
    (TxnStatus.OPEN, TxnEvent.ABORT_REQUESTED): TxnStatus.ABORTING,
    (TxnStatus.OPEN, TxnEvent.EXPIRED): TxnStatus.ABORTING,
    (TxnStatus.COMMITTING, TxnEvent.PARTICIPANTS_ENDED): TxnStatus.COMMITTED,
    (TxnStatus.ABORTING, TxnEvent.PARTICIPANTS_ENDED): TxnStatus.ABORTED,
}

REQUESTED: Mapping[TxnAction, TxnEvent] = {
    TxnAction.COMMIT: TxnEvent.COMMIT_REQUESTED,
    TxnAction.ABORT: TxnEvent.ABORT_REQUESTED,
}

# The action that led to a status; it is the only action that may be repeated in that status.
ACTION_OF: Mapping[TxnStatus, TxnAction] = {
    TxnStatus.COMMITTING: TxnAction.COMMIT,
    TxnStatus.COMMITTED: TxnAction.COMMIT,
    TxnStatus.ABORTING: TxnAction.ABORT,
    TxnStatus.ABORTED: TxnAction.ABORT,
}

Participant: TypeAlias = PartitionName | SubscriptionName

# Confirmed writes of participants. A coordinator only passes them on: each value is a field of the
# client's CommandEndTxn, with PartitionCounts or SubscriptionCounts.
Counts: TypeAlias = Mapping[Participant, bytes]


class TxnOwner(NamedTuple):
    """Transactional producer that began a transaction, with its producer id and epoch."""

    transactional_id: str
    pair: tuple[int, int]


@dataclass(slots=True)
class TransactionClient:
    """The client of a conversation, which all transactions share that it began there.

    Attributes:
        name: as the client calls itself; empty: it gave none, or used a unary call.
        host: its machine, as far as the transport knows it.
        is_connected: whether the conversation goes on.
    """

    name: str
    host: str
    is_connected: bool


class EndCause(IntEnum):
    """Why a transaction ends as it does, with the numbers of the wire. No decision uses it."""

    UNKNOWN = 0
    CLIENT = 1
    BY_HAND = 2
    TIMED_OUT = 3
    TAKEN_OVER = 4
    MEMBER_EXPELLED = 5
    RESTORED = 6
    DECIDED_BEFORE_LOSS = 7


class Cause(NamedTuple):
    """Why a transaction ends as it does, and which client caused it, if it is not its own."""

    kind: EndCause
    caused_by: str = ""


UNKNOWN_CAUSE = Cause(EndCause.UNKNOWN)
BY_CLIENT = Cause(EndCause.CLIENT)


@dataclass(slots=True, kw_only=True)
class Transaction:
    """A live transaction: OPEN, COMMITTING or ABORTING.

    Attributes:
        timeout_ms: 0: it never expires.
        decided_time_ms: when its outcome was fixed; 0 while OPEN.
        participants: in the order in which they were added; the values have no meaning.
        ledger_ids: those that participants had when they were added; None: not to be compared.
        counts: writes that the client had confirmed; None: not to be checked.
        selection: writers whose writes count, sorted; None: all writers.
        unfinished: participants that have not ended it yet, with the last error or ""; empty while
            OPEN.
        loss_accepted: whether the commit goes on without the writes that its participants lost.
        is_loss_durable: whether that is durable, so that participants may be told (rule a).
        principal: the client that began it; empty: a client that did not authenticate.
        stamp: of the commit; 0 while it is not committed.
        record_count: rows of its metadata in the store.
        client: the client that began it, for people; None: it was begun before a restart.
        cause: why it ends so, for people; not known for what was decided before a restart.
        ended_earlier: participants that have ended it before the last ones, in portions, each with
            the wall clock then. For people.
    """

    txn_id: TxnID
    status: TxnStatus = TxnStatus.OPEN
    timeout_ms: int
    start_run_time_ms: int
    # Wall clock, shown to people; no decision uses it.
    start_time_ms: int
    decided_time_ms: int = 0
    participants: dict[Participant, None] = field(default_factory=dict)
    ledger_ids: dict[Participant, int] | None = None
    counts: Counts | None = None
    selection: tuple[int, ...] | None = None
    unfinished: dict[Participant, common.ServerError | None] = field(default_factory=dict)
    loss_accepted: bool = False
    is_loss_durable: bool = False
    txn_owner: TxnOwner | None = None
    principal: str = ""
    stamp: int = NO_STAMP
    record_count: int = 0
    client: TransactionClient | None = None
    cause: Cause = UNKNOWN_CAUSE
    ended_earlier: list[tuple[int, Sequence[Participant]]] | None = None

    @property
    def expires(self) -> bool:
        """Whether the transaction has a timeout."""
        return self.timeout_ms > 0

    @property
    def may_be_prepared(self) -> bool:
        """Whether it waits for the decision of a database, as far as this coordinator knows."""
        return self.status is TxnStatus.OPEN and not self.expires

    @property
    def deadline_run_time_ms(self) -> int:
        """Run time at which the transaction expires, in milliseconds."""
        return self.start_run_time_ms + self.timeout_ms

    @property
    def action(self) -> TxnAction:
        """The action that participants are told. Not defined for an OPEN transaction."""
        return ACTION_OF[self.status]

    def check(self) -> None:
        """Check the invariants."""
        assert self.record_count > 0
        assert self.status in (TxnStatus.OPEN, TxnStatus.COMMITTING, TxnStatus.ABORTING)
        assert self.unfinished.keys() <= self.participants.keys()
        if self.status is TxnStatus.OPEN:
            assert not self.unfinished
        if self.status is not TxnStatus.COMMITTING:
            assert self.counts is None
            assert self.selection is None
            assert not self.loss_accepted
            assert self.stamp == NO_STAMP
