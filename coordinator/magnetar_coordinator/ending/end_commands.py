"""End commands for the participants of a transaction. Pure.

Source: PIP-31, CommandEndTxnOnPartition and CommandEndTxnOnSubscription; rules g and h.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeAlias

from magnetar_coordinator.metadata.participant_counts import (
    counts_message,
    with_ledger_id,
    without_counts,
)
from magnetar_coordinator.metadata.transaction import Participant, Transaction, TxnAction
from magnetar_coordinator.metadata.wire import put_txn_id
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.transport.columns.ends import EndOnParticipants
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
    pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription | EndOnParticipants
)


def portions(
    transaction: Transaction, participants: Collection[Participant]
) -> Iterator[Sequence[Participant]]:
    """Divide participants that a broker keeps into those that share an end command."""
    counts = transaction.counts or {}
    if 0 < len(participants) <= PARTICIPANTS_MAX and (
        sum(map(len, counts.values())) <= COUNTS_BYTES_MAX
    ):
        yield tuple(participants)
        return
    portion: list[Participant] = []
    size = 0
    for one in participants:
        its_size = len(counts.get(one, b""))
        is_full = len(portion) >= PARTICIPANTS_MAX or size + its_size > COUNTS_BYTES_MAX
        if portion and is_full:
            yield portion
            portion, size = [], 0
        portion.append(one)
        size += its_size
    if portion:
        yield portion


def end_command(
    transaction: Transaction, participants: Collection[Participant], incarnation: int
) -> EndCommand:
    """Return the command that tells participants at a broker of the end of a transaction.

    Args:
        incarnation: of the coordinator's store.
    """
    counts = transaction.counts or {}
    fields = [counts.get(one) or without_counts(one) for one in participants]
    ledger_ids = transaction.ledger_ids
    if ledger_ids is not None:
        fields = [
            with_ledger_id(one, ledger_ids.get(name, 0))
            for name, one in zip(participants, fields, strict=True)
        ]
    action, selection = WIRE_ACTION[transaction.action], transaction.selection
    if len(participants) > 1:
        return EndOnParticipants(
            transaction.txn_id,
            action,
            fields,
            transaction.counts is not None,
            transaction.stamp,
            incarnation,
            transaction.is_loss_durable,
            None if selection is None else list(selection),
        )
    (participant,) = participants
    message = counts_message(*fields)
    command: pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription
    if isinstance(participant, PartitionName):
        command = pb.CommandEndTxnOnPartition(partition=message.partition, counts=message.producers)
    else:
        command = pb.CommandEndTxnOnSubscription(
            subscription=message.subscription, counts=message.consumers
        )
    put_txn_id(command.txn_id, transaction.txn_id)
    command.txn_action = action
    command.stamp = transaction.stamp
    command.incarnation = incarnation
    command.counts_given = transaction.counts is not None
    command.selection_given = selection is not None
    command.selected_writer_ids.extend(selection or ())
    command.loss_accepted = transaction.is_loss_durable
    command.ledger_id = message.ledger_id
    return command


def participant_of(wire: pb.UnfinishedParticipant) -> Participant:
    """Return the participant that an answer names."""
    partition = PartitionName.from_wire(wire.partition)
    if wire.subscription:
        return SubscriptionName(*partition, wire.subscription)
    return partition
