"""Descriptions of transactions for administrators. Pure."""

from __future__ import annotations

from magnetar_coordinator.metadata.named_sequences import NamedSequence
from magnetar_coordinator.metadata.records import WIRE_STATUS, TxnEnded
from magnetar_coordinator.metadata.transaction import (
    Participant,
    Transaction,
    TransactionClient,
)
from magnetar_coordinator.metadata.wire import put_identity, put_named_sequence
from magnetar_core.ids import PartitionName
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb


def describe(
    transaction: Transaction,
    named: NamedSequence | None,
    client: TransactionClient | None,
    *,
    run_time_ms: int,
) -> pb.TransactionDescription:
    """Describe a live transaction."""
    description = pb.TransactionDescription(
        txn_id=transaction.txn_id.to_wire(),
        status=WIRE_STATUS[transaction.status],
        txn_timeout_ms=transaction.timeout_ms,
        age_ms=max(0, run_time_ms - transaction.start_run_time_ms),
        opened_at_ms=transaction.start_time_ms,
        two_phase_commit=not transaction.expires,
        principal=transaction.principal,
        stamp=transaction.stamp,
    )
    if transaction.txn_owner is not None:
        put_identity(description.identity, *transaction.txn_owner)
    if client is not None:
        description.client.name = client.name
        # gRPC says "ipv4:10.0.0.7".
        description.client.host = client.host.removeprefix("ipv4:").removeprefix("ipv6:")
        description.client.connected = client.is_connected
    if named is not None:
        put_named_sequence(description.named_sequence, named)
    for participant in transaction.participants:
        if isinstance(participant, PartitionName):
            description.partitions.append(participant.to_wire())
        else:
            description.subscriptions.append(participant.to_wire())
    for participant, error in transaction.unfinished.items():
        description.unfinished.append(_unfinished(participant, error))
    return description


def describe_outcome(outcome: TxnEnded, *, run_time_ms: int) -> pb.TransactionDescription:
    """Describe an ended transaction by its outcome: nothing else of it is kept."""
    description = pb.TransactionDescription(
        txn_id=outcome.txn_id.to_wire(),
        status=WIRE_STATUS[outcome.status],
        age_ms=max(0, run_time_ms - outcome.end_run_time_ms),
        opened_at_ms=outcome.start_time_ms,
        ended_at_ms=outcome.end_time_ms,
        principal=outcome.principal,
        stamp=outcome.stamp,
    )
    if outcome.txn_owner is not None:
        put_identity(description.identity, *outcome.txn_owner)
    return description


def _unfinished(
    participant: Participant, error: common.ServerError | None
) -> pb.UnfinishedParticipant:
    if isinstance(participant, PartitionName):
        return pb.UnfinishedParticipant(partition=participant.to_wire(), error=error)
    return pb.UnfinishedParticipant(
        partition=participant.partition_name.to_wire(),
        subscription=participant.subscription,
        error=error,
    )
