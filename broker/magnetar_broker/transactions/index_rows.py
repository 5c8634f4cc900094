"""Rows of a participant's transaction index: written as the index changes, read at recovery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from magnetar_broker import keys
from magnetar_broker.transactions.transaction_index import (
    EndedTransaction,
    OpenTransaction,
    Outcome,
    TransactionIndex,
    Writer,
)
from magnetar_core.ids import MemberName, TxnID
from magnetar_core.wire import broker_pb2 as broker_wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.store import WriteBatch

_STATUS = {Outcome.COMMITTED: common.COMMITTED, Outcome.ABORTED: common.ABORTED}
_OUTCOME = {status: outcome for outcome, status in _STATUS.items()}


def followed_by(
    message: broker_wire.CommandSend | records.TransactionWriterRow,
) -> list[tuple[int, int]]:
    """Return the transactions that a send, or a writer's row, follows.

    A send may name a hundred, nearly all of which are settled. So these are plain tuples, which
    equal their TxnIDs and take half as long to make.
    """
    return [(one.most_bits, one.least_bits) for one in message.follows_txn_ids]


def name(field: Any, txn_ids: Iterable[tuple[int, int]]) -> None:
    """Add TxnIDs to a field that repeats them.

    In place: a message that is given to a constructor is copied, at twice the cost.
    """
    for most_bits, least_bits in txn_ids:
        field.add(most_bits=most_bits, least_bits=least_bits)


def put_open(batch: WriteBatch, key: bytes, transaction: OpenTransaction) -> None:
    """Write the row of an open transaction."""
    row = records.TransactionIndexRow(
        status=common.OPEN,
        start_time_ms=transaction.start_time_ms,
        start_offset=transaction.start_offset,
        producer_epoch=transaction.producer_epoch,
    )
    if transaction.member.member_id:
        row.member.CopyFrom(transaction.member.to_wire())
    batch.put(keys.TXNINDEX, key, row.SerializeToString())


def put_writer(batch: WriteBatch, key: bytes, writer: Writer) -> None:
    """Write the row of a writer."""
    row = records.TransactionWriterRow(writer_id=writer.writer_id, next_index=writer.next_index)
    name(row.follows_txn_ids, writer.follows)
    batch.put(keys.TXNINDEX, keys.txnindex_writer(key, writer.ordinal), row.SerializeToString())


def put_ended(
    batch: WriteBatch,
    key: bytes,
    ended: EndedTransaction | None,
    transaction: OpenTransaction | None,
    *,
    marker_entry_id: int | None,
) -> None:
    """Write the transaction's outcome, and delete its writers' rows.

    Args:
        ended: None: nothing is remembered.
    """
    for writer in transaction.writers.values() if transaction is not None else ():
        batch.delete(keys.TXNINDEX, keys.txnindex_writer(key, writer.ordinal))
    if ended is None:
        batch.delete(keys.TXNINDEX, key)
        return
    row = records.TransactionIndexRow(
        status=_STATUS[ended.outcome],
        start_time_ms=transaction.start_time_ms if transaction is not None else 0,
        has_marker=marker_entry_id is not None,
        marker_entry_id=marker_entry_id or 0,
        selection_digest=ended.selection_digest,
        stamp=ended.stamp,
    )
    name(row.follows_txn_ids, ended.follows)
    batch.put(keys.TXNINDEX, key, row.SerializeToString())


def restore(index: TransactionIndex, txn_id: TxnID, ordinal: int | None, value: bytes) -> None:
    """Restore a row; a transaction's own row comes before its writers' rows."""
    if ordinal is not None:
        writer = records.TransactionWriterRow.FromString(value)
        follows = tuple(TxnID(*one) for one in followed_by(writer))
        index.open[txn_id].writers[writer.writer_id] = Writer(
            ordinal, writer.writer_id, writer.next_index, follows
        )
        return
    row = records.TransactionIndexRow.FromString(value)
    if row.status == common.OPEN:
        index.restore_open(
            OpenTransaction(
                txn_id,
                row.start_time_ms,
                row.start_offset,
                row.producer_epoch,
                MemberName.from_wire(row.member),
            )
        )
    else:
        index.ended[txn_id] = EndedTransaction(
            _OUTCOME[row.status],
            row.selection_digest,
            tuple(TxnID.from_wire(one) for one in row.follows_txn_ids),
            row.stamp,
        )
