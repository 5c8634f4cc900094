"""Descriptions of transactions for administrators."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_coordinator.metadata.participant_counts import writer_counts
from magnetar_coordinator.metadata.records import WIRE_CAUSE, WIRE_STATUS, TxnEnded
from magnetar_coordinator.metadata.transaction import Participant, Transaction
from magnetar_coordinator.metadata.wire import put_identity, put_named_sequence
from magnetar_coordinator.runtime import Runtime
from magnetar_core.ids import PartitionName
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb


def describe(runtime: Runtime, transaction: Transaction) -> pb.TransactionDescription:
    """Describe a live transaction."""
    named = runtime.named_sequences.of_txn(transaction.txn_id)
    description = pb.TransactionDescription(
        txn_id=transaction.txn_id.to_wire(),
        status=WIRE_STATUS[transaction.status],
        age_ms=max(0, runtime.run_time_ms() - transaction.start_run_time_ms),
        opened_at_ms=transaction.start_time_ms,
        principal=transaction.principal,
        stamp=transaction.stamp,
        trace_id=runtime.trace_id(transaction.txn_id),
    )
    if transaction.txn_owner is not None:
        put_identity(description.identity, *transaction.txn_owner)
    if named is not None:
        put_named_sequence(description.named_sequence, named)
    for participant, error in transaction.unfinished.items():
        description.unfinished.append(_unfinished(participant, error))
    _put_details(description, transaction)
    return description


def describe_outcome(runtime: Runtime, outcome: TxnEnded) -> pb.TransactionDescription:
    """Describe an ended transaction by its outcome."""
    description = pb.TransactionDescription(
        txn_id=outcome.txn_id.to_wire(),
        status=WIRE_STATUS[outcome.status],
        age_ms=max(0, runtime.run_time_ms() - outcome.end_run_time_ms),
        opened_at_ms=outcome.start_time_ms,
        ended_at_ms=outcome.end_time_ms,
        principal=outcome.principal,
        stamp=outcome.stamp,
        trace_id=runtime.trace_id(outcome.txn_id),
    )
    if outcome.txn_owner is not None:
        put_identity(description.identity, *outcome.txn_owner)
    return description


def describe_ended(runtime: Runtime, outcome: TxnEnded) -> pb.TransactionDescription:
    """Describe an ended transaction: by its outcome, and its details if they are kept."""
    description = describe_outcome(runtime, outcome)
    details = runtime.shard.ended_details
    found = details.find(outcome.txn_id)
    if found is not None:
        _put_details(description, found)
        earlier = {one for _, participants in found.ended_earlier or () for one in participants}
        last = [one for one in found.participants if one not in earlier]
        _put_ends(description, last, outcome.end_time_ms)
    elif details.was_dropped(outcome, started_time_ms=runtime.started_time_ms):
        description.details_missing = pb.MANY_ENDED_SINCE
    else:
        description.details_missing = pb.ENDED_BEFORE_START
    return description


def _put_details(description: pb.TransactionDescription, transaction: Transaction) -> None:
    """Fill in the fields that an outcome does not have."""
    description.txn_timeout_ms = transaction.timeout_ms
    description.two_phase_commit = not transaction.expires
    description.decided_at_ms = transaction.decided_time_ms
    description.cause = WIRE_CAUSE[transaction.cause.kind]
    description.caused_by = transaction.cause.caused_by
    client = transaction.client
    if client is not None:
        description.client.name = client.name
        description.client.host = client.host
        description.client.connected = client.is_connected
    for participant in transaction.participants:
        if isinstance(participant, PartitionName):
            description.partitions.append(participant.to_wire())
        else:
            description.subscriptions.append(participant.to_wire())
    for participant, packed in (transaction.counts or {}).items():
        partition, subscription = _place_of(participant)
        count = sum(count for _, count in writer_counts(participant, packed))
        description.confirmed.add(partition=partition, subscription=subscription, count=count)
    for time_ms, participants in transaction.ended_earlier or ():
        _put_ends(description, participants, time_ms)


def _put_ends(
    description: pb.TransactionDescription, participants: Iterable[Participant], time_ms: int
) -> None:
    for participant in participants:
        partition, subscription = _place_of(participant)
        description.ended.add(partition=partition, subscription=subscription, ended_at_ms=time_ms)


def _place_of(participant: Participant) -> tuple[common.Partition, str]:
    """Return a participant's partition, and its subscription; empty: it is the partition."""
    if isinstance(participant, PartitionName):
        return participant.to_wire(), ""
    return participant.partition_name.to_wire(), participant.subscription


def _unfinished(
    participant: Participant, error: common.ServerError | None
) -> pb.UnfinishedParticipant:
    partition, subscription = _place_of(participant)
    return pb.UnfinishedParticipant(partition=partition, subscription=subscription, error=error)
