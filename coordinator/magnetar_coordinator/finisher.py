"""Drives COMMITTING and ABORTING transactions to their end, at every participant.

An end is sent again until it is answered: when nothing comes within a deadline, when the answer is
an error, and at once when a broken link comes back. It starts when the decision is durable, and the
runtime is told when the last participant has answered. Nothing here is stored: after a restart all
participants are asked again, which is harmless.
Source: PIP-31, TC Startup, committing and aborting;
docs/design/0001-protocol.md, Ends at a participant.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from random import Random
from typing import Any

from magnetar_coordinator.backoff import delay_ms
from magnetar_coordinator.broker_link import BrokerLink
from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.directory import BrokerDirectory
from magnetar_coordinator.end_commands import WIRE_ACTION, end_command
from magnetar_coordinator.held import Verdict
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_coordinator.transaction import (
    Participant,
    Transaction,
    TxnAction,
    TxnStatus,
)
from magnetar_coordinator.watermark_sender import WatermarkSender
from magnetar_core.clock import Clock
from magnetar_core.errors import LogUnavailable
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.transport import Transport
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

log = logging.getLogger(__name__)

# Takes an answer's name and body.
OnAnswer = Callable[[str, Any], None]

_SWEEP_SECONDS = 0.1
_ENDED_NAMES = frozenset({"end_txn_on_partition_response", "end_txn_on_subscription_response"})
# The participant is no more, and what it had went with it.
_GONE_CODES = frozenset({common.GONE, common.TOPIC_NOT_FOUND, common.SUBSCRIPTION_NOT_FOUND})
# Only an administrator can help.
_REFUSAL_CODES = frozenset({common.TXN_INCOMPLETE, common.INVALID_TXN_STATE})


class _End:
    """One participant that has not answered yet."""

    __slots__ = ("attempts", "due_ms", "participant", "request_id", "transaction")

    def __init__(self, transaction: Transaction, participant: Participant) -> None:
        self.transaction = transaction
        self.participant = participant
        self.request_id = 0
        self.attempts = 0
        # When it is sent again; None: answered, or waiting for its link.
        self.due_ms: float | None = None

    def is_due(self, now_ms: float) -> bool:
        return self.due_ms is not None and self.due_ms <= now_ms


class _Finishing:
    """One transaction under way.

    Attributes:
        ends: those that have not answered.
        later: participants that are told when these have.
    """

    __slots__ = ("ends", "later", "refused", "started_ms")

    def __init__(self, started_ms: float, later: list[Participant]) -> None:
        self.started_ms = started_ms
        self.ends: dict[Participant, tuple[_Broker, _End]] = {}
        self.later = later
        self.refused = False


class Finisher:
    """All transactions that are being ended.

    Args:
        on_finished: every participant of this transaction has answered.
        judge_held: what becomes of what a broker holds open.
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
        judge_held: Callable[[TxnID, Participant], Verdict],
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
        self.judge_held = judge_held
        self.when_durable = when_durable
        self._on_expelled = on_expelled
        self._watermark: pb.CommandLowWatermark | None = None
        self._issued: pb.CommandTxnsIssued | None = None
        self._brokers: dict[str, _Broker] = {}
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
            end = _End(transaction, participant)
            finishing.ends[participant] = broker, end
            broker.begin(end, now_ms)

    def retry(self, txn_id: TxnID) -> None:
        """Ask again at once: something has changed that makes a refusal unlikely."""
        finishing = self._transactions.get(txn_id)
        if finishing is None or self._stopped:
            return
        now_ms = self._clock.monotonic_ms()
        for broker, end in finishing.ends.values():
            broker.send_again(end, now_ms)

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

    # For _Broker.

    def answered(self, end: _End) -> None:
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

    def refused(self, end: _End, error: common.ServerError) -> None:
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
            common.ErrorCode.Name(error.code),
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

    def _broker(self, address: str) -> _Broker:
        broker = self._brokers.get(address)
        if broker is None:
            broker = _Broker(
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


class _Broker:
    """One broker: its link, and the ends that it has not answered."""

    def __init__(
        self,
        address: str,
        finisher: Finisher,
        config: CoordinatorConfig,
        transport: Transport,
        clock: Clock,
        random: Random,
        metrics: CoordinatorMetrics,
    ) -> None:
        self._finisher = finisher
        self._config = config
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self.link = BrokerLink(
            address,
            transport,
            config,
            random,
            on_up=self._on_up,
            on_answer=self._on_answer,
            on_down=self._on_down,
        )
        self.watermarks = WatermarkSender(self.link, self._judge_all)
        # By request id; an end keeps its id over all attempts, so that any answer serves.
        self._ends: dict[int, _End] = {}
        # Those that were sent once, in order of time: most are answered, and leave at once.
        self._first: dict[int, _End] = {}
        # The others. Entries whose end has another due_ms by now are passed over.
        self._later: list[tuple[float, int, _End]] = []
        self._orphan_ids: dict[int, None] = {}
        # What administrators ask for.
        self._asked: dict[int, OnAnswer] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        self.link.stop()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def begin(self, end: _End, now_ms: float) -> None:
        end.request_id = self.link.next_request_id()
        self._ends[end.request_id] = end
        if not self.link.is_up:
            return
        self._send(end)
        end.due_ms = now_ms + self._config.answer_deadline_ms
        self._first[end.request_id] = end
        self._sweep_later()

    def ask(self, body: Any, on_answer: OnAnswer) -> None:
        if not self.link.is_up:
            self._refuse_asked(on_answer)
            return
        request_id = self.link.next_request_id()
        self._asked[request_id] = on_answer
        self.link.send(body, request_id)

    def _refuse_asked(self, on_answer: OnAnswer) -> None:
        error = LogUnavailable(f"the broker at {self.link.address} is away; ask again")
        on_answer("error", error.to_wire())

    def send_again(self, end: _End, now_ms: float) -> None:
        if not self.link.is_up:
            return
        self._metrics.repeated.inc()
        self._first.pop(end.request_id, None)
        self._send(end)
        self._due_later(end, now_ms + self._config.answer_deadline_ms + self._delay_ms(end))

    def _send(self, end: _End) -> None:
        self.link.send(end_command(end.transaction, end.participant), end.request_id)

    def _due_later(self, end: _End, due_ms: float) -> None:
        end.due_ms = due_ms
        heapq.heappush(self._later, (due_ms, end.request_id, end))
        self._sweep_later()

    def _delay_ms(self, end: _End) -> float:
        config = self._config
        wait_ms = delay_ms(
            end.attempts, config.retry_delay_ms_min, config.retry_delay_ms_max, self._random
        )
        end.attempts += 1
        return wait_ms

    def _on_up(self) -> None:
        watermark = self._finisher.watermark_now()
        if watermark is not None:
            self.watermarks.tell(watermark)
        issued = self._finisher.issued_now()
        if issued is not None:
            self.link.send(issued, 0)
        now_ms = self._clock.monotonic_ms()
        for end in self._ends.values():
            end.attempts = 0
            self._send(end)
            self._due_later(end, now_ms + self._config.answer_deadline_ms)

    def _on_down(self) -> None:
        self.watermarks.reset()
        self._orphan_ids.clear()
        asked, self._asked = self._asked, {}
        for on_answer in asked.values():
            self._refuse_asked(on_answer)
        self._first.clear()
        self._later.clear()
        for end in self._ends.values():
            end.due_ms = None

    def _on_answer(self, request_id: int, name: str, body: Any) -> None:
        end = self._ends.get(request_id)
        if end is None:
            self._on_other_answer(request_id, name, body)
        elif name in _ENDED_NAMES or (name == "error" and body.code in _GONE_CODES):
            del self._ends[request_id]
            self._first.pop(request_id, None)
            end.due_ms = None
            self._finisher.answered(end)
        elif name == "error":
            self._on_error(end, body)

    def _on_error(self, end: _End, error: common.ServerError) -> None:
        text = f"{common.ErrorCode.Name(error.code)}: {error.message}"
        end.transaction.unfinished[end.participant] = text
        self._first.pop(end.request_id, None)
        now_ms = self._clock.monotonic_ms()
        if error.code in _REFUSAL_CODES:
            self._finisher.refused(end, error)
            self._due_later(end, now_ms + self._config.refused_retry_delay_ms)
        else:
            self._due_later(end, now_ms + self._delay_ms(end))

    def _on_other_answer(self, request_id: int, name: str, body: Any) -> None:
        if name == "abort_expelled":
            self._finisher.expelled(body)
            return
        if self.watermarks.on_answer(request_id, name, body):
            return
        on_answer = self._asked.pop(request_id, None)
        if on_answer is not None:
            on_answer(name, body)
            return
        if request_id not in self._orphan_ids:
            return  # A second answer to what was asked twice.
        del self._orphan_ids[request_id]
        if name == "error" and body.code not in _GONE_CODES:
            # It is asked about again.
            log.warning("%s does not abort an orphan: %s", self.link.address, body.message)

    def _judge_all(self, held: Iterable[pb.OrphanedParticipant]) -> None:
        """End what nobody else would; say of the rest that it will be told by itself."""
        known: list[pb.OrphanedParticipant] = []
        ended: list[pb.OrphanedParticipant] = []
        for one in held:
            verdict = self._finisher.judge_held(TxnID.from_wire(one.txn_id), _participant(one))
            if verdict is Verdict.KNOWN:
                known.append(one)
            elif verdict is Verdict.END:
                ended.append(one)
        if known or ended:
            # What the verdicts rest on may not be durable yet.
            self._finisher.when_durable(partial(self._tell_verdicts, known, ended))

    def _tell_verdicts(
        self, known: list[pb.OrphanedParticipant], ended: list[pb.OrphanedParticipant]
    ) -> None:
        self.watermarks.add_known(known)
        for one in ended:
            txn_id = TxnID.from_wire(one.txn_id)
            log.info("aborting %s at a participant that nobody else will tell", txn_id)
            request_id = self.link.next_request_id()
            self._orphan_ids[request_id] = None
            self.link.send(_abort_of(one), request_id)

    def _sweep_later(self) -> None:
        if self._sweep_timer is None:
            loop = asyncio.get_running_loop()
            self._sweep_timer = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Send again what is due."""
        self._sweep_timer = None
        now_ms = self._clock.monotonic_ms()
        for end in list(takewhile(lambda one: one.is_due(now_ms), self._first.values())):
            self.send_again(end, now_ms)
        later = self._later
        while later and (later[0][0] <= now_ms or later[0][2].due_ms is None):
            due_ms, _, end = heapq.heappop(later)
            if end.due_ms == due_ms:
                self.send_again(end, now_ms)
        if self._first or later:
            self._sweep_later()


def _participant(wire: pb.OrphanedParticipant) -> Participant:
    partition = PartitionName.from_wire(wire.partition)
    return SubscriptionName(*partition, wire.subscription) if wire.subscription else partition


def _abort_of(held: pb.OrphanedParticipant) -> Any:
    participant = _participant(held)
    if isinstance(participant, SubscriptionName):
        return pb.CommandEndTxnOnSubscription(
            txn_id=held.txn_id,
            subscription=participant.to_wire(),
            txn_action=WIRE_ACTION[TxnAction.ABORT],
        )
    return pb.CommandEndTxnOnPartition(
        txn_id=held.txn_id,
        partition=held.partition,
        txn_action=WIRE_ACTION[TxnAction.ABORT],
    )
