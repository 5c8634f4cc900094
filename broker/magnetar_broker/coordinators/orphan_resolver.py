"""Resolver of orphans: it asks coordinators about open transactions that would never end.

A participant that was never added is not told the end. Each answer to its coordinator's watermark
asks about it, until the coordinator ends it here or knows it.
Source: docs/design/0001-protocol.md, Orphaned participants; docs/protocol/rules.md, rule f.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_broker.environment import Environment
from magnetar_broker.transactions.orphan_candidates import Participant
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import transaction_pb2 as txn_wire


class OrphanResolver:
    """Finds transactions that a broker holds open and that would never end."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def heard(self, known: Iterable[txn_wire.OrphanedParticipant]) -> None:
        """Note that their coordinator knows these participants."""
        for one in known:
            place = _participant(one)
            self._environment.orphan_candidates.known(TxnID.from_wire(one.txn_id), place)

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
        """Return open transactions that the watermark covers: a recovery has to read them, too.

        It reads all rows of former incarnations.
        """
        watermark = self._environment.watermarks.of(tcid)
        return {
            txn_id.counter
            for txn_id, _ in self._environment.orphan_candidates.of(tcid)
            if watermark.covers(txn_id)
        }


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
