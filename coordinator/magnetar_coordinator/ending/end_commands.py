"""End commands for the participants of a transaction. Pure.

Source: PIP-31, CommandEndTxnOnPartition and CommandEndTxnOnSubscription; rules g and h.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from magnetar_coordinator.metadata.transaction import Participant, Transaction, TxnAction
from magnetar_coordinator.metadata.wire import (
    put_partition,
    put_subscription,
    put_txn_id,
)
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

# A broker ends the participants of a command without a break, and serves no other client meanwhile.
PARTICIPANTS_MAX: Final = 64
# Size of the counts in a command for several participants; those that have more get their own.
COUNTS_BYTES_MAX: Final = 8 << 10

WIRE_ACTION: Final[dict[TxnAction, common.TxnAction]] = {
    TxnAction.COMMIT: common.COMMIT,
    TxnAction.ABORT: common.ABORT,
}

EndCommand: TypeAlias = (
    pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription | pb.CommandEndTxnOnParticipants
)


def portions(
    transaction: Transaction, participants: Iterable[Participant]
) -> Iterator[Sequence[Participant]]:
    """Divide participants that a broker keeps into those that share an end command."""
    counts = transaction.counts or {}
    portion: list[Participant] = []
    size = 0
    for participant in participants:
        its_size = len(counts.get(participant, b""))
        is_full = len(portion) >= PARTICIPANTS_MAX or size + its_size > COUNTS_BYTES_MAX
        if portion and is_full:
            yield portion
            portion, size = [], 0
        portion.append(participant)
        size += its_size
    if portion:
        yield portion


def end_command(transaction: Transaction, participants: Collection[Participant]) -> EndCommand:
    """Build the command that tells participants at a broker of the end of a transaction."""
    command: EndCommand
    if len(participants) > 1:
        command = _of_several(transaction, participants)
    else:
        (participant,) = participants
        command = _of_one(transaction, participant)
    put_txn_id(command.txn_id, transaction.txn_id)
    command.stamp = transaction.stamp
    if transaction.counts is not None:
        command.counts_given = True
    if transaction.selection is not None:
        command.selection_given = True
        command.selected_writer_ids.extend(transaction.selection)
    if transaction.loss_accepted:
        command.loss_accepted = True
    return command


def _of_one(
    transaction: Transaction, participant: Participant
) -> pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription:
    # A participant without a count had nothing confirmed: all its writes are surplus.
    packed = (transaction.counts or {}).get(participant, b"")
    if isinstance(participant, PartitionName):
        command = pb.CommandEndTxnOnPartition(txn_action=WIRE_ACTION[transaction.action])
        put_partition(command.partition, participant)
        command.counts.MergeFrom(pb.PartitionCounts.FromString(packed).producers)
        return command
    acked = pb.CommandEndTxnOnSubscription(txn_action=WIRE_ACTION[transaction.action])
    put_subscription(acked.subscription, participant)
    acked.counts.MergeFrom(pb.SubscriptionCounts.FromString(packed).consumers)
    return acked


def _of_several(
    transaction: Transaction, participants: Collection[Participant]
) -> pb.CommandEndTxnOnParticipants:
    command = pb.CommandEndTxnOnParticipants(txn_action=WIRE_ACTION[transaction.action])
    counts = transaction.counts or {}
    for participant in participants:
        packed = counts.get(participant)
        if isinstance(participant, PartitionName):
            produced = command.partitions.add()
            if packed is None:
                put_partition(produced.partition, participant)
            else:
                produced.MergeFromString(packed)
        else:
            acked = command.subscriptions.add()
            if packed is None:
                put_subscription(acked.subscription, participant)
            else:
                acked.MergeFromString(packed)
    return command


def participant_of(wire: pb.UnfinishedParticipant) -> Participant:
    """Return the participant that an answer names."""
    partition = PartitionName.from_wire(wire.partition)
    if wire.subscription:
        return SubscriptionName(*partition, wire.subscription)
    return partition
