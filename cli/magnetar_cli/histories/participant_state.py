"""State of a participant as a history tells it: what it holds, what has ended, where its log ends.

Pure. Source: spec/Commit.tla, participants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from magnetar.messaging.interval_set import IntervalSet
from magnetar_core.history.events import (
    NO_PRODUCER,
    Acked,
    AcksPending,
    CursorFound,
    CursorMoved,
    EndApplied,
    MessagesRemoved,
    ParticipantFound,
    PlainSent,
    Wrote,
)
from magnetar_core.ids import TxnID

# How many places of a producer's messages are remembered.
PLACES_MAX = 64


@dataclass(slots=True)
class Held:
    """Writes of a writer in an open transaction."""

    writes: int = 0
    follows: tuple[TxnID, ...] = ()


@dataclass(slots=True)
class Cursor:
    """Cursor of a subscription.

    Attributes:
        removed_end: retention has removed what lies below it.
        acks: what each ack command of a transaction acknowledged, by writer and ack sequence.
    """

    acked: IntervalSet = field(default_factory=IntervalSet)
    removed_end: int = 0
    acks: dict[TxnID, dict[tuple[int, int], tuple[tuple[int, int], ...]]] = field(
        default_factory=dict
    )

    def pending_of_others(self, txn_id: TxnID | None, first: int, last: int) -> TxnID | None:
        """Return another transaction that has acknowledged an offset of a range."""
        for other, acks in self.acks.items():
            if other == txn_id:
                continue
            for ranges in acks.values():
                if any(one <= last and first <= end for one, end in ranges):
                    return other
        return None

    def end(self, txn_id: TxnID, kept: dict[int, int]) -> None:
        """Count the kept acks of a transaction, and give back the others."""
        for (writer_id, sequence), ranges in self.acks.pop(txn_id, {}).items():
            for first, last in ranges:
                if sequence < kept.get(writer_id, 0):
                    self.acked.add(first, last)
                elif first < self.removed_end:
                    self.acked.add(first, min(last, self.removed_end - 1))

    def remove(self, first_offset: int) -> None:
        """Count removed messages as acknowledged, but for those with a pending ack."""
        self.removed_end = max(self.removed_end, first_offset)
        pending = [one for acks in self.acks.values() for part in acks.values() for one in part]
        if first_offset:
            removed = IntervalSet([(0, first_offset - 1)])
            removed.remove_all(pending)
            self.acked.add_all(removed)

    def copy(self) -> Cursor:
        """Return a copy that does not change with this one."""
        acks = {txn_id: dict(one) for txn_id, one in self.acks.items()}
        return Cursor(IntervalSet(self.acked), self.removed_end, acks)


@dataclass(slots=True)
class ParticipantState:
    """State of a partition or a subscription.

    Attributes:
        exists: False: it was deleted, or never created.
        fates: how each transaction ended here, also when that is forgotten; nothing in the protocol
            reads this.
        producers: the next sequence of each plain producer.
        places: the offsets of a producer's latest messages, by their sequences.
    """

    exists: bool = False
    end_offset: int = 0
    open: dict[TxnID, dict[int, Held]] = field(default_factory=dict)
    ended: dict[TxnID, tuple[bool, tuple[TxnID, ...]]] = field(default_factory=dict)
    fates: dict[TxnID, bool] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)
    places: dict[int, dict[int, int]] = field(default_factory=dict)
    cursor: Cursor = field(default_factory=Cursor)

    @classmethod
    def found(cls, found: ParticipantFound) -> ParticipantState:
        """Return the state that a broker has found in its store."""
        return cls(
            exists=found.exists,
            end_offset=found.end_offset,
            open={
                one.txn_id: {
                    writer.writer_id: Held(writer.writes, writer.follows) for writer in one.writers
                }
                for one in found.held
            },
            ended={one.txn_id: (one.is_commit, one.follows) for one in found.ended},
            fates={one.txn_id: one.is_commit for one in found.ended},
        )

    def copy(self) -> ParticipantState:
        """Return a copy that does not change with this one."""
        opened = {
            txn_id: {writer: Held(held.writes, held.follows) for writer, held in writers.items()}
            for txn_id, writers in self.open.items()
        }
        return ParticipantState(
            self.exists,
            self.end_offset,
            opened,
            dict(self.ended),
            dict(self.fates),
            dict(self.producers),
            {producer: dict(one) for producer, one in self.places.items()},
            self.cursor.copy(),
        )

    # Looking.

    def held_of(self, txn_id: TxnID) -> dict[int, int]:
        """Return how many writes of each writer of a transaction are held."""
        return {writer: held.writes for writer, held in self.open.get(txn_id, {}).items()}

    def follows_of(self, txn_id: TxnID) -> Iterable[TxnID]:
        """Return the transactions that a transaction follows, or passes on."""
        writers = self.open.get(txn_id)
        if writers is None:
            return self.ended.get(txn_id, (False, ()))[1]
        return dict.fromkeys(one for held in writers.values() for one in held.follows)

    def is_unsettled(self, txn_id: TxnID) -> bool:
        """Return whether a transaction is open, or passes on one that is unsettled (rule k)."""
        seen = {txn_id}
        to_visit = [txn_id]
        while to_visit:
            one = to_visit.pop()
            if one in self.open:
                return True
            for followed in self.follows_of(one):
                if followed not in seen:
                    seen.add(followed)
                    to_visit.append(followed)
        return False

    # Changing.

    def wrote(self, event: Wrote) -> None:
        """Hold a write."""
        writers = self.open.setdefault(event.txn_id, {})
        held = writers.get(event.writer_id)
        if held is None:
            held = writers[event.writer_id] = Held(0, event.follows)
        held.writes = event.first_index + event.writes

    def sent(self, event: PlainSent) -> None:
        """Append plain messages."""
        self.end_offset = event.offset + event.messages
        if event.producer_id == NO_PRODUCER:
            return
        self.producers[event.producer_id] = event.sequence_id + event.messages
        places = self.places.setdefault(event.producer_id, {})
        places[event.sequence_id] = event.offset
        if len(places) > PLACES_MAX:
            del places[next(iter(places))]

    def ended_here(self, event: EndApplied) -> None:
        """End a transaction."""
        self.open.pop(event.txn_id, None)
        self.cursor.end(event.txn_id, dict(event.kept))
        if not event.is_dropped:
            self.ended[event.txn_id] = (event.is_commit, event.passes_on)
            self.fates[event.txn_id] = event.is_commit

    def acks_pending(self, event: AcksPending) -> None:
        """Hold the acks of a transaction."""
        place = event.writer_id, event.ack_sequence
        self.cursor.acks.setdefault(event.txn_id, {})[place] = event.ranges

    def acked(self, event: Acked) -> None:
        """Count messages as acknowledged."""
        self.cursor.acked.add_all(event.ranges)

    def removed(self, event: MessagesRemoved) -> None:
        """Count messages as acknowledged that retention removed."""
        self.cursor.remove(event.first_offset)

    def cursor_moved(self, event: CursorMoved) -> None:
        """Begin anew at an offset."""
        self.cursor.acked = IntervalSet([(0, event.offset - 1)] if event.offset else [])

    def cursor_found(self, event: CursorFound, removed_end: int) -> None:
        """Take the cursor that a broker has found in its store; acks keep their places."""
        known, cursor = self.cursor, Cursor(removed_end=removed_end)
        if event.floor:
            cursor.acked.add(0, event.floor - 1)
        cursor.acked.add_all(event.deleted)
        for txn_id, ranges in event.pending:
            # Which command acknowledged what is not found again: it is as it was.
            cursor.acks[txn_id] = known.acks.get(txn_id) or {(-1, 0): ranges}
        self.cursor = cursor
