"""Rows of a participant's transaction index: written as the index changes, read at recovery.

A transaction has one row at a participant, which tells of its first writer, too: most transactions
have no other there. The row of its end overwrites it. Each further writer has a row of its own,
which the end deletes.

Every transaction writes these rows, so they are packed by hand, at a tenth of protobuf's cost. The
first byte says what a row is. A row that has another length than its fields ask for is damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar_broker import keys
from magnetar_broker.transactions.transaction_index import (
    NO_MEMBER,
    EndedTransaction,
    OpenTransaction,
    Outcome,
    TransactionIndex,
    Writer,
)
from magnetar_core.ids import MemberName, TxnID
from magnetar_core.selections import DIGEST_BYTES
from magnetar_core.wire import common_pb2 as common
from magnetar_storage.store import WriteBatch

_OPEN, _WRITER, _COMMITTED, _ABORTED = 1, 2, 3, 4
_OUTCOME = {_COMMITTED: Outcome.COMMITTED, _ABORTED: Outcome.ABORTED}
_NO_MARKER = -1

# Kind; writer id, next index, count of followed TxnIDs; start time, start offset, producer epoch,
# bytes of the member. Behind it the followed TxnIDs, and the member as on the wire.
_OPEN_ROW = struct.Struct(">BQQIqQqI")
# Kind; writer id, next index, count of followed TxnIDs. Behind it these TxnIDs.
_WRITER_ROW = struct.Struct(">BQQI")
# Kind, start time, offset of the marker, stamp, count of followed TxnIDs. Behind it these TxnIDs,
# and the digest of the selection.
_ENDED_ROW = struct.Struct(">BqqQI")


class WriterRow(NamedTuple):
    """A writer's part of an open transaction."""

    writer_id: int
    next_index: int
    follows: tuple[TxnID, ...]


class OpenRow(NamedTuple):
    """An open transaction with its first writer."""

    start_time_ms: int
    start_offset: int
    producer_epoch: int
    member: MemberName
    first_writer: WriterRow


class EndedRow(NamedTuple):
    """An ended transaction. A start time of 0: it had written nothing here."""

    start_time_ms: int
    ended: EndedTransaction
    # The marker's offset; None: nothing was kept here.
    marker_entry_id: int | None


def put_written(
    batch: WriteBatch, key: bytes, transaction: OpenTransaction, writer: Writer
) -> None:
    """Write the row that tells of a writer, which has just written."""
    follows = writer.follows
    if writer.ordinal:
        row = _WRITER_ROW.pack(_WRITER, writer.writer_id, writer.next_index, len(follows))
        batch.put(keys.TXNINDEX, keys.txnindex_writer(key, writer.ordinal), row + _packed(follows))
        return
    member = transaction.member
    # Mostly it is that very object.
    named = b"" if member is NO_MEMBER else _named(member)
    row = _OPEN_ROW.pack(
        _OPEN,
        writer.writer_id,
        writer.next_index,
        len(follows),
        transaction.start_time_ms,
        transaction.start_offset,
        transaction.producer_epoch,
        len(named),
    )
    batch.put(keys.TXNINDEX, key, row + _packed(follows) + named if follows or named else row)


def _named(member: MemberName) -> bytes:
    return member.to_wire().SerializeToString() if member != NO_MEMBER else b""


def put_ended(
    batch: WriteBatch,
    key: bytes,
    ended: EndedTransaction | None,
    transaction: OpenTransaction | None,
    *,
    marker_entry_id: int | None,
) -> None:
    """Write the transaction's outcome, and delete the rows of its further writers.

    Args:
        ended: None: nothing is remembered.
    """
    start_time_ms = 0
    if transaction is not None:
        start_time_ms = transaction.start_time_ms
        if len(transaction.writers) > 1:
            for ordinal in range(1, len(transaction.writers)):
                batch.delete(keys.TXNINDEX, keys.txnindex_writer(key, ordinal))
    if ended is None:
        batch.delete(keys.TXNINDEX, key)
        return
    outcome, digest, follows, stamp = ended
    row = _ENDED_ROW.pack(
        _COMMITTED if outcome is Outcome.COMMITTED else _ABORTED,
        start_time_ms,
        marker_entry_id if marker_entry_id is not None else _NO_MARKER,
        stamp,
        len(follows),
    )
    if follows or digest:
        row += _packed(follows) + digest
    batch.put(keys.TXNINDEX, key, row)


