"""The head of a record batch: 61 bytes, big-endian, that lie open in front of the records.

base offset 8 | length of the rest 4 | leader epoch 4 | magic 1 | CRC-32C of all that follows 4
| attributes 2 | last offset delta 4 | base timestamp 8 | largest timestamp 8 | producer id 8
| producer epoch 2 | base sequence 4 | count of records 4
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import google_crc32c

from magnetar_core.errors import ChecksumMismatch, InvalidArgument

HEAD = struct.Struct(">qiibIhiqqqhii")
# From the beginning up to and with the length.
LENGTH_END = 12
# Where the bytes begin that the checksum covers.
CHECKED_START = 21
MAGIC = 2

COMPRESSION_MASK = 0b111
LOG_APPEND_TIME = 1 << 3
TRANSACTIONAL = 1 << 4
CONTROL = 1 << 5
_KNOWN_ATTRIBUTES = COMPRESSION_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL

# The timestamp of a record that has none.
NO_TIMESTAMP_MS = -1
# Length, attributes, both deltas, no key, no value, no headers: a byte each.
RECORD_BYTES_MIN = 7


class Compression(IntEnum):
    """Compression of the records."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_COMPRESSIONS = {one.value: one for one in Compression}


class Head(NamedTuple):
    """The fields of a batch that can be read without opening it.

    Attributes:
        compression: how the records are compressed.
        attributes: LOG_APPEND_TIME, TRANSACTIONAL and CONTROL.
        last_offset_delta: from the base offset to the last offset of the batch.
        base_timestamp_ms: timestamps count from it.
        timestamp_ms_max: the largest timestamp; with LOG_APPEND_TIME, that of all records.
    """

    compression: Compression
    attributes: int
    base_offset: int
    last_offset_delta: int
    base_timestamp_ms: int
    timestamp_ms_max: int
    record_count: int


def read_head(batch: bytes, *, verify: bool = True) -> Head:
    """Validate a batch without opening it.

    Args:
        verify: whether to check the checksum.
    Raises:
        InvalidArgument: not exactly one batch of version 2, a batch of the log itself, or fields
            that contradict each other.
        ChecksumMismatch: the batch is damaged.
    """
    if len(batch) < HEAD.size:
        raise InvalidArgument(f"{len(batch)} bytes are too short for a record batch")
    (
        base_offset,
        length,
        _,
        magic,
        checksum,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        timestamp_ms_max,
        *_,
        count,
    ) = HEAD.unpack_from(batch)
    if magic != MAGIC:
        raise InvalidArgument(f"a record batch of version {magic}, and not {MAGIC}")
    if length != len(batch) - LENGTH_END:
        raise InvalidArgument("not exactly one record batch")
    if verify and google_crc32c.value(bytes(memoryview(batch)[CHECKED_START:])) != checksum:
        raise ChecksumMismatch()
    compression = _COMPRESSIONS.get(attributes & COMPRESSION_MASK)
    if compression is None or attributes & ~_KNOWN_ATTRIBUTES:
        raise InvalidArgument(f"a record batch with unknown attributes {attributes:#x}")
    if attributes & CONTROL:
        raise InvalidArgument("a control batch has no messages")
    if count < 1 or last_offset_delta < count - 1:
        raise InvalidArgument(
            f"a record batch of {count} records for {last_offset_delta + 1} offsets"
        )
    return Head(
        compression,
        attributes,
        base_offset,
        last_offset_delta,
        base_timestamp_ms,
        timestamp_ms_max,
        count,
    )
