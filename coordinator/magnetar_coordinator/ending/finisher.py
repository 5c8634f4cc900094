"""Finisher: drives COMMITTING and ABORTING transactions to their end, at every participant.

It starts when the decision is durable, and tells the runtime when the last participant has
answered. It stores nothing: after a restart it sends all end commands again, which is harmless. The
commands to a broker, and their repeats, are in end_command_sender.py.
Source: PIP-31, TC Startup, committing and aborting; docs/design/0001-protocol.md, Ends at a
participant.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from magnetar_coordinator.ending.broker_peer import BrokerPeer
from magnetar_coordinator.ending.brokers import Brokers
from magnetar_coordinator.ending.end_commands import portions
from magnetar_coordinator.ending.end_state import PendingEnd
from magnetar_coordinator.ending.transaction_traces import TransactionTraces
from magnetar_coordinator.metadata.transaction import Participant, Transaction, TxnStatus
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_coordinator.transactions.transaction_changes import TransactionChanges
from magnetar_core.clock import Clock
from magnetar_core.errors import code_name
from magnetar_core.ids import SubscriptionName, TxnID
from magnetar_core.wire import common_pb2 as common

log = logging.getLogger(__name__)


class _Finishing:
    """A transaction that is being ended.

    Attributes:
        ends: end commands without an answer, and the brokers that get them.
        later: participants that are told when these have answered.
        then: called when every participant has answered.
    """

    __slots__ = ("ends", "later", "refused", "started_ms", "then")

    def __init__(
        self, started_ms: float, later: list[Participant], then: Callable[[TxnID], None]
    ) -> None:
        self.started_ms = started_ms
        self.then = then
        self.ends: dict[PendingEnd, BrokerPeer] = {}
        self.later = later
        self.refused = False


class _Begun(defaultdict[BrokerPeer, list[PendingEnd]]):
    """New end commands, by the broker that gets them."""

    def __init__(self) -> None:
        super().__init__(list)


class Finisher:
    """All transactions that are being ended.

    Args:
        changes: are told how far ends have come.
        traces: makes the spans of ends; None: there are none.
    """

    def __init__(
        self,
        brokers: Brokers,
        clock: Clock,
        metrics: CoordinatorMetrics,
        changes: TransactionChanges,
        traces: TransactionTraces | None = None,
    ) -> None:
        self._brokers = brokers
        self._changes = changes
        self._clock = clock
        self._metrics = metrics
        self._traces = traces
        self._transactions: dict[TxnID, _Finishing] = {}
        self._refused_count = 0

    def finish(self, transactions: Iterable[Transaction], then: Callable[[TxnID], None]) -> None:
        """Tell the participants of transactions whose decisions are durable.

        Partitions are told of a commit before subscriptions: the next owner of a group's partition
        then writes after the committed messages. A broker that has all of them keeps this order
        itself.

        Args:
            then: called with each, when every participant has answered.
        Source: PIP-31, TC Startup, the steps of committing; docs/design/0003-groups.md.
        """
        if self._brokers.is_stopped:
            return
        now_ms = self._clock.monotonic_ms()
        begun = _Begun()
        for transaction in transactions:
            later: list[Participant] = []
            commands = self._portions(transaction, transaction.unfinished)
            if transaction.status is TxnStatus.COMMITTING and len(commands) > 1:
                first, later = _in_order(transaction.unfinished)
                commands = self._portions(transaction, first)
            finishing = _Finishing(now_ms, later, then)
            self._transactions[transaction.txn_id] = finishing
            if self._traces is not None:
                self._traces.finishing(transaction)
            if commands:
                self._begin(transaction, finishing, commands, begun)
            else:
                self._finished(transaction, finishing)
        self._send(begun, now_ms)

    def _portions(
        self, transaction: Transaction, participants: Collection[Participant]
    ) -> list[tuple[BrokerPeer, Sequence[Participant]]]:
        """Divide participants into those that share an end command."""
        return [
            (self._brokers[address], portion)
            for address, some in self._brokers.placement.divide(participants).items()
            for portion in portions(transaction, some)
        ]

    def _begin(
        self,
        transaction: Transaction,
        finishing: _Finishing,
        commands: Iterable[tuple[BrokerPeer, Sequence[Participant]]],
        begun: _Begun,
    ) -> None:
        """Begin the end commands of a transaction, for _send()."""
        for broker, participants in commands:
            end = broker.ends.add(
                transaction, participants, on_ended=self.ended, on_error=self.failed
            )
            finishing.ends[end] = broker
            begun[broker].append(end)

    def _send(self, begun: _Begun, now_ms: float) -> None:
        for broker, ends in begun.items():
            broker.ends.send_first(ends, now_ms)

    def retry(self, txn_id: TxnID) -> None:
        """Send the end commands of a transaction again at once: a refusal has become unlikely."""
        finishing = self._transactions.get(txn_id)
        if finishing is None or self._brokers.is_stopped:
            return
        now_ms = self._clock.monotonic_ms()
        for end, broker in finishing.ends.items():
            broker.ends.send_again(end, now_ms)

    def ended(self, end: PendingEnd, participants: Sequence[Participant]) -> None:
        """Note that participants have ended their parts of a transaction, or no longer exist."""
        transaction = end.transaction
        for participant in participants:
            del transaction.unfinished[participant]
        if transaction.unfinished:
            earlier = transaction.ended_earlier = transaction.ended_earlier or []
            earlier.append((self._clock.wall_ms(), participants))
            self._changes.progressed(transaction.txn_id)
        if end.participants:
            return
        finishing = self._transactions[transaction.txn_id]
        del finishing.ends[end]
        if finishing.ends:
            return
        if finishing.later:
            later, finishing.later = finishing.later, []
            commands = self._portions(transaction, later)
            begun = _Begun()
            self._begin(transaction, finishing, commands, begun)
            self._send(begun, self._clock.monotonic_ms())
        else:
            self._finished(transaction, finishing)

    def failed(
        self, end: PendingEnd, participant: Participant, error: common.ServerError, refuses: bool
    ) -> None:
        """Note why a participant has not ended its part of a transaction.

        Args:
            refuses: the transaction waits for an administrator.
        """
        unfinished = end.transaction.unfinished
        # It is asked again and again, and mostly answers the same.
        if unfinished[participant] != error:
            unfinished[participant] = error
            self._changes.progressed(end.transaction.txn_id)
        if refuses:
            self._refused(end, participant, error)

    def _refused(
        self, end: PendingEnd, participant: Participant, error: common.ServerError
    ) -> None:
        finishing = self._transactions[end.transaction.txn_id]
        if finishing.refused:
            return
        finishing.refused = True
        self._refused_count += 1
        self._metrics.incomplete.set(self._refused_count)
        log.error(
            "transaction %s stays %s: %s answers %s: %s",
            end.transaction.txn_id,
            end.transaction.status.name,
            participant,
            code_name(error.code),
            error.message,
            extra={"txn_id": end.transaction.txn_id, "participant": participant},
        )

    def oldest_ms(self) -> float:
        """Return the age of the oldest decision in progress, in milliseconds.

        0 when there is none.
        """
        # The dictionary keeps the order in which transactions were begun.
        oldest = next(iter(self._transactions.values()), None)
        return 0.0 if oldest is None else self._clock.monotonic_ms() - oldest.started_ms

    def _finished(self, transaction: Transaction, finishing: _Finishing) -> None:
        del self._transactions[transaction.txn_id]
        if self._traces is not None:
            self._traces.finished(transaction.txn_id)
        if finishing.refused:
            self._refused_count -= 1
            self._metrics.incomplete.set(self._refused_count)
        seconds = (self._clock.monotonic_ms() - finishing.started_ms) / 1_000
        self._metrics.finishing_seconds.observe(seconds)
        finishing.then(transaction.txn_id)


def _in_order(
    participants: Collection[Participant],
) -> tuple[Collection[Participant], list[Participant]]:
    """Return the participants that are told of a commit first, and those that wait for them."""
    later: list[Participant] = [
        participant for participant in participants if isinstance(participant, SubscriptionName)
    ]
    if not later or len(later) == len(participants):
        return participants, []
    return [
        participant for participant in participants if not isinstance(participant, SubscriptionName)
    ], later
