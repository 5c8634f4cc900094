"""Rows of the transaction index: what is written is read again, and damage is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.harness import new_index, txn

from magnetar_broker import keys
from magnetar_broker.dispatch import pending_ack_rows
from magnetar_broker.dispatch.acknowledgements import PendingAck
from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_broker.transactions import index_rows
from magnetar_broker.transactions.transaction_index import (
    NO_MEMBER,
    EndedTransaction,
    OpenTransaction,
    Outcome,
    TransactionIndex,
    Writer,
)
from magnetar_core.ids import MemberName, TxnID
from magnetar_storage.store import PUT, WriteBatch

U64 = st.integers(0, (1 << 64) - 1)
TXN_IDS = st.lists(st.builds(TxnID, U64, U64), max_size=3).map(tuple)
OFFSETS = st.integers(0, (1 << 62) - 1)
MEMBERS = st.just(NO_MEMBER) | st.builds(
    MemberName, st.text(min_size=1, max_size=5), st.text(max_size=5), st.integers(0, 1 << 40)
)
OPEN = st.builds(
    OpenTransaction, st.just(txn(1)), OFFSETS, OFFSETS, st.integers(-1, 1 << 31), MEMBERS
)
ENDED = st.builds(
    EndedTransaction, st.sampled_from(Outcome), st.sampled_from((b"", bytes(32))), TXN_IDS, U64
)
WRITERS = st.lists(
    st.tuples(U64, U64, TXN_IDS), min_size=1, max_size=3, unique_by=lambda one: one[0]
)
KEY = keys.txnindex(txn(1), 7, 3)


class Rows:
    """The rows of one transaction in a store."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def take(self, batch: WriteBatch) -> None:
        for kind, family, key, value in batch.operations:
            assert family == keys.TXNINDEX
            if kind == PUT:
                self.rows[key] = value
            else:
                self.rows.pop(key, None)

    def restored(self) -> TransactionIndex:
        index = new_index()
        for key, value in sorted(self.rows.items()):
            *_, ordinal = keys.txnindex_place(key)
            index_rows.restore(index, txn(1), ordinal, value)
        return index


def written(opened: OpenTransaction, writers: list[tuple[int, int, tuple[TxnID, ...]]]) -> Rows:
    rows = Rows()
    for ordinal, (writer_id, next_index, follows) in enumerate(writers):
        writer = opened.writers[writer_id] = Writer(ordinal, writer_id, next_index, follows)
        batch = WriteBatch()
        index_rows.put_written(batch, KEY, opened, writer)
        rows.take(batch)
    return rows


@given(OPEN, WRITERS)
def test_an_open_transaction_is_read_again(
    opened: OpenTransaction, writers: list[tuple[int, int, tuple[TxnID, ...]]]
) -> None:
    rows = written(opened, writers)
    assert len(rows.rows) == len(writers), "the first writer shares its transaction's row"
    (restored,) = rows.restored().open.values()
    assert restored == opened


@given(OPEN, WRITERS, ENDED, st.none() | OFFSETS)
def test_the_end_leaves_one_row(
    opened: OpenTransaction,
    writers: list[tuple[int, int, tuple[TxnID, ...]]],
    ended: EndedTransaction,
    marker_entry_id: int | None,
) -> None:
    rows = written(opened, writers)
    batch = WriteBatch()
    index_rows.put_ended(batch, KEY, ended, opened, marker_entry_id=marker_entry_id)
    rows.take(batch)
    assert rows.restored().ended == {txn(1): ended}
    (row,) = rows.rows.values()
    assert index_rows.parse(row) == index_rows.EndedRow(
        opened.start_time_ms, ended, marker_entry_id
    )


@given(OPEN, WRITERS)
def test_a_transaction_of_which_nothing_is_remembered_leaves_no_row(
    opened: OpenTransaction, writers: list[tuple[int, int, tuple[TxnID, ...]]]
) -> None:
    rows = written(opened, writers)
    batch = WriteBatch()
    index_rows.put_ended(batch, KEY, None, opened, marker_entry_id=None)
    rows.take(batch)
    assert not rows.rows


def test_a_writers_row_without_its_transaction_is_passed_over() -> None:
    rows = written(OpenTransaction(txn(1), 0), [(5, 1, ()), (6, 1, ())])
    del rows.rows[KEY]
    index = rows.restored()
    assert not index.open
    assert not index.ended


@given(OPEN, WRITERS, st.data())
def test_a_row_that_lost_its_end_is_damaged(
    opened: OpenTransaction,
    writers: list[tuple[int, int, tuple[TxnID, ...]]],
    data: st.DataObject,
) -> None:
    rows = written(opened, writers)
    whole = data.draw(st.sampled_from(sorted(rows.rows.values())))
    with pytest.raises(ValueError, match="damaged"):
        index_rows.parse(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize("row", [b"", b"\x00", b"\xff" * 60, b"\x02" + bytes(20) + b"x"])
def test_a_row_of_no_known_kind_is_damaged(row: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        index_rows.parse(row)


COMMITS = st.builds(CommittedOffset, OFFSETS, st.text(max_size=5), st.integers(-1, (1 << 31) - 1))


@given(st.lists(st.tuples(U64, U64), max_size=3), st.none() | COMMITS)
def test_an_ack_in_a_transaction_is_read_again(
    ranges: list[tuple[int, int]], commit: CommittedOffset | None
) -> None:
    row = pending_ack_rows.pack(ranges, commit)
    assert pending_ack_rows.unpack(3, 7, row) == PendingAck(3, 7, tuple(ranges), commit)
    for damaged in (b"", row[:-1], row + b"\x00", b"\x09" + row[1:]):
        with pytest.raises(ValueError, match="damaged"):
            pending_ack_rows.unpack(3, 7, damaged)
