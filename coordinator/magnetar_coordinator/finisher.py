"""Drives COMMITTING and ABORTING transactions to their end, at every participant.

It starts when the decision is durable, and the runtime is told when the last participant has
answered. Nothing here is stored: after a restart all participants are asked again, which is
harmless. What one broker is told, and when again, is in end_command_sender.py.
Source: PIP-31, TC Startup, committing and aborting;
docs/design/0001-protocol.md, Ends at a participant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

from magnetar_coordinator.broker_peer import BrokerPeer, OnAnswer
from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.directory import BrokerDirectory
from magnetar_coordinator.end_state import PendingEnd
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_coordinator.orphans import OrphanVerdict
from magnetar_coordinator.transaction import Participant, Transaction, TxnStatus
from magnetar_core.clock import Clock
from magnetar_core.errors import code_name
from magnetar_core.ids import SubscriptionName, TxnID
from magnetar_core.transport import Transport
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

log = logging.getLogger(__name__)


class _Finishing:
    """One transaction under way.

    Attributes:
        ends: those that have not answered.
        later: participants that are told when these have.
    """

    __slots__ = ("ends", "later", "refused", "started_ms")

    def __init__(self, started_ms: float, later: list[Participant]) -> None:
        self.started_ms = started_ms
        self.ends: dict[Participant, tuple[BrokerPeer, PendingEnd]] = {}
        self.later = later
        self.refused = False


class Finisher:
    """All transactions that are being ended.

    Args:
        on_finished: every participant of this transaction has answered.
        judge_orphan: what becomes of what a broker holds open.
        when_durable: calls back once all that was decided so far is durable.
        on_expelled: a broker asks to abort these; members that a group expelled took part in them.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        transport: Transport,
        clock: Clock,
        random: Random,
        directory: BrokerDirectory,
        metrics: CoordinatorMetrics,
        *,
        on_finished: Callable[[TxnID], None],
        judge_orphan: Callable[[TxnID, Participant], OrphanVerdict],
        when_durable: Callable[[Callable[[], None]], None],
        on_expelled: Callable[[list[TxnID]], None],
    ) -> None:
        self._config = config
        self._transport = transport
        self._clock = clock
        self._random = random
        self._directory = directory
        self._metrics = metrics
        self._on_finished = on_finished
        self.judge_orphan = judge_orphan
        self.when_durable = when_durable
        self._on_expelled = on_expelled
        self._watermark: pb.CommandLowWatermark | None = None
        self._issued: pb.CommandTxnsIssued | None = None
        self._brokers: dict[str, BrokerPeer] = {}
        self._transactions: dict[TxnID, _Finishing] = {}
        self._refused_count = 0
        self._stopped = False

    def start(self) -> None:
        """Link to all brokers."""
        for address in self._directory.addresses():
            self._broker(address)

    def stop(self) -> None:
        """Break every link. Nothing is called back afterwards."""
        self._stopped = True
        for broker in self._brokers.values():
            broker.stop()

    async def close(self) -> None:
        """Stop, and wait until that is done."""
        self.stop()
        for broker in self._brokers.values():
            await broker.link.close()

    def finish(self, transaction: Transaction) -> None:
        """Tell the participants of a transaction whose decision is durable.

        Of a commit subscriptions hear when its messages are in place: whoever gets what comes next
        there writes behind them.
        Source: PIP-31, TC Startup, the steps of committing; docs/design/0003-groups.md.
        """
        if self._stopped:
            return
        first = list(transaction.unfinished)
        later: list[Participant] = []
        if transaction.status is TxnStatus.COMMITTING:
            later = [one for one in first if isinstance(one, SubscriptionName)]
            if later and len(later) < len(first):
                first = [one for one in first if not isinstance(one, SubscriptionName)]
            else:
                later = []
        finishing = _Finishing(self._clock.monotonic_ms(), later)
        self._transactions[transaction.txn_id] = finishing
        if not first:
            self._finished(transaction, finishing)
            return
        self._begin(transaction, finishing, first)

    def _begin(
        self, transaction: Transaction, finishing: _Finishing, participants: list[Participant]
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        for participant in participants:
            broker = self._broker(self._address_of(participant))
            end = broker.ends.begin(transaction, participant, now_ms)
            finishing.ends[participant] = broker, end

    def retry(self, txn_id: TxnID) -> None:
        """Ask again at once: something has changed that makes a refusal unlikely."""
        finishing = self._transactions.get(txn_id)
        if finishing is None or self._stopped:
            return
        now_ms = self._clock.monotonic_ms()
        for broker, end in finishing.ends.values():
            broker.ends.send_again(end, now_ms)

    def abort_hanging(self, participant: Participant, body: Any, on_answer: OnAnswer) -> None:
        """Have a broker abort what its coordinator does not hold open; an administrator asks.

        Args:
            on_answer: called once with the answer's name and body; "error" when there is none.
        """
        self._broker(self._address_of(participant)).ask(body, on_answer)

    def tell_watermark(self, watermark: pb.CommandLowWatermark) -> None:
        """Tell every broker that does not know it yet. It must be durable."""
        self._watermark = watermark
        for broker in self._brokers.values():
            broker.watermarks.tell(watermark)

    def tell_issued(self, issued: pb.CommandTxnsIssued, counter_bound: int) -> None:
        """Tell every broker how far TxnIDs are issued.

        Args:
            counter_bound: none is issued beyond it, durably.
        """
        self._issued = issued
        if self._watermark is not None and self._watermark.counter_bound < counter_bound:
            # A broker that comes back hears this word first, and drops what lies beyond its bound.
            word = pb.CommandLowWatermark()
            word.CopyFrom(self._watermark)
            word.counter_bound = counter_bound
            self._watermark = word
        for broker in self._brokers.values():
            broker.link.send(issued, 0)

    # For brokers' peers.

    def answered(self, end: PendingEnd) -> None:
        """A participant has ended its transaction, or is no more."""
        transaction = end.transaction
        finishing = self._transactions[transaction.txn_id]
        del transaction.unfinished[end.participant]
        del finishing.ends[end.participant]
        if finishing.ends:
            return
        if finishing.later:
            later, finishing.later = finishing.later, []
            self._begin(transaction, finishing, later)
        else:
            self._finished(transaction, finishing)

    def refused(self, end: PendingEnd, error: common.ServerError) -> None:
        """A participant refuses: the transaction waits for an administrator."""
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
            end.participant,
            code_name(error.code),
            error.message,
            extra={"txn_id": end.transaction.txn_id, "participant": end.participant},
        )

    def oldest_ms(self) -> float:
        """Age of the oldest decision that is being carried out; 0 when there is none."""
        # In the order in which they were begun.
        oldest = next(iter(self._transactions.values()), None)
        return 0.0 if oldest is None else self._clock.monotonic_ms() - oldest.started_ms

    def issued_now(self) -> pb.CommandTxnsIssued | None:
        return self._issued

    def watermark_now(self) -> pb.CommandLowWatermark | None:
        return self._watermark

    def expelled(self, word: pb.CommandAbortExpelled) -> None:
        self._on_expelled([TxnID.from_wire(one) for one in word.txn_ids])

    def _finished(self, transaction: Transaction, finishing: _Finishing) -> None:
        del self._transactions[transaction.txn_id]
        if finishing.refused:
            self._refused_count -= 1
            self._metrics.incomplete.set(self._refused_count)
        seconds = (self._clock.monotonic_ms() - finishing.started_ms) / 1_000
        self._metrics.finishing_seconds.observe(seconds)
        self._on_finished(transaction.txn_id)

    def _address_of(self, participant: Participant) -> str:
        if isinstance(participant, SubscriptionName):
            return self._directory.address_of(participant.partition_name)
        return self._directory.address_of(participant)

    def _broker(self, address: str) -> BrokerPeer:
        broker = self._brokers.get(address)
        if broker is None:
            broker = BrokerPeer(
                address,
                self,
                self._config,
                self._transport,
                self._clock,
                self._random,
                self._metrics,
            )
            self._brokers[address] = broker
            broker.link.start()
        return broker
