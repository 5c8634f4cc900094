"""End commands for the participants of a transaction. Pure.

Source: PIP-31, CommandEndTxnOnPartition and CommandEndTxnOnSubscription; rules g and h.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeAlias

from magnetar_coordinator.metadata.transaction import Participant, Transaction, TxnAction
from magnetar_coordinator.metadata.wire import (
    put_counts,
    put_partition,
    put_subscription,
    put_txn_id,
)
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

# A broker ends the participants of a command without a break, and serves no other client meanwhile.
PARTICIPANTS_MAX: Final = 64
# How many writers a command for several participants counts; those that have more get their own.
WRITERS_MAX: Final = 1_000

WIRE_ACTION: Final[dict[TxnAction, common.TxnAction]] = {
    TxnAction.COMMIT: common.COMMIT,
    TxnAction.ABORT: common.ABORT,
}

EndCommand: TypeAlias = (
    pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription | pb.CommandEndTxnOnParticipants
)


def portions(
    transaction: Transaction, participants: Sequence[Participant]
) -> Iterator[Sequence[Participant]]:
    """Divide participants that a broker keeps into those that share an end command."""
    counts = transaction.counts or {}
    portion: list[Participant] = []
    writers = 0
    for participant in participants:
        its_writers = len(counts.get(participant, ()))
        is_full = len(portion) >= PARTICIPANTS_MAX or writers + its_writers > WRITERS_MAX
        if portion and is_full:
            yield portion
            portion, writers = [], 0
        portion.append(participant)
        writers += its_writers
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
    command: pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription
    if isinstance(participant, PartitionName):
        command = pb.CommandEndTxnOnPartition(txn_action=WIRE_ACTION[transaction.action])
        put_partition(command.partition, participant)
    else:
        command = pb.CommandEndTxnOnSubscription(txn_action=WIRE_ACTION[transaction.action])
        put_subscription(command.subscription, participant)
    # A participant without a count had nothing confirmed: all its writes are surplus.
    put_counts(command.counts, (transaction.counts or {}).get(participant, ()))
    return command


def _of_several(
    transaction: Transaction, participants: Collection[Participant]
) -> pb.CommandEndTxnOnParticipants:
    command = pb.CommandEndTxnOnParticipants(txn_action=WIRE_ACTION[transaction.action])
    counts = transaction.counts or {}
    for participant in participants:
        if isinstance(participant, PartitionName):
            produced = command.partitions.add()
            put_partition(produced.partition, participant)
            put_counts(produced.producers, counts.get(participant, ()))
        else:
            acked = command.subscriptions.add()
            put_subscription(acked.subscription, participant)
            put_counts(acked.consumers, counts.get(participant, ()))
    return command


def participant_of(wire: pb.UnfinishedParticipant) -> Participant:
    """Return the participant that an answer names."""
    partition = PartitionName.from_wire(wire.partition)
    if wire.subscription:
        return SubscriptionName(*partition, wire.subscription)
    return partition
