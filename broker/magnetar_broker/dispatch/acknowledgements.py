"""Acknowledgement state of a subscription on a partition: deleted and pending offsets. Pure.

    PENDING --ack--> DELETED
    PENDING --ack in a transaction--> PENDING_ACK --commit--> DELETED
                                      PENDING_ACK --abort--> PENDING

Every transition between these states happens here. An offset is DELETED below the floor or in
`deleted`, PENDING_ACK in `pending`, otherwise PENDING. The floor is the mark-delete offset: it
never passes a PENDING_ACK, since a pending offset is not deleted.
Source: PIP-31, Broker - Acknowledgements, New Acknowledgement State.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_broker.log.offset_set import (
    CHUNK_BITS,
    CHUNK_BYTES,
    FULL_CHUNK,
    OffsetSet,
    Range,
    chunk_masks,
    ranges_of_mask,
)
from magnetar_core.errors import TransactionConflict
from magnetar_core.ids import TxnID
from magnetar_core.invariants import BrokenInvariant


@dataclass(slots=True)
class PendingAck:
    """An ack command of a transaction. Never changed.

    Attributes:
        commit: the committed offset that the cursor has once the transaction is committed; None:
            the command has acknowledged messages by themselves.
    """

    ordinal: int
    ack_sequence: int
    ranges: tuple[Range, ...]
    commit: CommittedOffset | None = None


class PendingTransaction:
    """All that a transaction has acknowledged here."""

    __slots__ = ("_offsets", "acks")

    def __init__(self) -> None:
        self.acks: list[PendingAck] = []
        # Made when a method asks for it: most transactions acknowledge once, and end.
        self._offsets: OffsetSet | None = None

    def add(self, ack: PendingAck) -> None:
        """Add an ack command."""
        self.acks.append(ack)
        if self._offsets is not None:
            self._offsets.update(OffsetSet(ack.ranges))

    @property
    def offsets(self) -> OffsetSet:
        """The offsets of all acks. The set belongs to this object."""
        if self._offsets is None:
            self._offsets = OffsetSet(one for ack in self.acks for one in ack.ranges)
        return self._offsets

    @property
    def commit(self) -> CommittedOffset | None:
        """The offset that it has committed last, if any."""
        return next((ack.commit for ack in reversed(self.acks) if ack.commit is not None), None)

    def commit_of(self, kept: Mapping[int, int]) -> CommittedOffset | None:
        """Return the last committed offset among the acks that count, if any.

        Args:
            kept: as of Acknowledgements.end.
        """
        for ack in reversed(self.acks):
            if ack.commit is not None and ack.ack_sequence < kept.get(ack.ordinal, 0):
                return ack.commit
        return None


class Acknowledgements:
    """Cursor of a subscription on a partition."""

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.deleted = OffsetSet()
        self.pending = OffsetSet()
        self.transactions: dict[TxnID, PendingTransaction] = {}
        # Chunks whose row must be written, and chunks whose row must be deleted; insertion order.
        self.dirty_chunks: dict[int, None] = {}
        self.stale_chunks: dict[int, None] = {}

    def check(self) -> None:
        """Check the invariants."""
        together = OffsetSet()
        for transaction in self.transactions.values():
            assert not together.intersection(transaction.offsets)
            together.update(transaction.offsets)
        assert together == self.pending
        assert not self.pending.intersection(self.deleted)
        assert not self.pending or self.pending.first() >= self.floor

    @property
    def known_end(self) -> int:
        """Return an offset above all acknowledged or pending offsets."""
        lasts = [last for one in (self.deleted, self.pending) for _, last in one.ranges()]
        return max([self.floor, *(last + 1 for last in lasts)])

    def is_deleted(self, offset: int) -> bool:
        """Return whether an offset is DELETED."""
        return offset < self.floor or offset in self.deleted

    def unavailable_mask(self, first: int, last: int) -> int:
        """Return bits of the range's offsets that are DELETED or PENDING_ACK; bit 0 is `first`."""
        mask = self.deleted.mask(first, last) | self.pending.mask(first, last)
        if first < self.floor:
            mask |= (1 << (min(self.floor, last + 1) - first)) - 1
        return mask

    def free_ranges(self, first: int, end: int) -> list[Range]:
        """Return the ranges from `first` to below `end` that are PENDING."""
        free: list[Range] = []
        for part_first, part_last in _split(max(first, self.floor), end - 1):
            width = part_last - part_first + 1
            mask = ~self.unavailable_mask(part_first, part_last) & ((1 << width) - 1)
            free += ranges_of_mask(mask, part_first)
        return free

    def acknowledge(self, ranges: Iterable[Range]) -> list[Range]:
        """Apply a plain ack: PENDING becomes DELETED; PENDING_ACK stays as it is.

        Returns:
            The ranges that were newly deleted.
        """
        deleted: list[Range] = []
        for first, last in ranges:
            deleted += self.free_ranges(first, last + 1)
        for first, last in deleted:
            self._delete(first, last)
        self._raise_floor()
        return deleted

    def check_transactional(self, txn_id: TxnID, ranges: Iterable[Range]) -> None:
        """Check that a transaction may acknowledge these ranges.

        Raises:
            TransactionConflict: an offset is DELETED, or pending in another transaction.
        """
        own = self.transactions.get(txn_id)
        for first, last in ranges:
            if first < self.floor or self.deleted.intersects(first, last):
                raise TransactionConflict(
                    f"a message from {first} to {last} is acknowledged already: abort"
                )
            if self.pending.intersects(first, last) and (
                own is None or self._others_hold(own, first, last)
            ):
                raise TransactionConflict(
                    f"another transaction is acknowledging a message from {first} to"
                    f" {last}: abort, then retry"
                )

    def is_held_by_others(self, txn_id: TxnID, end: int) -> bool:
        """Return whether an offset below `end` is pending in another transaction."""
        if not self.pending.intersects(self.floor, end - 1):
            return False
        own = self.transactions.get(txn_id)
        return own is None or self._others_hold(own, self.floor, end - 1)

    def _others_hold(self, own: PendingTransaction, first: int, last: int) -> bool:
        """Return whether an offset of the range is pending in another transaction."""
        return any(
            self.pending.mask(*part) & ~own.offsets.mask(*part) for part in _split(first, last)
        )

    def acknowledge_in(self, txn_id: TxnID, ack: PendingAck) -> None:
        """Apply an ack in a transaction.

        PENDING becomes PENDING_ACK, as check_transactional allowed.
        """
        transaction = self.transactions.get(txn_id)
        if transaction is None:
            transaction = self.transactions[txn_id] = PendingTransaction()
        transaction.add(ack)
        for first, last in ack.ranges:
            self.pending.add(first, last)

    def end(self, txn_id: TxnID, kept: Mapping[int, int]) -> tuple[list[Range], OffsetSet]:
        """End a transaction: PENDING_ACK becomes DELETED for kept acks, and PENDING for the others.

        Args:
            kept: how many ack commands of each consumer count, by the consumer's ordinal.
        Returns:
            The deleted offsets, and those that return to PENDING.
        """
        transaction = self.transactions.pop(txn_id, None)
        if transaction is None:
            return [], OffsetSet()
        acks = transaction.acks
        counted = [ack for ack in acks if ack.ack_sequence < kept.get(ack.ordinal, 0)]
        if counted == acks and len(acks) == 1 and len(acks[0].ranges) == 1:
            # As nearly all do: without sets.
            deleted, released = list(acks[0].ranges), OffsetSet()
            self.pending.discard(*deleted[0])
            if self._move_floor_over(*deleted[0]):
                return deleted, released
        else:
            self.pending.difference_update(transaction.offsets)
            kept_offsets = OffsetSet(one for ack in counted for one in ack.ranges)
            deleted, released = list(kept_offsets.ranges()), transaction.offsets
            released.difference_update(kept_offsets)
        for first, last in deleted:
            self._delete(first, last)
        self._raise_floor()
        return deleted, released

    def _move_floor_over(self, first: int, last: int) -> bool:
        """Delete a range by raising the floor over it; return whether that was possible.

        It is if the range begins at the floor, nothing above is DELETED, and both ends lie in a
        chunk: nearly always, if messages are acknowledged in their order.
        """
        chunk = first // CHUNK_BITS
        if first != self.floor or self.deleted or (last + 1) // CHUNK_BITS != chunk:
            return False
        self.floor = last + 1
        self._mark_dirty(chunk)
        return True

    def move_floor(self, floor: int) -> None:
        """Restart at an offset: smaller offsets are DELETED, others PENDING.

        Nothing may be pending.
        """
        if self.pending:
            raise BrokenInvariant("a cursor with pending acks is moved")
        self._stale_below(max(self.deleted.chunks(), default=0) + 1)
        self.stale_chunks[self.floor // CHUNK_BITS] = None
        self.deleted.clear()
        self.floor = floor
        self.dirty_chunks.clear()
        self._mark_dirty(floor // CHUNK_BITS)

    def skip_to(self, first_offset: int) -> None:
        """Count offsets below first_offset, which retention removed, as DELETED."""
        if first_offset > self.floor:
            self.acknowledge([(self.floor, first_offset - 1)])

    def chunk_row(self, chunk: int) -> bytes:
        """Return a chunk's 512 bytes as stored: bits below the floor are set."""
        mask = self.deleted.chunk(chunk)
        start = chunk * CHUNK_BITS
        if self.floor > start:
            mask |= FULL_CHUNK >> max(0, CHUNK_BITS - (self.floor - start))
        return mask.to_bytes(CHUNK_BYTES, "little")

    @classmethod
    def restored(cls, rows: Iterable[tuple[int, bytes]]) -> Acknowledgements:
        """Read stored chunks, in ascending order; offsets below the lowest chunk are DELETED."""
        cursor = cls()
        for position, (chunk, row) in enumerate(rows):
            if position == 0:
                cursor.floor = chunk * CHUNK_BITS
            cursor.deleted.set_chunk(chunk, int.from_bytes(row, "little"))
        cursor._raise_floor()
        cursor.dirty_chunks.clear()
        cursor.stale_chunks.clear()
        return cursor

    def mark_new(self) -> None:
        """Note that the cursor has no row yet: its first row says where the floor is."""
        self._mark_dirty(self.floor // CHUNK_BITS)

    def _delete(self, first: int, last: int) -> None:
        self.deleted.add(first, last)
        for chunk in range(first // CHUNK_BITS, last // CHUNK_BITS + 1):
            self._mark_dirty(chunk)

    def _mark_dirty(self, chunk: int) -> None:
        self.stale_chunks.pop(chunk, None)
        self.dirty_chunks[chunk] = None

    def _raise_floor(self) -> None:
        floor = self.floor
        while True:
            chunk, bit = divmod(floor, CHUNK_BITS)
            ones = self.deleted.chunk(chunk) >> bit
            run = (~ones & (ones + 1)).bit_length() - 1
            floor += run
            if run == 0 or floor % CHUNK_BITS:
                break
        if floor == self.floor:
            return
        old_chunk, new_chunk = self.floor // CHUNK_BITS, floor // CHUNK_BITS
        self.floor = floor
        if new_chunk > old_chunk:
            # The lowest row says where the floor is: it moves up, and lower rows are deleted.
            self._stale_below(new_chunk, old_chunk)
            self._mark_dirty(new_chunk)
        self.deleted.discard(max(0, old_chunk * CHUNK_BITS), floor - 1)

    def _stale_below(self, end_chunk: int, start_chunk: int | None = None) -> None:
        start = self.floor // CHUNK_BITS if start_chunk is None else start_chunk
        for chunk in range(start, end_chunk):
            self.dirty_chunks.pop(chunk, None)
            self.stale_chunks[chunk] = None


def _split(first: int, last: int) -> list[Range]:
    """Divide a long range into parts, so that masks stay small."""
    if first // CHUNK_BITS == last // CHUNK_BITS:
        return [(first, last)] if first <= last else []
    return [
        (max(first, chunk * CHUNK_BITS), min(last, chunk * CHUNK_BITS + CHUNK_BITS - 1))
        for chunk, _ in chunk_masks(first, last)
    ]
