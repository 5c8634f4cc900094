"""Decides what an audit takes for damage. Pure.

A task of the audit passes what it reads of a partition to a `PartitionWatch`, which keeps a few
numbers and makes rows: what was lost, what came twice, and the part of each transaction. Other
    tasks
make a row for each transaction in the sidecar of a partition. Spark groups the rows by transaction.
They mean:

    sidecar       log                 meaning
    STORED        PART                committed
    STORED        nothing             damage: a torn TRANSACTION, or an ORPHAN
    OPEN          nothing, or PART    it ended later, or is still open: perhaps an ORPHAN
    nothing       PART                it began later

Source: PIP-31, Broker - Transaction Buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from magnetar_spark.planning import Range

# Kinds of rows that are not findings.
SCANNED = "scanned"
PART = "part"
STORED = "stored"
OPEN = "open"
# Kinds of findings.
GAP = "gap"
DUPLICATE = "duplicate"
DAMAGED = "damaged"
TRANSACTION = "transaction"
ORPHAN = "orphan"
KINDS = (GAP, DUPLICATE, DAMAGED, TRANSACTION, ORPHAN)

NOWHERE = -1
# States of a transaction at its coordinator in which readers must not see any of it.
_NOT_COMMITTED = ("OPEN", "ABORTING", "ABORTED")


class Row(NamedTuple):
    """Observation of a task of the audit.

    Attributes:
        first: the first offset, or NOWHERE without a place in the log. For a gap, the first missing
            offset. For OPEN, the end of the log when the transaction began.
        last: the last offset, or NOWHERE. For a gap, the last missing offset. For STORED, the end
            of the log when the sidecar was listed; the marker lies before it.
        messages: for SCANNED and PART, how many messages count: at a cut, those that it has.
        txn_id: the transaction; empty without a transaction.
        entry_id: for PART, the entry id of the marker.
        start_ms: for OPEN, when the transaction began.
        producer_epoch: for OPEN, the epoch of its producer.
    """

    kind: str
    topic: str
    topic_id: int
    partition: int
    first: int = NOWHERE
    last: int = NOWHERE
    messages: int = 0
    txn_id: str = ""
    entry_id: int = 0
    start_ms: int = 0
    producer_epoch: int = -1
    detail: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """The topic id and partition."""
        return self.topic_id, self.partition


@dataclass(frozen=True)
class Finding:
    """Something that should not be.

    Attributes:
        first_offset: the first offset; None without a place in the log. For an orphan, the end of
            the log when it began.
        last_offset: the last offset; None without a place in the log.
    """

    kind: str
    topic: str
    partition: int
    first_offset: int | None = None
    last_offset: int | None = None
    txn_id: str = ""
    detail: str = ""


class PartitionWatch:
    """Checks a range of a partition, whose messages it sees in order."""

    def __init__(self, wanted: Range) -> None:
        self._range = wanted
        self._next = wanted.start
        self._messages = 0
        self._part: Row | None = None

    def see(
        self, first: int, last: int, *, messages: int, entry_id: int = 0, txn_id: str = ""
    ) -> Iterator[Row]:
        """Check consecutive messages; for a message in parts, the offsets of all parts.

        Args:
            messages: how many of them count.
            entry_id: for a transaction's messages, the entry id of the marker.
        """
        yield from self.lose(first, "no message has these offsets")
        if first < self._next:
            yield self._row(
                DUPLICATE,
                first,
                min(last, self._next - 1),
                txn_id=txn_id,
                detail="other messages have these offsets too",
            )
        part = self._part
        if part is not None and (part.txn_id, part.entry_id) == (txn_id, entry_id):
            self._part = part._replace(last=last, messages=part.messages + messages)
        else:
            yield from self._told_part()
            if txn_id:
                self._part = self._row(PART, first, last, txn_id=txn_id)._replace(
                    messages=messages, entry_id=entry_id
                )
        self._messages += messages
        self._next = max(self._next, last + 1)

    def lose(
        self, next_offset: int, detail: str, *, is_damaged: bool = False, txn_id: str = ""
    ) -> Iterator[Row]:
        """Note that nothing can be read before `next_offset`.

        Args:
            txn_id: the transaction whose messages are missing, if its marker is not.
        """
        if next_offset <= self._next:
            return
        kind = DAMAGED if is_damaged else TRANSACTION if txn_id else GAP
        yield self._row(kind, self._next, next_offset - 1, txn_id=txn_id, detail=detail)
        self._next = next_offset

    def skip(self, next_offset: int) -> None:
        """Note that the messages before `next_offset` were removed in order, as by retention."""
        self._next = max(self._next, next_offset)

    def end(self) -> Iterator[Row]:
        """End the range; the last row says what was in it."""
        yield from self.lose(self._range.end, "no message has these offsets")
        yield from self._told_part()
        yield self._row(SCANNED, self._range.start, self._range.end - 1)._replace(
            messages=self._messages
        )

    def _told_part(self) -> Iterator[Row]:
        if self._part is not None:
            part, self._part = self._part, None
            yield part

    def _row(self, kind: str, first: int, last: int, *, txn_id: str = "", detail: str = "") -> Row:
        one = self._range
        return Row(
            kind,
            one.topic,
            one.topic_id,
            one.partition,
            first,
            last,
            txn_id=txn_id,
            detail=detail,
        )


def judge(rows: Sequence[Row], status: str) -> list[Row]:
    """Return the findings about a transaction, from what readers see of it.

    Args:
        rows: all rows of the transaction, in any order.
        status: what its coordinator says, OPEN to ABORTED; empty: the coordinator does not know it.
    """
    found = []
    parts = sorted(
        (row for row in rows if row.kind == PART),
        key=lambda one: (one.topic, one.partition, one.first),
    )
    for before, part in pairwise(parts):
        if before.place == part.place and before.entry_id != part.entry_id:
            detail = f"the transaction's messages stand at offset {before.entry_id} already"
            found.append(_of(part, DUPLICATE, detail))
    if status in _NOT_COMMITTED:
        detail = f"readers see its messages, and its coordinator has it {status}"
        found += [_of(part, TRANSACTION, detail) for part in parts]
    return found


def unmarked(rows: Sequence[Row], ends: Mapping[tuple[int, int], int]) -> list[Row]:
    """Return the rows where a transaction is stored, has ended, and has no marker in the log.

    Retention may have removed marker and messages meanwhile, so ask again whether it is stored.

    Args:
        rows: all rows of the transaction, in any order.
        ends: up to which offsets logs were read, by topic id and partition.
    """
    marked = {row.place for row in rows if row.kind not in (STORED, OPEN)}
    return [
        row
        for row in rows
        if row.kind == STORED
        and row.place not in marked
        # The sidecar may have been looked at after the log, where Spark did a task again.
        and row.last <= ends.get(row.place, NOWHERE)
    ]


def of_unmarked(row: Row, rows: Sequence[Row], status: str) -> Row:
    """Return the finding for an unmarked row that is certain.

    Args:
        row: the unmarked row.
        rows: as for judge().
        status: as for judge().
    """
    elsewhere = sorted(
        {
            f"{one.topic} partition {one.partition}"
            for one in rows
            if one.kind == PART and one.place != row.place
        }
    )
    missing = "the sidecar has its messages, and no commit marker of it can be read"
    if elsewhere:
        return _nowhere(row, TRANSACTION, f"{missing}; it is seen in {elsewhere[0]}")
    if status in ("COMMITTED", "COMMITTING"):
        return _nowhere(row, TRANSACTION, f"{missing}; its coordinator has it {status}")
    knows = f"has it {status}" if status else "does not know it"
    return _nowhere(row, ORPHAN, f"{missing}; it is not open there, and its coordinator {knows}")


def of_hanging(row: Row, reason: str) -> Row:
    """Return the finding for an OPEN row of a hanging transaction."""
    return _of(row, ORPHAN, reason)


def of_rows(rows: Iterable[Row]) -> list[Finding]:
    """Return the findings among rows, in order.

    A gap between the ranges of two tasks counts once.
    """
    chosen = sorted(
        (one for one in rows if one.kind in KINDS),
        key=lambda one: (KINDS.index(one.kind), one.topic, one.partition, one.first, one.txn_id),
    )
    joined: list[Row] = []
    for row in chosen:
        last = joined[-1] if joined else None
        if (
            last is not None
            and row.kind in (GAP, TRANSACTION)
            and (last.kind, last.place, last.txn_id) == (row.kind, row.place, row.txn_id)
            and last.last != NOWHERE
            and last.last + 1 == row.first
        ):
            joined[-1] = last._replace(last=row.last)
        else:
            joined.append(row)
    return [
        Finding(
            row.kind,
            row.topic,
            row.partition,
            None if row.first == NOWHERE else row.first,
            None if row.last == NOWHERE else row.last,
            row.txn_id,
            row.detail,
        )
        for row in joined
    ]


def _of(row: Row, kind: str, detail: str) -> Row:
    return row._replace(kind=kind, detail=detail)


def _nowhere(row: Row, kind: str, detail: str) -> Row:
    return row._replace(kind=kind, first=NOWHERE, last=NOWHERE, detail=detail)
