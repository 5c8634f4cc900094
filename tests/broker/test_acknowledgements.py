"""PIP-31, Broker - Acknowledgements, New Acknowledgement State, against a dict of states."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.broker.harness import txn

from magnetar_broker.dispatch.acknowledgements import Acknowledgements, PendingAck
from magnetar_broker.log.offset_set import CHUNK_BITS
from magnetar_core.errors import TransactionConflict

END = 3 * CHUNK_BITS
PENDING = "PENDING"
DELETED = "DELETED"

near_borders = st.one_of(
    st.integers(0, 12),
    st.integers(CHUNK_BITS - 6, CHUNK_BITS + 6),
    st.integers(2 * CHUNK_BITS - 6, 2 * CHUNK_BITS + 6),
    st.integers(0, END - 1),
)
short = st.tuples(near_borders, st.integers(0, 6)).map(lambda p: (p[0], min(END - 1, sum(p))))
long = st.tuples(near_borders, near_borders).map(lambda p: (min(p), max(p)))
ranges = st.one_of(short, short, long)
txn_ids = st.integers(1, 3).map(txn)


class AcknowledgementsMachine(RuleBasedStateMachine):
    """States: PENDING (absent), DELETED, or the TxnID in whose PENDING_ACK an offset is."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = Acknowledgements()
        self.cursor.mark_new()
        self.model: dict[int, Any] = {}
        self.acks: dict[Any, list[PendingAck]] = {}
        self.rows: dict[int, bytes] = {}

    @rule(one=ranges, cumulative=st.booleans())
    def plain(self, one: tuple[int, int], cumulative: bool) -> None:
        first, last = (0, one[1]) if cumulative else one
        deleted = self.cursor.acknowledge([(first, last)])
        expected = [o for o in range(first, last + 1) if o not in self.model]
        assert [o for part in deleted for o in range(part[0], part[1] + 1)] == expected
        self.model.update(dict.fromkeys(expected, DELETED))

    @rule(many=st.lists(short, min_size=1, max_size=3), txn_id=txn_ids, ordinal=st.integers(0, 1))
    def transactional(self, many: list[tuple[int, int]], txn_id: Any, ordinal: int) -> None:
        covered = {o for first, last in many for o in range(first, last + 1)}
        if any(self.model.get(o, txn_id) != txn_id for o in covered):
            with pytest.raises(TransactionConflict):
                self.cursor.check_transactional(txn_id, many)
            return
        self.cursor.check_transactional(txn_id, many)
        acks = self.acks.setdefault(txn_id, [])
        sequence = sum(1 for ack in acks if ack.ordinal == ordinal)
        acks.append(PendingAck(ordinal, sequence, tuple(many)))
        self.cursor.acknowledge_in(txn_id, acks[-1])
        self.model.update(dict.fromkeys(covered, txn_id))

    @rule(txn_id=txn_ids, kept=st.dictionaries(st.integers(0, 1), st.integers(0, 3)))
    def end(self, txn_id: Any, kept: dict[int, int]) -> None:
        """A commit keeps some of each consumer's acks; an abort none."""
        mine = {offset for offset, state in self.model.items() if state == txn_id}
        counted = {
            offset
            for ack in self.acks.pop(txn_id, [])
            if ack.ack_sequence < kept.get(ack.ordinal, 0)
            for first, last in ack.ranges
            for offset in range(first, last + 1)
        }
        deleted, released = self.cursor.end(txn_id, kept)
        assert {o for a, b in deleted for o in range(a, b + 1)} == counted
        assert {o for a, b in released.ranges() for o in range(a, b + 1)} == mine - counted
        for offset in mine:
            del self.model[offset]
        self.model.update(dict.fromkeys(counted, DELETED))

    @precondition(lambda self: not self.acks)
    @rule(floor=near_borders)
    def seek(self, floor: int) -> None:
        self.cursor.move_floor(floor)
        self.model = dict.fromkeys(range(floor), DELETED)

    @rule(first_offset=near_borders)
    def retention(self, first_offset: int) -> None:
        self.cursor.skip_to(first_offset)
        for offset in range(first_offset):
            self.model.setdefault(offset, DELETED)

    @rule()
    def store_and_restore(self) -> None:
        for chunk in self.cursor.stale_chunks:
            self.rows.pop(chunk, None)
        for chunk in self.cursor.dirty_chunks:
            self.rows[chunk] = self.cursor.chunk_row(chunk)
        self.cursor.stale_chunks.clear()
        self.cursor.dirty_chunks.clear()
        restored = Acknowledgements.restored(sorted(self.rows.items()))
        for txn_id, acks in self.acks.items():
            for ack in acks:
                restored.acknowledge_in(txn_id, ack)
        assert restored.floor == self.cursor.floor
        assert restored.deleted == self.cursor.deleted
        assert restored.pending == self.cursor.pending
        assert not restored.dirty_chunks
        self.cursor = restored

    @rule(one=short)
    def look(self, one: tuple[int, int]) -> None:
        first, last = one
        mask = self.cursor.unavailable_mask(first, last)
        for offset in range(first, last + 1):
            assert bool(mask >> (offset - first) & 1) == (offset in self.model)
            assert self.cursor.is_deleted(offset) == (self.model.get(offset) == DELETED)

    @invariant()
    def mark_delete_is_the_first_offset_that_is_not_deleted(self) -> None:
        self.cursor.check()
        floor = self.cursor.floor
        assert self.model.get(floor) != DELETED
        assert all(self.model.get(offset) == DELETED for offset in range(floor))
        deleted = sum(1 for state in self.model.values() if state == DELETED)
        assert len(self.cursor.deleted) + floor == deleted
        pending = sum(1 for state in self.model.values() if state != DELETED)
        assert len(self.cursor.pending) == pending


TestAcknowledgements = AcknowledgementsMachine.TestCase
TestAcknowledgements.settings = settings(max_examples=60, stateful_step_count=25, print_blob=True)


def test_mark_delete_never_passes_a_pending_ack() -> None:
    """PIP-31: what is pending is not deleted, whatever is acknowledged around it."""
    cursor = Acknowledgements()
    cursor.acknowledge_in(txn(1), PendingAck(0, 0, ((3, 3),)))
    cursor.acknowledge([(0, 10_000)])
    assert cursor.floor == 3
    cursor.end(txn(1), {0: 1})
    assert cursor.floor == 10_001
