"""A coordinator's relation to a broker: end commands, the watermark, and questions.

Each answer is passed to the part that waits for it.
Source: docs/design/0001-protocol.md, Ends at a participant, and Orphaned participants.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.ending.end_command_sender import GONE_CODES, EndCommandSender
from magnetar_coordinator.ending.end_commands import WIRE_ACTION
from magnetar_coordinator.ending.transaction_traces import TransactionTraces
from magnetar_coordinator.ending.watermark_sender import WatermarkSender
from magnetar_coordinator.metadata.transaction import Participant, TxnAction
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_coordinator.parking import Parking
from magnetar_core.clock import Clock
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.link.broker_link import Answer, BrokerLink
from magnetar_core.link.link_questions import LinkQuestions
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import transaction_pb2 as pb

log = logging.getLogger(__name__)


class Words:
    """The announcements to all brokers: the latest low watermark and issued range."""

    __slots__ = ("issued", "watermark")

    def __init__(self) -> None:
        self.watermark: pb.CommandLowWatermark | None = None
        self.issued: pb.CommandTxnsIssued | None = None


class BrokerPeer:
    """Coordinator's side of its conversation with a broker.

    Args:
        words: what the broker is told whenever the link comes up.
        incarnation: of the coordinator's store.
        on_held: called with this peer, and the transactions that the broker holds open.
        on_expelled: called when the broker asks to abort transactions of expelled group members.
    """

    def __init__(
        self,
        address: str,
        words: Words,
        parking: Parking,
        config: CoordinatorConfig,
        transport: Transport,
        clock: Clock,
        random: Random,
        metrics: CoordinatorMetrics,
        traces: TransactionTraces | None,
        *,
        incarnation: int,
        on_held: Callable[[BrokerPeer, Iterable[pb.OrphanedParticipant]], None],
        on_expelled: Callable[[list[TxnID]], None],
    ) -> None:
        self._words = words
        self._parking = parking
        self._on_expelled = on_expelled
        self.link = BrokerLink(
            address,
            transport,
            config.link_settings(),
            random,
            on_up=self._on_up,
            on_answers=self._on_answers,
            on_down=self._on_down,
        )
        self._incarnation = incarnation
        self.ends = EndCommandSender(
            self.link, config, clock, random, metrics, traces, incarnation=incarnation
        )
        self.watermarks = WatermarkSender(self.link, partial(on_held, self))
        self._orphan_ids: dict[int, None] = {}
        # Of administrators.
        self.questions = LinkQuestions(self.link, f"the broker at {address}")

    def stop(self) -> None:
        """Break the link and stop all timers."""
        self.link.stop()
        self.ends.stop()

    def _on_up(self) -> None:
        watermark, issued = self._words.watermark, self._words.issued
        if watermark is not None:
            self.watermarks.tell(watermark)
        if issued is not None:
            self.link.send(issued, 0)
        self.ends.link_is_up()

    def _on_down(self) -> None:
        self.watermarks.reset()
        self._orphan_ids.clear()
        self.questions.link_is_down()
        self.ends.link_is_down()

    def _on_answers(self, answers: Iterable[Answer]) -> None:
        with self._parking.together():
            for answer in answers:
                # One before it may have stopped the coordinator.
                if self.link.is_up:
                    self._on_answer(*answer)

    def _on_answer(self, request_id: int, name: str, body: Any) -> None:
        if self.ends.on_answer(request_id, name, body):
            return
        if name == "abort_expelled":
            self._on_expelled([TxnID.from_wire(one) for one in body.txn_ids])
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

    def tell_verdicts(
        self, known: list[pb.OrphanedParticipant], ended: list[pb.OrphanedParticipant]
    ) -> None:
        """Tell the broker which transactions are known here, and to end the others.

        The records that the verdicts rest on are durable.
        """
        self.watermarks.add_known(known)
        for one in ended:
            txn_id = TxnID.from_wire(one.txn_id)
            log.info("aborting %s at a participant that the coordinator does not know", txn_id)
            request_id = self.link.next_request_id()
            self._orphan_ids[request_id] = None
            abort = _abort_of(one)
            abort.incarnation = self._incarnation
            self.link.send(abort, request_id)


def participant_held(wire: pb.OrphanedParticipant) -> Participant:
    """Return the participant that holds a transaction open."""
    partition = PartitionName.from_wire(wire.partition)
    return SubscriptionName(*partition, wire.subscription) if wire.subscription else partition


def _abort_of(held: pb.OrphanedParticipant) -> Any:
    participant = participant_held(held)
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
