"""What a coordinator has with one broker: the ends to tell it, the watermark, and what it asks.

Here answers find whoever waits for them.
Source: docs/design/0001-protocol.md, Ends at a participant, and What nobody else would end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, Protocol

from magnetar_coordinator.broker_link import BrokerLink
from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.end_command_sender import GONE_CODES, EndCommandSender, EndListener
from magnetar_coordinator.end_commands import WIRE_ACTION
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_coordinator.orphans import OrphanVerdict
from magnetar_coordinator.transaction import Participant, TxnAction
from magnetar_coordinator.watermark_sender import WatermarkSender
from magnetar_core.clock import Clock
from magnetar_core.errors import LogUnavailable
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.transport import Transport
from magnetar_core.wire import transaction_pb2 as pb

log = logging.getLogger(__name__)

# Takes an answer's name and body.
OnAnswer = Callable[[str, Any], None]


class PeerOwner(EndListener, Protocol):
    """What a broker's peer has to be told, and whom it tells."""

    def watermark_now(self) -> pb.CommandLowWatermark | None: ...

    def issued_now(self) -> pb.CommandTxnsIssued | None: ...

    def judge_orphan(self, txn_id: TxnID, participant: Participant, /) -> OrphanVerdict:
        """What becomes of what the broker holds open."""

    def when_durable(self, call: Callable[[], None], /) -> None:
        """Call back once all that was decided so far is durable."""

    def expelled(self, word: pb.CommandAbortExpelled) -> None: ...


class BrokerPeer:
    """A coordinator's side of its conversation with one broker."""

    def __init__(
        self,
        address: str,
        owner: PeerOwner,
        config: CoordinatorConfig,
        transport: Transport,
        clock: Clock,
        random: Random,
        metrics: CoordinatorMetrics,
    ) -> None:
        self._owner = owner
        self.link = BrokerLink(
            address,
            transport,
            config,
            random,
            on_up=self._on_up,
            on_answer=self._on_answer,
            on_down=self._on_down,
        )
        self.ends = EndCommandSender(self.link, owner, config, clock, random, metrics)
        self.watermarks = WatermarkSender(self.link, self._judge_all)
        self._orphan_ids: dict[int, None] = {}
        # What administrators ask for.
        self._asked: dict[int, OnAnswer] = {}

    def stop(self) -> None:
        self.link.stop()
        self.ends.stop()

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
        asked, self._asked = self._asked, {}
        for on_answer in asked.values():
            self._refuse_asked(on_answer)
        self.ends.link_is_down()

    def _on_answer(self, request_id: int, name: str, body: Any) -> None:
        if self.ends.on_answer(request_id, name, body):
            return
        if name == "abort_expelled":
            self._owner.expelled(body)
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
        if name == "error" and body.code not in GONE_CODES:
            # It is asked about again.
            log.warning("%s does not abort an orphan: %s", self.link.address, body.message)

    def _judge_all(self, held: Iterable[pb.OrphanedParticipant]) -> None:
        """End what nobody else would; say of the rest that it will be told by itself."""
        known: list[pb.OrphanedParticipant] = []
        ended: list[pb.OrphanedParticipant] = []
        for one in held:
            verdict = self._owner.judge_orphan(TxnID.from_wire(one.txn_id), _participant(one))
            if verdict is OrphanVerdict.KNOWN:
                known.append(one)
            elif verdict is OrphanVerdict.END:
                ended.append(one)
        if known or ended:
            # What the verdicts rest on may not be durable yet.
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
