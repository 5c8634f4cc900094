"""Findings of a broker in its store when it starts, for the history of the protocol."""

from __future__ import annotations

from magnetar_broker.dispatch.acknowledgements import Acknowledgements
from magnetar_broker.topics.topics import Topics
from magnetar_broker.transactions.transaction_index import Outcome, TransactionIndex
from magnetar_broker.transactions.watermark import Watermarks
from magnetar_core.history.events import (
    BrokerRecovered,
    CursorFound,
    EndedTransaction,
    HeldTransaction,
    HeldWriter,
    ParticipantFound,
    WatermarkFound,
)
from magnetar_core.history.history import History
from magnetar_core.ids import SubscriptionName


def note_found(history: History, topics: Topics, watermarks: Watermarks, *, losses: int) -> None:
    """Note all participants and watermarks, and that the broker has recovered.

    Args:
        losses: how many losses of the store were accepted.
    """
    for tcid, watermark in watermarks.known():
        for _, former in sorted(watermarks.former(tcid).items()):
            history.note(WatermarkFound(tcid, *former.coverage))
        history.note(WatermarkFound(tcid, *watermark.coverage))
    for partition in topics.partitions():
        log = partition.log
        history.note(_found(partition.index, True, log.first_offset, log.end_offset))
        for subscription in partition.subscriptions:
            history.note(_found(subscription.index, True))
            history.note(_cursor(subscription.name, subscription.cursor))
        for absent in partition.subscriptions.absent():
            history.note(_found(absent.index, False))
    history.note(BrokerRecovered(losses))


def _found(
    index: TransactionIndex, exists: bool, first_offset: int = 0, end_offset: int = 0
) -> ParticipantFound:
    held = tuple(
        HeldTransaction(
            txn_id,
            tuple(
                HeldWriter(one.writer_id, one.next_index, one.follows)
                for one in transaction.writers.values()
            ),
        )
        for txn_id, transaction in index.open.items()
    )
    ended = tuple(
        EndedTransaction(txn_id, one.outcome is Outcome.COMMITTED, one.follows)
        for txn_id, one in index.ended.items()
    )
    return ParticipantFound(index.name, exists, first_offset, end_offset, held, ended)


def _cursor(name: SubscriptionName, cursor: Acknowledgements) -> CursorFound:
    pending = tuple(
        (txn_id, tuple(one.offsets.ranges())) for txn_id, one in cursor.transactions.items()
    )
    return CursorFound(name, cursor.floor, tuple(cursor.deleted.ranges()), pending)
