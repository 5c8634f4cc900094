"""A coordinator's relation to a broker: end commands, the watermark, and questions.

Each answer is passed to the part that waits for it.
Source: docs/design/0001-protocol.md, Ends at a participant, and Orphaned participants.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, Protocol

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.ending.end_command_sender import GONE_CODES, EndCommandSender, EndListener
from magnetar_coordinator.ending.end_commands import WIRE_ACTION
from magnetar_coordinator.ending.transaction_traces import TransactionTraces
from magnetar_coordinator.ending.watermark_sender import WatermarkSender
from magnetar_coordinator.metadata.transaction import Participant, TxnAction
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_coordinator.transactions.orphans import OrphanVerdict
from magnetar_core.clock import Clock
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.link.broker_link import BrokerLink
from magnetar_core.link.link_questions import LinkQuestions
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import transaction_pb2 as pb

log = logging.getLogger(__name__)


class PeerOwner(EndListener, Protocol):
    """Owner of a broker's peer: it provides announcements, and listens to the broker."""

    def watermark_now(self) -> pb.CommandLowWatermark | None:
        """Return the latest low watermark, if any."""

    def issued_now(self) -> pb.CommandTxnsIssued | None:
        """Return the latest range of issued TxnIDs, if any."""

    def judge_orphan(self, txn_id: TxnID, participant: Participant, /) -> OrphanVerdict:
        """Decide about a transaction that the broker holds open at a participant."""

    def when_durable(self, call: Callable[[], None], /) -> None:
        """Call back when all decisions so far are durable."""

    def expelled(self, word: pb.CommandAbortExpelled) -> None:
        """Take a broker's request to abort transactions of expelled group members."""


class BrokerPeer:
    """Coordinator's side of its conversation with a broker."""

    def __init__(
        self,
        address: str,
        owner: PeerOwner,
        config: CoordinatorConfig,
        transport: Transport,
        clock: Clock,
        random: Random,
        metrics: CoordinatorMetrics,
        traces: TransactionTraces | None = None,
    ) -> None:
        self._owner = owner
        self.link = BrokerLink(
            address,
            transport,
            config.link_settings(),
            random,
            on_up=self._on_up,
            on_answer=self._on_answer,
            on_down=self._on_down,
        )
        self.ends = EndCommandSender(self.link, owner, config, clock, random, metrics, traces)
        self.watermarks = WatermarkSender(self.link, self._judge_all)
        self._orphan_ids: dict[int, None] = {}
        # Of administrators.
        self.questions = LinkQuestions(self.link, f"the broker at {address}")

    def stop(self) -> None:
        """Break the link and stop all timers."""
        self.link.stop()
        self.ends.stop()

    def _on_up(self) -> None:
        watermark = self._owner.watermark_now()
        if watermark is not None:
            self.watermarks.tell(watermark)
        issued = self._owner.issued_now()
        if issued is not None:
            self.link.send(issued, 0)
        self.ends.link_is_up()

    def _on_down(self) -> None:
        self.watermarks.reset()
        self._orphan_ids.clear()
        self.questions.link_is_down()
        self.ends.link_is_down()

    def _on_answer(self, request_id: int, name: str, body: Any) -> None:
        if self.ends.on_answer(request_id, name, body):
            return
        if name == "abort_expelled":
            self._owner.expelled(body)
            return
        if self.watermarks.on_answer(request_id, name, body):
            return
        if self.questions.on_answer(request_id, name, body):
            return
        if request_id not in self._orphan_ids:
            return  # A second answer to a repeated request.
        del self._orphan_ids[request_id]
        if name == "error" and body.code not in GONE_CODES:
            # The broker will ask again.
            log.warning("%s does not abort an orphan: %s", self.link.address, body.message)

    def _judge_all(self, held: Iterable[pb.OrphanedParticipant]) -> None:
        """End the orphans among these; tell the broker which transactions are known here."""
        known: list[pb.OrphanedParticipant] = []
        ended: list[pb.OrphanedParticipant] = []
        for one in held:
            verdict = self._owner.judge_orphan(TxnID.from_wire(one.txn_id), _participant(one))
            if verdict is OrphanVerdict.KNOWN:
                known.append(one)
            elif verdict is OrphanVerdict.END:
                ended.append(one)
        if known or ended:
            # The records that the verdicts rest on may not be durable yet.
            self._owner.when_durable(partial(self._tell_verdicts, known, ended))

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
