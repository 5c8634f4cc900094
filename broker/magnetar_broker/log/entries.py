"""Entries of a partition log: a DATA batch, or a TXN_COMMIT marker. Pure.

A marker says whose messages make up the transaction, in which order, and how many; its messages lie
in the txnlog under its TxnID. An entry's id is the offset of its first message, and it spans as
many offsets as it has messages.
Source: PIP-31, Broker - Transaction Buffer, Message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from magnetar_broker import keys
from magnetar_broker.transactions.recent_messages import Messages
from magnetar_core.batch import BatchHeader, read_header
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.errors import DAMAGED, ChecksumMismatch, DataLoss, InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.wire import record_pb2 as records

DATA = 0
TXN_COMMIT = 1

# kind, count of messages, append time
_HEADER = struct.Struct("<BIq")


@dataclass(frozen=True, slots=True)
class MarkerWriter:
    """A producer's part of a committed transaction."""

    ordinal: int
    producer_id: int
    count: int
    # Index of the first message of each batch, which is in its row's key. Empty: not noted.
    batch_starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DataEntry:
    """A batch of plain messages."""

    entry_id: int
    count: int
    append_time_ms: int
    batch: bytes

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.entry_id + self.count

    @property
    def retained_bytes(self) -> int:
        """Bytes that count for retention."""
        return len(self.batch)

    def to_bytes(self) -> bytes:
        """Return the entry as stored."""
        return _HEADER.pack(DATA, self.count, self.append_time_ms) + self.batch


@dataclass(frozen=True, slots=True)
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

    def to_bytes(self) -> bytes:
        """Return the entry as stored."""
        # Filled in place: a message that is given to a constructor is serialized on its way.
        marker = records.CommitMarker(stored_bytes=self.stored_bytes, stamp=self.stamp)
        marker.txn_id.most_bits, marker.txn_id.least_bits = self.txn_id
        for writer in self.writers:
            marker.writers.add(
                ordinal=writer.ordinal,
                producer_id=writer.producer_id,
                count=writer.count,
                batch_starts=writer.batch_starts,
            )
        header = _HEADER.pack(TXN_COMMIT, self.count, self.append_time_ms)
        return header + marker.SerializeToString()


Entry = DataEntry | MarkerEntry


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
            marker = records.CommitMarker.FromString(body)
            writers = tuple(
                MarkerWriter(
                    writer.ordinal, writer.producer_id, writer.count, tuple(writer.batch_starts)
                )
                for writer in marker.writers
            )
            txn_id = TxnID.from_wire(marker.txn_id)
            entry = MarkerEntry(
                entry_id,
                count,
                append_time_ms,
                txn_id,
                writers,
                marker.stored_bytes,
                stamp=marker.stamp,
            )
            stored_count = sum(writer.count for writer in writers)
    except (struct.error, DecodeError) as error:
        raise DataLoss(f"the entry at {entry_id} is damaged: {error}", state=DAMAGED) from error
    if kind not in (DATA, TXN_COMMIT) or count != stored_count:
        raise DataLoss(
            f"the entry at {entry_id} is damaged: its parts contradict each other", state=DAMAGED
        )
    return entry


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
