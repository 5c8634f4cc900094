"""Kafka's RecordBatch of format 2: its head. The records are opened elsewhere. Pure.

    head     base offset 8 | bytes that follow 4 | leader epoch 4 | magic 1 | CRC-32C 4
             | attributes 2 | last offset delta 4 | first and highest timestamp 8 each
             | producer id 8 | producer epoch 2 | base sequence 4 | count of records 4
    records  of each: its length, attributes 1, deltas of timestamp and offset, key, value, headers;
             numbers are zigzag varints, and a length of -1 means null

Big-endian. The checksum begins behind itself: base offset and leader epoch may change without it.
Source: Kafka's documentation, Message Format (https://kafka.apache.org/documentation/#recordbatch).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c

from magnetar_core.errors import ChecksumMismatch, InvalidArgument

_HEAD = struct.Struct(">qiibIhiqqqhii")
HEAD_BYTES = _HEAD.size
MAGIC = 2
MAGIC_AT = 16
# The length field counts what follows it.
_UNCOUNTED_BYTES = 12
_CHECKED_FROM = 21
_EPOCH_AT = 12
_AFTER_EPOCH = 16
_TAIL = struct.Struct(">hiqqqhii")
_LEAD = struct.Struct(">qiibI")
_PREFIX = struct.Struct(">qi")
_NO_EPOCH = b"\xff\xff\xff\xff"

COMPRESSION = 0b111
LOG_APPEND_TIME = 1 << 3
TRANSACTIONAL = 1 << 4
CONTROL = 1 << 5
KNOWN_ATTRIBUTES = COMPRESSION | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

NO_TIMESTAMP = -1
# Attributes, three deltas and lengths of one byte each, the count of headers, its own length.
RECORD_BYTES_MIN = 7


class Head(NamedTuple):
    """Head of a batch.

    Attributes:
        batch_bytes: of the whole batch.
        producer_id: -1: the producer has none.
    """

    base_offset: int
    batch_bytes: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]

    @property
    def compression(self) -> int:
        """The number of the codec."""
        return self.attributes & COMPRESSION


def read_head(batch: bytes | memoryview) -> Head:
    """Return the head of a batch of format 2, which must be alone.

    Raises:
        InvalidArgument: it is cut short, of another format, or its sizes contradict each other.
    """
    if len(batch) < HEAD_BYTES:
        raise InvalidArgument(f"{len(batch)} bytes are too short for a RecordBatch")
    base_offset, following, *others = _HEAD.unpack_from(batch)
    head = Head(base_offset, following + _UNCOUNTED_BYTES, *others)
    if head.magic != MAGIC:
        raise InvalidArgument(f"a RecordBatch has format {head.magic}, not {MAGIC}")
    if head.batch_bytes != len(batch):
        raise InvalidArgument(
            f"a RecordBatch says that it has {head.batch_bytes} bytes, and came with {len(batch)}"
        )
    if head.count < 1 or head.last_offset_delta != head.count - 1:
        raise InvalidArgument(
            f"a RecordBatch of {head.count} records ends at offset delta {head.last_offset_delta}"
        )
    if head.compression == NONE and len(batch) < HEAD_BYTES + RECORD_BYTES_MIN * head.count:
        raise InvalidArgument(f"{len(batch)} bytes cannot hold {head.count} records")
    return head


def check_checksum(batch: bytes, head: Head) -> None:
    """Check that the batch is as its producer made it.

    Raises:
        ChecksumMismatch: it is damaged.
    """
    if google_crc32c.value(batch[_CHECKED_FROM:]) != head.checksum:
        raise ChecksumMismatch()


def at_offset(batch: memoryview, base_offset: int) -> tuple[bytes | memoryview, ...]:
    """Return the pieces of a batch as readers get it: with its offset, and no leader epoch."""
    return (
        base_offset.to_bytes(8, "big"),
        batch[8:_EPOCH_AT],
        _NO_EPOCH,
        batch[_AFTER_EPOCH:],
    )


def with_head(
    records: bytes,
    *,
    count: int,
    base_offset: int,
    first_timestamp_ms: int,
    max_timestamp_ms: int,
    compression: int,
) -> bytes:
    """Return a batch, without leader epoch, producer and sequence.

    Args:
        records: all of them, compressed as `compression` says.
    """
    tail = _TAIL.pack(
        compression, count - 1, first_timestamp_ms, max_timestamp_ms, -1, -1, -1, count
    )
    checksum = google_crc32c.extend(google_crc32c.value(tail), records)
    # Leader epoch, magic and checksum are counted, too.
    following = _LEAD.size - _PREFIX.size + len(tail) + len(records)
    return b"".join((_LEAD.pack(base_offset, following, -1, MAGIC, checksum), tail, records))
