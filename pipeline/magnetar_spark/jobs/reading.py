"""Reads a range of a partition, and reports what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from magnetar import blocking
from magnetar.message import AssembledBatch, MessageColumns
from magnetar_core.batch import read_header
from magnetar_core.errors import (
    ChecksumMismatch,
    DataLoss,
    Gone,
    InternalError,
    InvalidArgument,
    LogUnavailable,
    OutcomeUnknown,
    OutOfRange,
    TopicNotFound,
)
from magnetar_spark.planning import Range

# One message at a time, to come as close to what is missing as can be.
_CLOSELY: dict[str, Any] = {"messages_max": 1, "bytes_max": 1}
# Batches without an error, until it is read in bulk again.
_CLOSE_BATCHES = 64
# Of one message; a part has a mebibyte.
_PARTS_MAX = 1_024
# Of one read, where servers are busy.
_ATTEMPTS_MAX = 5
_UNANSWERED = (LogUnavailable, OutcomeUnknown)
_UNREADABLE = (DataLoss, ChecksumMismatch, InternalError, InvalidArgument)


@dataclass(frozen=True)
class Lost:
    """Nothing can be read before `next_offset`.

    Attributes:
        txn_id: the transaction whose messages are missing; empty if the broker does not say.
        is_damaged: whether the data exists but is not a batch, or its checksum does not fit.
    """

    next_offset: int
    detail: str
    txn_id: str = ""
    is_damaged: bool = False


@dataclass(frozen=True)
class Removed:
    """The messages before `next_offset` were removed in order, by retention or with the topic."""

    next_offset: int


Piece = MessageColumns | Lost | Removed


def read_all(client: blocking.Client, wanted: Range) -> Iterator[Piece]:
    """Yield the messages of a range, in order, and what is missing.

    If several rows of the store are missing close to each other, the rows between them may count as
    lost too.

    Raises:
        MagnetarError: the servers cannot be reached.
    """
    at = wanted.start
    closely = False
    attempts = 0
    while at < wanted.end:
        begun = at
        try:
            for columns in _columns(client, wanted, at, closely=closely):
                damage = _damage(columns)
                yield columns if damage is None else damage
                at = max(at, columns.last_offset + 1)
            if not closely:
                return  # The last parts of a message may be beyond the end.
            closely = False
            if at == begun:  # No error, and no message either.
                at = _next_readable(client, wanted, at)
                yield Lost(at, "no message can be read here")
        except _UNANSWERED:
            attempts = attempts + 1 if at == begun else 1
            if attempts == _ATTEMPTS_MAX:
                raise
        except (Gone, TopicNotFound):
            yield Removed(wanted.end)
            return
        except OutOfRange as error:
            first = int(error.details.get("first_offset", 0))
            if first <= at:
                yield Lost(wanted.end, f"the partition ends before: {error}")
                return
            at = min(first, wanted.end)
            yield Removed(at)
        except _UNREADABLE as error:
            if not closely:
                closely = True
                continue
            at = _next_readable(client, wanted, at)
            yield Lost(
                at,
                str(error),
                error.details.get("txn_id", ""),
                is_damaged=not isinstance(error, DataLoss) or error.is_damaged,
            )


def behind_cut_message(client: blocking.Client, wanted: Range) -> int:
    """Return where the first message begins, if the range cuts a message that was sent in parts.

    Such a message is read at its first offset; its other offsets give neither a message nor an
    error. If no message begins in the range, the result is its end.

    Raises:
        MagnetarError: the servers cannot be reached.
    """
    end = min(wanted.end, wanted.start + _PARTS_MAX)
    try:
        for at in range(wanted.start, end):
            if any(True for _ in _columns_at(client, wanted, at)):
                return at
    except (*_UNREADABLE, Gone, TopicNotFound, OutOfRange):
        return wanted.start  # read_all() meets it again, and says what it is.
    return wanted.end if end == wanted.end else wanted.start


def _columns_at(client: blocking.Client, wanted: Range, offset: int) -> Iterator[MessageColumns]:
    return client.read_columns(wanted.topic, wanted.partition, offset, offset + 1, **_CLOSELY)


def _columns(
    client: blocking.Client, wanted: Range, at: int, *, closely: bool
) -> Iterator[MessageColumns]:
    topic, partition = wanted.topic, wanted.partition
    if not closely:
        for pieces in client.read_ahead(topic, partition, at, wanted.end, topic_id=wanted.topic_id):
            yield from pieces
        return
    columns = client.read_columns(topic, partition, at, wanted.end, **_CLOSELY)
    for _, one in zip(range(_CLOSE_BATCHES), columns, strict=False):
        yield one


def _damage(columns: MessageColumns) -> Lost | None:
    """Parts of a message were looked at when it was put together."""
    if isinstance(columns.batch, AssembledBatch):
        return None
    try:
        read_header(columns.batch.data)
    except (ChecksumMismatch, InvalidArgument) as error:
        txn_id = str(columns.txn_id or "")
        return Lost(columns.last_offset + 1, str(error), txn_id, is_damaged=True)
    return None


def _next_readable(client: blocking.Client, wanted: Range, at: int) -> int:
    """The first offset behind `at` that can be read; the range's end when there is none.

    Looks ever further ahead, and then halves: a few dozen reads, however much is missing.
    """
    unreadable, step = at, 1
    while True:
        probed = at + step
        if probed >= wanted.end:
            found = wanted.end
            break
        readable = _readable_at(client, wanted, probed)
        if readable is not None:
            found = max(readable, unreadable + 1)
            break
        unreadable, step = probed, 2 * step
    while found - unreadable > 1:
        middle = (unreadable + found) // 2
        readable = _readable_at(client, wanted, middle)
        if readable is None:
            unreadable = middle
        else:
            found = max(readable, unreadable + 1)
    return found


def _readable_at(client: blocking.Client, wanted: Range, offset: int) -> int | None:
    """Return the beginning of the batch with an offset; None if it cannot be read."""
    try:
        for one in _columns_at(client, wanted, offset):
            return min(offset, one.batch.first_offset)
    except _UNREADABLE:
        return None
    return offset
