"""End commands for the participants of a transaction. Pure.

Source: PIP-31, CommandEndTxnOnPartition and CommandEndTxnOnSubscription; rules g and h.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from magnetar_coordinator.transaction import Participant, Transaction, TxnAction
from magnetar_coordinator.wire import put_counts, put_partition, put_subscription, put_txn_id
from magnetar_core.ids import PartitionName
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

WIRE_ACTION: Final[dict[TxnAction, common.TxnAction]] = {
    TxnAction.COMMIT: common.COMMIT,
    TxnAction.ABORT: common.ABORT,
}

EndCommand: TypeAlias = pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription


def end_command(transaction: Transaction, participant: Participant) -> EndCommand:
    """Build the command that tells a participant of the end of a transaction."""
    command: EndCommand
    if isinstance(participant, PartitionName):
        command = pb.CommandEndTxnOnPartition(txn_action=WIRE_ACTION[transaction.action])
        put_partition(command.partition, participant)
    else:
        command = pb.CommandEndTxnOnSubscription(txn_action=WIRE_ACTION[transaction.action])
        put_subscription(command.subscription, participant)
    put_txn_id(command.txn_id, transaction.txn_id)
    if transaction.counts is not None:
        command.counts_given = True
        # A participant without a count had nothing confirmed: all its writes are surplus.
        put_counts(command.counts, transaction.counts.get(participant, ()))
    if transaction.selection is not None:
        command.selection_given = True
        command.selected_writer_ids.extend(transaction.selection)
    if transaction.loss_accepted:
        command.loss_accepted = True
    return command
