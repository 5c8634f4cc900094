"""Events of the protocol's history that a coordinator's records and answers stand for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar_coordinator.metadata.participant_counts import writer_counts
from magnetar_coordinator.metadata.records import (
    LossAccepted,
    ParticipantsAdded,
    Record,
    StatusChanged,
    TxnEnded,
    TxnOpened,
)
from magnetar_coordinator.metadata.transaction import ACTION_OF, Counts, TxnAction, TxnStatus
from magnetar_coordinator.transactions.transaction_table import TransactionTable
from magnetar_core.history import events
from magnetar_core.transport.columns.end_txns import Ended
from magnetar_core.transport.columns.new_txns import Opened
from magnetar_core.wire import common_pb2 as common


def event_of(record: Record) -> events.Event:
    """Return the event of a record that was applied."""
    txn_id = record.txn_id
    if isinstance(record, TxnOpened):
        return events.Opened(txn_id, record.participants)
    if isinstance(record, ParticipantsAdded):
        return events.ParticipantsAdded(txn_id, record.participants)
    if isinstance(record, StatusChanged):
        is_commit = _is_commit(record.new)
        return events.Decided(txn_id, is_commit, _counts(record.counts), record.selection)
    if isinstance(record, TxnEnded):
        return events.Finished(txn_id, _is_commit(record.status))
    assert isinstance(record, LossAccepted)
    return events.LossAccepted(txn_id)


def event_of_answer(body: Any, *, is_early: bool) -> events.Event | None:
    """Return the event of an answer about a transaction; None: it is not noted.

    Args:
        is_early: it may leave before the records of a new transaction are durable.
    """
    if isinstance(body, Opened):
        return events.TxnTold(body.txn_id, is_early)
    if isinstance(body, Ended) and body.txn_id is not None:
        is_commit = body.status in (common.COMMITTING, common.COMMITTED)
        return events.OutcomeTold(body.txn_id, is_commit)
    return None


def recovery_event(
    table: TransactionTable, lost: Sequence[tuple[int, int]]
) -> events.CoordinatorRecovered:
    """Return the event of a recovery: the findings of a coordinator in its store.

    Args:
        lost: ranges of counters, each with the first one behind it.
    """
    live = tuple(
        events.LiveTransaction(
            one.txn_id,
            tuple(one.participants),
            None if one.status is TxnStatus.OPEN else _is_commit(one.status),
            _counts(one.counts),
            one.selection,
            one.loss_accepted,
        )
        for one in table.live.values()
    )
    ranges = tuple((first, end - 1) for first, end in lost)
    return events.CoordinatorRecovered(table.incarnation, table.next_counter, live, ranges)


def _is_commit(status: TxnStatus) -> bool:
    return ACTION_OF[status] is TxnAction.COMMIT


def _counts(counts: Counts | None) -> events.Counts | None:
    if counts is None:
        return None
    return tuple((one, writer_counts(one, packed)) for one, packed in counts.items())
