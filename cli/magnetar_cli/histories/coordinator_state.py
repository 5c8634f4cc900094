"""State of a coordinator as a history tells it: its transactions, and which TxnIDs it may tell.

Pure. Source: spec/Commit.tla, memory and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from magnetar_core.history import events
from magnetar_core.history.events import Counts, Event, Participant
from magnetar_core.ids import TxnID


class Status(Enum):
    """Status of a transaction. LOST: its record was lost, and it counts as aborted."""

    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"
    LOST = "lost"


IS_OVER = frozenset({Status.COMMITTED, Status.ABORTED, Status.LOST})
_COMMITS = frozenset({Status.COMMITTING, Status.COMMITTED})


@dataclass(slots=True)
class Transaction:
    """A transaction.

    Attributes:
        counts: confirmed counts of each participant, by writer; None: the commit is not counted.
        is_uncertain: it is from before a loss that was accepted: not all rules hold for it.
    """

    participants: dict[Participant, None]
    status: Status = Status.OPEN
    counts: Mapping[Participant, Mapping[int, int]] | None = None
    selection: tuple[int, ...] | None = None
    loss_accepted: bool = False
    is_uncertain: bool = False

    @property
    def is_over(self) -> bool:
        """Whether every participant has ended it."""
        return self.status in IS_OVER

    @property
    def outcome(self) -> bool | None:
        """Whether it is committed; None: it is not decided."""
        return None if self.status is Status.OPEN else self.status in _COMMITS

    def has(self, participant: Participant) -> bool:
        """Return whether a participant takes part. Clients may leave out the id of a topic."""
        return (
            participant in self.participants
            or participant._replace(topic_id=0) in self.participants
        )

    def counts_of(self, participant: Participant) -> Mapping[int, int] | None:
        """Return the confirmed counts of a participant; None: the commit is not counted."""
        if self.counts is None:
            return None
        found = self.counts.get(participant)
        return found or self.counts.get(participant._replace(topic_id=0), {})

    def copy(self) -> Transaction:
        """Return a copy that does not change with this one."""
        return Transaction(
            dict(self.participants),
            self.status,
            self.counts,
            self.selection,
            self.loss_accepted,
            self.is_uncertain,
        )


@dataclass(slots=True)
class CoordinatorState:
    """Transactions of a coordinator.

    Attributes:
        next_counter: smaller counters of the incarnation are issued, or never will be.
        bound: no counter from here on was told to a client.
        unfinished: the transactions that are not over.
    """

    incarnation: int = 0
    next_counter: int = 0
    bound: int = 0
    transactions: dict[TxnID, Transaction] = field(default_factory=dict)
    unfinished: dict[TxnID, None] = field(default_factory=dict)

    def copy(self) -> CoordinatorState:
        """Return a copy that does not change with this one."""
        transactions = {txn_id: one.copy() for txn_id, one in self.transactions.items()}
        return CoordinatorState(
            self.incarnation,
            self.next_counter,
            self.bound,
            transactions,
            dict(self.unfinished),
        )

    def find(self, txn_id: TxnID) -> Transaction | None:
        """Return a transaction, or None."""
        return self.transactions.get(txn_id)

    # Changing.

    def apply(self, event: Event) -> None:
        """Change as an event says; events that change nothing here are passed over."""
        change = _CHANGES.get(type(event))
        if change is not None:
            change(self, event)

    def _opened(self, event: events.Opened) -> None:
        self.transactions[event.txn_id] = Transaction(dict.fromkeys(event.participants))
        self.unfinished[event.txn_id] = None
        if event.txn_id.incarnation == self.incarnation:
            self.next_counter = max(self.next_counter, event.txn_id.counter + 1)

    def _added(self, event: events.ParticipantsAdded) -> None:
        self.transactions[event.txn_id].participants.update(dict.fromkeys(event.participants))

    def _decided(self, event: events.Decided) -> None:
        one = self.transactions[event.txn_id]
        one.status = Status.COMMITTING if event.is_commit else Status.ABORTING
        one.counts = counts_by_writer(event.counts)
        one.selection = event.selection

    def _loss_accepted(self, event: events.LossAccepted) -> None:
        self.transactions[event.txn_id].loss_accepted = True

    def _finished(self, event: events.Finished) -> None:
        one = self.transactions[event.txn_id]
        one.status = Status.COMMITTED if event.is_commit else Status.ABORTED
        self.unfinished.pop(event.txn_id, None)

    def _reserved(self, event: events.CounterReserved) -> None:
        self.bound = max(self.bound, event.bound)

    def _announced(self, event: events.WatermarkAnnounced) -> None:
        # It may have passed over a TxnID that a client had invented.
        if event.incarnation == self.incarnation:
            self.next_counter = max(self.next_counter, event.next_counter)

    # Recovering.

    def difference(self, found: events.CoordinatorRecovered) -> str | None:
        """Say how a state differs from what a coordinator has found; None: it does not."""
        live = {one.txn_id: one for one in found.live}
        for txn_id in self.unfinished:
            if txn_id not in live:
                return f"{txn_id} is not found, which is {self.transactions[txn_id].status.value}"
        for txn_id, one in live.items():
            known = self.transactions.get(txn_id)
            if known is None:
                return f"{txn_id} is found, and was never opened"
            if known.is_over:
                return f"{txn_id} is found live, and is {known.status.value}"
            other = _transaction(one)
            if known.is_uncertain:
                continue
            if (other.status, other.participants, other.counts) != (
                known.status,
                known.participants,
                known.counts,
            ):
                return f"{txn_id} is found as {other}, not as {known}"
            if (other.selection, other.loss_accepted) != (known.selection, known.loss_accepted):
                return f"{txn_id} is found as {other}, not as {known}"
        if found.next_counter < self.bound:
            return (
                f"it goes on with counter {found.next_counter}, and all below {self.bound} may"
                " have been told"
            )
        return None

    def recovered(self, found: events.CoordinatorRecovered, *, is_uncertain: bool) -> None:
        """Continue with what a coordinator has found in its store.

        Args:
            is_uncertain: a loss was accepted, or the history begins here.
        """
        for txn_id in list(self.unfinished):
            self.transactions[txn_id].is_uncertain |= is_uncertain
        self.unfinished = {}
        for one in found.live:
            known = self.transactions.get(one.txn_id)
            transaction = self.transactions[one.txn_id] = _transaction(one)
            uncertain = known.is_uncertain if known is not None else False
            transaction.is_uncertain = is_uncertain or uncertain
            self.unfinished[one.txn_id] = None
        self.incarnation = found.incarnation
        self.next_counter = found.next_counter
        self.bound = max(self.bound, found.next_counter) if not is_uncertain else found.next_counter


def counts_by_writer(counts: Counts | None) -> Mapping[Participant, Mapping[int, int]] | None:
    """Return confirmed counts of each participant, by writer."""
    return None if counts is None else {name: dict(one) for name, one in counts}


def is_lost(found: events.CoordinatorRecovered, txn_id: TxnID) -> bool:
    """Return whether a coordinator has noticed that a transaction's record was lost."""
    return any(first <= txn_id.counter <= last for first, last in found.lost)


def lost_among(
    known: Iterable[TxnID], state: CoordinatorState, incarnation: int
) -> dict[TxnID, Transaction]:
    """Return the transactions whose records a crash has lost, as they are from then on."""
    return {
        txn_id: Transaction({}, Status.LOST)
        for txn_id in known
        if txn_id not in state.transactions and txn_id.incarnation == incarnation
    }


def _transaction(found: events.LiveTransaction) -> Transaction:
    statuses = {None: Status.OPEN, True: Status.COMMITTING, False: Status.ABORTING}
    return Transaction(
        dict.fromkeys(found.participants),
        statuses[found.outcome],
        counts_by_writer(found.counts),
        found.selection,
        found.loss_accepted,
    )


_CHANGES: dict[type[Event], Callable[[CoordinatorState, Any], None]] = {
    events.Opened: CoordinatorState._opened,
    events.ParticipantsAdded: CoordinatorState._added,
    events.Decided: CoordinatorState._decided,
    events.LossAccepted: CoordinatorState._loss_accepted,
    events.Finished: CoordinatorState._finished,
    events.CounterReserved: CoordinatorState._reserved,
    events.WatermarkAnnounced: CoordinatorState._announced,
}
