"""Entries of a partition log: a DATA batch, or a TXN_COMMIT marker. Pure.

Entries never change. Their classes do not forbid it, since an object that does costs six times as
much to make, and every send or commit makes some.

A marker says whose messages make up the transaction, in which order, and how many; its messages lie
in the txnlog under its TxnID. An entry's id is the offset of its first message, and it spans as
many offsets as it has messages.
Source: PIP-31, Broker - Transaction Buffer, Message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, NamedTuple

from magnetar_broker import keys
from magnetar_broker.transactions.recent_messages import Messages
from magnetar_core.batch import BatchHeader, read_header
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.errors import DAMAGED, ChecksumMismatch, DataLoss, InvalidArgument
from magnetar_core.ids import TxnID

DATA = 0
TXN_COMMIT = 1

# kind, count of messages, append time
_HEADER = struct.Struct("<BIq")
# Of a marker: TxnID, stored bytes, stamp, count of writers. Behind it the writers.
_MARKER = struct.Struct("<QQQQI")
_MARKER_HEAD = struct.Struct(_HEADER.format + _MARKER.format.removeprefix("<"))
# Ordinal, producer id, count of messages, count of batch starts. Behind it these, of 8 bytes each.
_WRITER = struct.Struct("<IQQI")

# Measured memory of an entry, besides the batch's own bytes.
DATA_BYTES = 200
MARKER_BYTES = 450


class MarkerWriter(NamedTuple):
    """A producer's part of a committed transaction."""

    ordinal: int
    producer_id: int
    count: int  # type: ignore[assignment]
    # Index of the first message of each batch, which is in its row's key. Empty: not noted.
    batch_starts: tuple[int, ...] = ()


@dataclass(slots=True)
class DataEntry:
    """A batch of plain messages."""

    entry_id: int
    count: int
    append_time_ms: int
    batch: bytes
    # Plain messages belong to no commit.
    stamp: ClassVar[int] = NO_STAMP

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.entry_id + self.count

    @property
    def retained_bytes(self) -> int:
        """Bytes that count for retention."""
        return len(self.batch)

    @property
    def tail_bytes(self) -> int:
        """Memory that it takes in the tail of the log."""
        return DATA_BYTES + len(self.batch)

    def to_bytes(self) -> bytes:
        """Return the entry as stored."""
        return _HEADER.pack(DATA, self.count, self.append_time_ms) + self.batch


@dataclass(slots=True)
class MarkerEntry:
    """Commit marker: the place of a transaction in the partition's order."""

    entry_id: int
    count: int
    append_time_ms: int
    txn_id: TxnID
    writers: tuple[MarkerWriter, ...]
    stored_bytes: int
    # The messages of a small transaction that has just ended; they are not stored here.
    messages: Messages | None = field(default=None, compare=False, repr=False)
    # Of the commit.
    stamp: int = NO_STAMP

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.entry_id + self.count

    @property
    def retained_bytes(self) -> int:
        """Bytes that count for retention."""
        return self.stored_bytes

    @property
    def tail_bytes(self) -> int:
        """Memory that it takes in the tail of the log, with its messages if they are there."""
        return MARKER_BYTES if self.messages is None else MARKER_BYTES + self.stored_bytes

    def to_bytes(self) -> bytes:
        """Return the entry as stored."""
        most_bits, least_bits = self.txn_id
        writers = self.writers
        head = _MARKER_HEAD.pack(
            TXN_COMMIT,
            self.count,
            self.append_time_ms,
            most_bits,
            least_bits,
            self.stored_bytes,
            self.stamp,
            len(writers),
        )
        parts = [head]
        for ordinal, producer_id, count, starts in writers:
            start_count = len(starts)
            row = _writer_row(start_count)
            parts.append(row.pack(ordinal, producer_id, count, start_count, *starts))
        return b"".join(parts)


Entry = DataEntry | MarkerEntry


@lru_cache(maxsize=256)
def _writer_row(start_count: int) -> struct.Struct:
    """Return the layout of a marker's writer with so many batch starts."""
    return struct.Struct(f"{_WRITER.format}{start_count}Q")


def parse_entry(entry_id: int, data: bytes, *, verify: bool = False) -> Entry:
    """Parse the bytes that to_bytes() returned.

    Args:
        verify: verify a batch's checksum, too.
    Raises:
        DataLoss: the bytes are not those that were stored.
    """
    try:
        kind, count, append_time_ms = _HEADER.unpack_from(data)
        body = data[_HEADER.size :]
        if kind == DATA:
            entry: Entry = DataEntry(entry_id, count, append_time_ms, body)
            stored_count = stored_batch_header(body, verify=verify).count
        else:
            *txn_id, stored_bytes, stamp, writer_count = _MARKER.unpack_from(body)
            writers = _parse_writers(body[_MARKER.size :], writer_count)
            entry = MarkerEntry(
                entry_id, count, append_time_ms, TxnID(*txn_id), writers, stored_bytes, stamp=stamp
            )
            stored_count = sum(writer.count for writer in writers)
    except struct.error as error:
        raise DataLoss(f"the entry at {entry_id} is damaged: {error}", state=DAMAGED) from error
    if kind not in (DATA, TXN_COMMIT) or count != stored_count:
        raise DataLoss(
            f"the entry at {entry_id} is damaged: its parts contradict each other", state=DAMAGED
        )
    return entry


def _parse_writers(data: bytes, count: int) -> tuple[MarkerWriter, ...]:
    """Parse the writers at the end of a marker.

    Raises:
        struct.error: there are fewer, or something follows them.
    """
    writers: list[MarkerWriter] = []
    at = 0
    for _ in range(count):
        ordinal, producer_id, messages, start_count = _WRITER.unpack_from(data, at)
        at += _WRITER.size
        starts = struct.unpack_from(f"<{start_count}Q", data, at)
        at += 8 * start_count
        writers.append(MarkerWriter(ordinal, producer_id, messages, starts))
    if at != len(data):
        raise struct.error(f"{len(data) - at} bytes follow the writers of a marker")
    return tuple(writers)


def parse_entries(rows: Iterable[tuple[bytes, bytes]], *, verify: bool = False) -> list[Entry]:
    """Parse rows of the log, up to the first damaged row.

    A store detects damage by checksums of its own. Damage that these miss is noticed here, as far
    as the batches' checksums reach.

    Args:
        verify: as for parse_entry.
    Raises:
        DataLoss: the first row is damaged.
    """
    entries: list[Entry] = []
    for key, value in rows:
        try:
            entries.append(parse_entry(keys.last_u64(key), value, verify=verify))
        except DataLoss:
            if not entries:
                raise
            break
    return entries


def stored_batch_header(batch: bytes, *, verify: bool = True) -> BatchHeader:
    """Return the header of a stored batch.

    Raises:
        DataLoss: the batch is damaged.
    """
    try:
        return read_header(batch, verify=verify)
    except (ChecksumMismatch, InvalidArgument) as error:
        raise DataLoss(f"a stored batch is damaged: {error}", state=DAMAGED) from error