def parse(value: bytes) -> OpenRow | WriterRow | EndedRow:
    """Parse a row of the index.

    Raises:
        ValueError: the row is damaged.
    """
    kind = value[0] if value else 0
    try:
        if kind == _OPEN:
            _, writer_id, next_index, count, start_time_ms, start_offset, epoch, named_bytes = (
                _OPEN_ROW.unpack_from(value)
            )
            follows, named = _unpacked(value, _OPEN_ROW.size, count)
            if len(named) == named_bytes:
                writer = WriterRow(writer_id, next_index, follows)
                member = MemberName.from_wire(common.GroupMember.FromString(named))
                return OpenRow(start_time_ms, start_offset, epoch, member, writer)
        if kind == _WRITER:
            _, writer_id, next_index, count = _WRITER_ROW.unpack_from(value)
            follows, rest = _unpacked(value, _WRITER_ROW.size, count)
            if not rest:
                return WriterRow(writer_id, next_index, follows)
        if kind in _OUTCOME:
            _, start_time_ms, marker_entry_id, stamp, count = _ENDED_ROW.unpack_from(value)
            follows, digest = _unpacked(value, _ENDED_ROW.size, count)
            if len(digest) in (0, DIGEST_BYTES):
                ended = EndedTransaction(_OUTCOME[kind], digest, follows, stamp)
                marker = None if marker_entry_id == _NO_MARKER else marker_entry_id
                return EndedRow(start_time_ms, ended, marker)
    except (struct.error, DecodeError) as error:
        raise ValueError(f"a row of the index is damaged: {error}") from error
    raise ValueError(f"a row of the index is damaged: its kind is {kind}, of {len(value)} bytes")


def restore(index: TransactionIndex, txn_id: TxnID, ordinal: int | None, value: bytes) -> None:
    """Restore a row; a transaction's own row comes before its further writers' rows.

    A writer's row without its transaction is passed over: its transaction was lost, or has ended.

    Raises:
        ValueError: the row is damaged.
    """
    row = parse(value)
    if isinstance(row, OpenRow):
        start_time_ms, start_offset, producer_epoch, member, writer = row
        index.restore_open(
            OpenTransaction(txn_id, start_time_ms, start_offset, producer_epoch, member)
        )
        ordinal = 0
    elif isinstance(row, EndedRow):
        index.ended[txn_id] = row.ended
        return
    else:
        writer = row
    transaction = index.open.get(txn_id)
    if transaction is not None and ordinal is not None:
        transaction.writers[writer.writer_id] = Writer(ordinal, *writer)


def _packed(txn_ids: Sequence[TxnID]) -> bytes:
    return b"".join([one.to_bytes() for one in txn_ids]) if txn_ids else b""


def _unpacked(value: bytes, start: int, count: int) -> tuple[tuple[TxnID, ...], bytes]:
    """Return TxnIDs that begin at a byte, and the bytes behind them.

    Raises:
        ValueError: not as many are there.
    """
    end = start + count * keys.TXN_ID_BYTES
    if len(value) < end:
        raise ValueError(f"a row of the index is damaged: it ends before its {count} TxnIDs do")
    places = range(start, end, keys.TXN_ID_BYTES)
    txn_ids = tuple(TxnID.from_bytes(value[at : at + keys.TXN_ID_BYTES]) for at in places)
    return txn_ids, value[end:]
