"""The links to all brokers, and the announcements that go to all brokers.

These are the low watermark, the issued range of TxnIDs, and verdicts about orphans. None is sent
before the records that it rests on are durable.
Source: docs/design/0001-protocol.md, Low watermark, Orphaned participants; rules c and f.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.ending.broker_peer import BrokerPeer, Words, participant_held
from magnetar_coordinator.ending.broker_placement import BrokerPlacement
from magnetar_coordinator.ending.transaction_traces import TransactionTraces
from magnetar_coordinator.metadata.transaction import Participant
from magnetar_coordinator.metadata_store import TransactionMetadataStore
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_coordinator.parking import Parking
from magnetar_coordinator.transactions.orphans import OrphanVerdict, judge
from magnetar_coordinator.transactions.shard import Shard
from magnetar_core.clock import Clock
from magnetar_core.history.events import WatermarkAnnounced
from magnetar_core.history.history import History
from magnetar_core.ids import TxnID
from magnetar_core.link.link_questions import OnAnswer
from magnetar_core.process.run_time import RunTime
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import transaction_pb2 as pb

log = logging.getLogger(__name__)


class Brokers:
    """All brokers, by address.

    Args:
        on_expelled: called when a broker asks to abort transactions of expelled group members.
        traces: makes the spans of ends; None: there are none.
        history: notes the watermarks that leave; None: there is none.
    Attributes:
        placement: the broker of each participant.
        is_stopped: nothing is sent any longer.
    """

    _shard: Shard
    _metadata: TransactionMetadataStore
    _run_time: RunTime

    def __init__(
        self,
        config: CoordinatorConfig,
        parking: Parking,
        transport: Transport,
        clock: Clock,
        random: Random,
        metrics: CoordinatorMetrics,
        *,
        on_expelled: Callable[[list[TxnID]], None],
        traces: TransactionTraces | None = None,
        history: History | None = None,
    ) -> None:
        self._history = history
        self._config = config
        self._parking = parking
        self._transport = transport
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._on_expelled = on_expelled
        self._traces = traces
        self.placement = BrokerPlacement(config.broker_addresses)
        self.is_stopped = False
        self._peers: dict[str, BrokerPeer] = {}
        self._words = Words()
        self._telling_issued = False
        # Answers with new TxnIDs, which leave behind the announcement of these.
        self._answers: list[Callable[[], None]] = []
        # Brokers are not told of a counter beyond this bound.
        self._durable_bound = 0

    def __getitem__(self, address: str) -> BrokerPeer:
        """Return the broker at an address; the first time, connect to it."""
        peer = self._peers.get(address)
        if peer is None:
            peer = BrokerPeer(
                address,
                self._words,
                self._parking,
                self._config,
                self._transport,
                self._clock,
                self._random,
                self._metrics,
                self._traces,
                incarnation=self._shard.incarnation,
                on_held=self._judge_all,
                on_expelled=self._on_expelled,
            )
            self._peers[address] = peer
            peer.link.start()
        return peer

    def at(self, participant: Participant) -> BrokerPeer:
        """Return the broker that has a participant."""
        return self[self.placement.address_of(participant)]

    def start(self, shard: Shard, metadata: TransactionMetadataStore, run_time: RunTime) -> None:
        """Connect to all brokers, since the store is read: its present bound is durable."""
        self._shard, self._metadata, self._run_time = shard, metadata, run_time
        self._durable_bound = metadata.counter_bound
        for address in self.placement.addresses():
            self[address]

    def stop(self) -> None:
        """Break every link. No callback runs afterwards."""
        self.is_stopped = True
        for peer in self._peers.values():
            peer.stop()

    async def close(self) -> None:
        """Stop, and wait until all links have ended."""
        self.stop()
        for peer in self._peers.values():
            await peer.link.close()

    def abort_hanging(self, participant: Participant, body: Any, on_answer: OnAnswer) -> None:
        """Ask a broker to abort a hanging transaction, on behalf of an administrator.

        Args:
            on_answer: called once with the answer's name and body; "error" when there is none.
        """
        self.at(participant).questions.ask(body, on_answer)

    # The low watermark.

    def advance_watermark(self) -> None:
        """Tell brokers up to where transactions have ended."""
        shard, metadata = self._shard, self._metadata
        watermark = shard.watermark.advance(self._run_time.now_ms())
        metadata.reserve(shard.next_counter)
        command = pb.CommandLowWatermark(
            tcid=self._config.tcid,
            incarnation=shard.incarnation,
            low_watermark=watermark.low_watermark,
            live=[pb.TxnRange(first=first, last=last) for first, last in watermark.live],
            counter_bound=metadata.counter_bound,
            next_counter=shard.next_counter,
            store_token=metadata.store_token,
        )
        tell = partial(self._tell_watermark, command)
        self._parking.when_durable(tell)

    def _tell_watermark(self, command: pb.CommandLowWatermark) -> None:
        self._durable_bound = max(self._durable_bound, command.counter_bound)
        if self._history is not None:
            live = tuple((one.first, one.last) for one in command.live)
            announced = command.incarnation, command.low_watermark, live, command.next_counter
            self._history.note(WatermarkAnnounced(*announced))
        self._words.watermark = command
        for peer in self._peers.values():
            peer.watermarks.tell(command)

    # The issued range.

    def tell_issued_soon(self) -> None:
        """Tell brokers of new TxnIDs at the end of this turn, before any client receives them.

        If such TxnIDs are lost before they are durable, they are not issued again: a restart
        skips them.
        """
        if not self._telling_issued:
            self._telling_issued = True
            asyncio.get_running_loop().call_soon(self._tell_issued)

    def when_told(self, answer: Callable[[], None]) -> None:
        """Call back when brokers are told of all TxnIDs issued so far.

        Then a bound ahead of these TxnIDs is durable, their records perhaps not. No store issues
        them again, and one that has lost their records says that they are aborted.
        """
        self._answers.append(answer)
        self.tell_issued_soon()

    def _tell_issued(self) -> None:
        self._telling_issued = False
        next_counter, counter_bound = self._shard.next_counter, self._metadata.counter_bound
        answers, self._answers = self._answers, []
        if next_counter <= self._durable_bound:
            self._announce(next_counter, self._durable_bound, answers)
        else:
            # A bound that is lost before it is durable would be issued again.
            announce = partial(self._announce, next_counter, counter_bound, answers)
            self._parking.when_durable(announce)

    def _announce(
        self, next_counter: int, counter_bound: int, answers: list[Callable[[], None]]
    ) -> None:
        self._durable_bound = max(self._durable_bound, counter_bound)
        issued = pb.CommandTxnsIssued(
            tcid=self._config.tcid,
            incarnation=self._shard.incarnation,
            next_counter=next_counter,
        )
        self._words.issued = issued
        watermark = self._words.watermark
        if watermark is not None and watermark.counter_bound < self._durable_bound:
            # A broker that reconnects is told this first, and drops transactions beyond the bound.
            word = pb.CommandLowWatermark()
            word.CopyFrom(watermark)
            word.counter_bound = self._durable_bound
            self._words.watermark = word
        for peer in self._peers.values():
            peer.link.send(issued, 0)
        for answer in answers:
            answer()

    # Orphans.

    def _judge_all(self, peer: BrokerPeer, held: Iterable[pb.OrphanedParticipant]) -> None:
        """End the orphans among these; tell the broker which transactions are known here."""
        known: list[pb.OrphanedParticipant] = []
        ended: list[pb.OrphanedParticipant] = []
        for one in held:
            txn_id = TxnID.from_wire(one.txn_id)
            self.pass_over(txn_id)
            verdict = judge(self._shard, txn_id, participant_held(one))
            if verdict is OrphanVerdict.KNOWN:
                known.append(one)
            elif verdict is OrphanVerdict.END:
                ended.append(one)
        if known or ended:
            # The records that the verdicts rest on may not be durable yet.
            tell = partial(peer.tell_verdicts, known, ended)
            self._parking.when_durable(tell)

    def pass_over(self, txn_id: TxnID) -> None:
        """Never issue a TxnID that a client invented, if brokers may believe that it is issued."""
        shard = self._shard
        if shard.is_issued(txn_id) or not shard.is_own(txn_id):
            return
        if txn_id.counter < self._metadata.counter_bound:
            log.warning("transaction %s was invented by a client: it will never be issued", txn_id)
            shard.skip(txn_id)
            # At once: the next TxnID may lie close to the bound, or beyond it.
            self.advance_watermark()
