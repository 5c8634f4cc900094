"""The outcome of a transaction that a database names, as its coordinator knows it.

The database decides how a prepared transaction ends: it stores the state of the transaction
together with its rows. If the transaction was aborted nevertheless, the database has the rows, and
the topics do not have the messages.
Source: KIP-939, Motivation, Recovery recipe; docs/design/0002-two-phase-commit.md.
"""

from __future__ import annotations

from magnetar.enums import TransactionStatus
from magnetar.link.cluster import Cluster
from magnetar.transactions.producer_identity import PreparedTxnState, ProducerIdentity
from magnetar_core.errors import (
    DataLoss,
    InvalidArgument,
    InvalidTxnState,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import transaction_pb2

_ABORTED = (TransactionStatus.ABORTING, TransactionStatus.ABORTED)


async def outcome_of_prepared(
    cluster: Cluster, transactional_id: str, prepared: PreparedTxnState
) -> TransactionStatus:
    """Ask for the status of a transaction that a database has committed.

    Args:
        prepared: the state in the database; not the empty state.
    Returns:
        OPEN, COMMITTING or COMMITTED.
    Raises:
        DataLoss: it was aborted: the database and the topics disagree.
        InvalidArgument: the state is not of a transaction of this transactional id.
        InvalidTxnState: it is open, and not in two-phase commit: it was never prepared.
        TxnForgotten: its coordinator no longer knows it: the outcome is unknown.
        TxnNotFound: no coordinator of this cluster has issued its TxnID.
    """
    assert prepared.txn_id is not None
    coordinator = await cluster.coordinator_of(prepared.txn_id)
    try:
        reply = await coordinator.request(
            transaction_pb2.CommandDescribeTxn(txn_id=prepared.txn_id.to_wire())
        )
    except TxnForgotten:
        raise TxnForgotten(
            f"its coordinator no longer knows {prepared.txn_id}, so it is unknown whether it was"
            " committed: it ended long ago, or the cluster was restored from an older backup. If in"
            " doubt, look for its messages in the topics"
        ) from None
    except TxnNotFound:
        raise TxnNotFound(
            f"no coordinator of this cluster has opened {prepared.txn_id}: the state {prepared} is"
            " of another cluster, or the data of this cluster was removed since. If that is meant,"
            " set the state in the database's table to an empty text"
        ) from None
    cluster.runtime.saw(reply.transaction.stamp)
    return judge(transactional_id, prepared, reply.transaction)


def judge(
    transactional_id: str,
    prepared: PreparedTxnState,
    found: transaction_pb2.TransactionDescription,
) -> TransactionStatus:
    """Compare a state in a database with what the coordinator says of the transaction.

    Raises:
        DataLoss, InvalidArgument, InvalidTxnState: as outcome_of_prepared.
    """
    status = TransactionStatus(found.status)
    if found.HasField("identity"):
        identity = ProducerIdentity.from_wire(found.identity)
        named = PreparedTxnState.of(identity, TxnID.from_wire(found.txn_id))
        if identity.transactional_id != transactional_id:
            raise InvalidArgument(
                f"the state {prepared} is of {identity.transactional_id!r} in this cluster, not of"
                f" {transactional_id!r}: correct the id, or the state"
            )
        if named != prepared:
            raise InvalidArgument(
                f"the state {prepared} is wrong: that of {named.txn_id} is {named}"
            )
    elif status not in _ABORTED:
        # A coordinator that has lost the record of a transaction describes it as ABORTED, without
        # an identity.
        raise InvalidArgument(f"{prepared.txn_id} is not of {transactional_id!r}")
    if status in _ABORTED:
        raise DataLoss(
            f"{prepared.txn_id} of {transactional_id!r} was aborted: its messages are discarded. A"
            f" database whose table has {prepared} has committed the rows, so database and topics"
            " disagree. Send the messages again, or remove the rows; then set the state in the"
            " table to an empty text"
        )
    if status is TransactionStatus.OPEN and not found.two_phase_commit:
        raise InvalidTxnState(
            f"{prepared.txn_id} of {transactional_id!r} is open, and not in two-phase commit: its"
            " producer cannot have prepared it"
        )
    return status
