"""Resolver of orphans: open transactions that nobody else would end are asked about, or dropped.

A participant that was never added hears of no end, and a TxnID that a client invented has none. If
the coordinator can have issued the TxnID, each answer to its watermark asks about it, until the
coordinator ends it here or knows it. If nobody can have issued it, it is dropped without a trace.
Source: docs/design/0001-protocol.md, What nobody else would end; docs/protocol/rules.md, rule f.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from magnetar_broker.environment import Environment
from magnetar_broker.orphan_candidates import Participant
from magnetar_broker.topics import Topics
from magnetar_broker.transaction_index import End
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import transaction_pb2 as txn_wire

log = logging.getLogger(__name__)


class OrphanResolver:
    """Finds transactions that a broker holds open and that nobody else would end."""

    def __init__(self, environment: Environment, topics: Topics) -> None:
        self._environment = environment
        self._topics = topics

    def recovered(self) -> None:
        """Drop transactions of coordinators that this cluster never had: all rows are read."""
        for tcid in self._environment.orphan_candidates.tcids():
            self._drop_unissued(tcid)

    def heard(self, tcid: int, known: Iterable[txn_wire.OrphanedParticipant]) -> None:
        """Note that a coordinator was heard, and that it knows these participants."""
        for one in known:
            place = _participant(one)
            self._environment.orphan_candidates.known(TxnID.from_wire(one.txn_id), place)
        self._drop_unissued(tcid)

    def answer(self, tcid: int) -> txn_wire.CommandLowWatermarkResponse:
        """Build the answer to a watermark: it asks about covered and other orphans.

        It names as many as fit; later answers name the others.
        """
        response = txn_wire.CommandLowWatermarkResponse()
        covers = self._environment.watermarks.covers
        # About an abandoned incarnation only an administrator can know more.
        is_superseded = self._environment.watermarks.is_superseded
        now_ms = self._environment.clock.monotonic_ms()
        for txn_id, participant in self._environment.orphan_candidates.to_ask(
            tcid, now_ms, at_once=covers
        ):
            if covers(txn_id):
                _name(response.orphans.add(), txn_id, participant)
            elif not is_superseded(txn_id):
                _name(response.held.add(), txn_id, participant)
        return response

    def covered(self, tcid: int) -> set[int]:
        """Return open transactions that the watermark covers: a recovery has to read them, too."""
        covers = self._environment.watermarks.covers
        return {
            txn_id.counter
            for txn_id, _ in self._environment.orphan_candidates.of(tcid)
            if covers(txn_id)
        }

    def _drop_unissued(self, tcid: int) -> None:
        for txn_id, participant in self._environment.orphan_candidates.of(tcid):
            if self._environment.issued.cannot_exist(txn_id):
                log.warning(
                    "nobody has issued %s: its writes to %s are dropped",
                    txn_id,
                    participant,
                    extra={"txn_id": txn_id, "participant": participant},
                )
                self._drop(txn_id, participant)

    def _drop(self, txn_id: TxnID, participant: Participant) -> None:
        if isinstance(participant, SubscriptionName):
            partition = self._topics.of(participant.partition_name)
            partition.subscriptions.get(participant.subscription).end(End.dropping(txn_id))
        else:
            self._topics.of(participant).drop(txn_id)


def _participant(wire: txn_wire.OrphanedParticipant) -> Participant:
    partition = PartitionName.from_wire(wire.partition)
    return SubscriptionName(*partition, wire.subscription) if wire.subscription else partition


def _name(
    wire: txn_wire.OrphanedParticipant, txn_id: TxnID, participant: PartitionName | SubscriptionName
) -> None:
    wire.txn_id.most_bits, wire.txn_id.least_bits = txn_id
    wire.partition.topic = participant.topic
    wire.partition.partition = participant.partition
    wire.partition.topic_id = participant.topic_id
    if isinstance(participant, SubscriptionName):
        wire.subscription = participant.subscription
