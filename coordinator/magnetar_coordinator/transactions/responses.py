"""Responses of the coordinator, built in a single place. Pure."""

from __future__ import annotations

from magnetar_coordinator.metadata import transactional_id as rules
from magnetar_coordinator.metadata.named_sequences import NamedSequenceState
from magnetar_coordinator.metadata.records import WIRE_STATE, WIRE_STATUS
from magnetar_coordinator.metadata.transaction import TxnAction, TxnStatus
from magnetar_coordinator.metadata.transactional_id import TransactionalIdMetadata
from magnetar_coordinator.metadata.wire import put_identity, put_name, put_txn_id
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.ids import TxnID
from magnetar_core.transport.columns.end_txns import Ended
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb


def partitions_added(txn_id: TxnID) -> pb.CommandAddPartitionToTxnResponse:
    """Build the response to AddPartitionToTxn."""
    response = pb.CommandAddPartitionToTxnResponse()
    put_txn_id(response.txn_id, txn_id)
    return response


def subscriptions_added(txn_id: TxnID) -> pb.CommandAddSubscriptionToTxnResponse:
    """Build the response to AddSubscriptionToTxn."""
    response = pb.CommandAddSubscriptionToTxnResponse()
    put_txn_id(response.txn_id, txn_id)
    return response


def ended(
    txn_id: TxnID | None,
    status: TxnStatus,
    identity: TransactionalIdMetadata | None,
    stamp: int = NO_STAMP,
) -> Ended:
    """Build the response to EndTxn.

    With a transactional id, it has the pair for the next transaction.

    Args:
        identity: the transactional id whose latest transaction it is, if any.
        stamp: of a commit.
    """
    following: common.ProducerIdentity | None = None
    if identity is not None:
        following = common.ProducerIdentity()
        put_identity(following, identity.transactional_id, identity.current)
    return Ended(txn_id, WIRE_STATUS[status], stamp, following)


def ended_before(identity: TransactionalIdMetadata, stamp: int) -> Ended:
    """Build the response to an EndTxn of a complete transaction, or of no transaction.

    Args:
        stamp: no commit so far has a higher one. The transaction's own stamp is not kept here.
    """
    action = rules.ACTION_OF_STATE[identity.state]
    if action is TxnAction.COMMIT:
        return ended(identity.txn_id, TxnStatus.COMMITTED, identity, stamp)
    return ended(identity.txn_id, TxnStatus.ABORTED, identity)


def taken_over(identity: TransactionalIdMetadata) -> pb.CommandInitProducerResponse:
    """Build the response to InitProducer."""
    producer_id, epoch = identity.current
    ongoing = identity.producer if identity.is_kept else rules.NO_PAIR
    response = pb.CommandInitProducerResponse(
        producer_id=producer_id,
        producer_epoch=epoch,
        ongoing_producer_id=ongoing.producer_id,
        ongoing_producer_epoch=ongoing.epoch,
    )
    if identity.is_kept and identity.txn_id is not None:
        put_txn_id(response.ongoing_txn_id, identity.txn_id)
    return response


def described_identity(identity: TransactionalIdMetadata) -> pb.TransactionalIdDescription:
    """Describe a transactional id: the five fields of KIP-939, and related ones."""
    description = pb.TransactionalIdDescription(
        transactional_id=identity.transactional_id,
        state=WIRE_STATE[identity.state],
        producer_id=identity.producer.producer_id,
        producer_epoch=identity.producer.epoch,
        prev_producer_id=identity.prev.producer_id,
        next_producer_id=identity.next.producer_id,
        next_producer_epoch=identity.next.epoch,
        txn_timeout_ms=identity.timeout_ms,
        two_phase_commit=identity.two_phase_commit,
    )
    if identity.txn_id is not None:
        put_txn_id(description.txn_id, identity.txn_id)
    return description


def described_name(name: NamedSequenceState) -> pb.CommandDescribeNameResponse:
    """Build the response to DescribeName."""
    response = pb.CommandDescribeNameResponse()
    put_name(response, name)
    return response
