"""Records of a batch, as lists.

The loop over records is plain Python, written out for integers of one and two bytes, as nearly all
are. docs/design/0026-null-values.md has measurements, and says why no compiled reader is taken.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar_core.errors import InvalidArgument, MessageTooLarge
from magnetar_core.kafka_records.decompression import opened
from magnetar_core.record_batch import (
    CONTROL,
    HEAD_BYTES,
    KNOWN_ATTRIBUTES,
    LOG_APPEND_TIME,
    NONE,
    RECORD_BYTES_MIN,
    Head,
    read_head,
)

# Name and value of each header of a record, in order; names may repeat.
Headers = list[tuple[bytes, bytes | None]]

_VARINT_BITS_MAX = 70


class Records(NamedTuple):
    """Records of a batch, in columns.

    Attributes:
        values: None for a record without a value, a tombstone.
        keys: None for a record without a key; None instead of the list: no record has one.
        timestamps_ms: NO_TIMESTAMP for a record without one.
        headers: by the place of a record, of those that have some.
    """

    values: list[bytes | None]
    keys: list[bytes | None] | None
    timestamps_ms: list[int]
    headers: dict[int, Headers]


def read_records(batch: bytes, *, bytes_max: int) -> Records:
    """Open a batch. Its checksum is not looked at.

    Args:
        bytes_max: the largest size of its records when they are decompressed.
    Raises:
        InvalidArgument: as read_head, or the records contradict the head, or are none of a client.
        MessageTooLarge: it exceeds bytes_max.
    """
    head = read_head(batch)
    if head.attributes & ~KNOWN_ATTRIBUTES or head.attributes & CONTROL:
        raise InvalidArgument(f"no client sends a RecordBatch with attributes {head.attributes:#x}")
    if head.compression == NONE:
        data, start = batch, HEAD_BYTES
    else:
        data, start = opened(batch[HEAD_BYTES:], head.compression, bytes_max), 0
    size = len(data) - start
    if size > bytes_max:
        raise MessageTooLarge(
            f"a RecordBatch of {size} bytes exceeds {bytes_max}", body_bytes_max=bytes_max
        )
    if size < head.count * RECORD_BYTES_MIN:
        raise InvalidArgument(f"{size} bytes cannot hold {head.count} records")
    try:
        return _read(data, start, head)
    except IndexError as error:
        raise InvalidArgument("the records of a RecordBatch are cut short") from error


def _read(data: bytes, at: int, head: Head) -> Records:
    """Read opened records, which begin at an index and end with the bytes.

    What lies beyond the end raises IndexError, or makes the last record end elsewhere than it says.
    """
    count = head.count
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    deltas: list[int] = []
    headers: dict[int, Headers] = {}
    for place in range(count):
        # The zigzag form of an integer is twice its size, and odd for those below zero.
        length = data[at]
        at += 1
        if length > 127:
            byte = data[at]
            if byte < 128:
                length = length & 127 | byte << 7
                at += 1
            else:
                length, at = _varint(data, at - 1)
        end = at + (length >> 1)
        at += 1  # The attributes, which have no meaning.
        delta = data[at]
        at += 1
        if delta > 127:
            byte = data[at]
            if byte < 128:
                delta = delta & 127 | byte << 7
                at += 1
            else:
                delta, at = _varint(data, at - 1)
        deltas.append(delta)
        offset = data[at]
        at += 1
        if offset > 127:
            byte = data[at]
            if byte < 128:
                offset = offset & 127 | byte << 7
                at += 1
            else:
                offset, at = _varint(data, at - 1)
        if offset != place << 1:
            raise InvalidArgument(
                f"record {place} of a RecordBatch does not have the offset {place}"
            )
        length = data[at]
        at += 1
        if length > 127:
            byte = data[at]
            if byte < 128:
                length = length & 127 | byte << 7
                at += 1
            else:
                length, at = _varint(data, at - 1)
        if length & 1:
            _require_absent(length)
            keys.append(None)
        else:
            start = at
            at += length >> 1
            keys.append(data[start:at])
        length = data[at]
        at += 1
        if length > 127:
            byte = data[at]
            if byte < 128:
                length = length & 127 | byte << 7
                at += 1
            else:
                length, at = _varint(data, at - 1)
        if length & 1:
            _require_absent(length)
            values.append(None)
        else:
            start = at
            at += length >> 1
            values.append(data[start:at])
        if data[at]:
            headers[place], at = _headers(data, at)
        else:
            at += 1
        if at != end:
            raise InvalidArgument(f"record {place} of a RecordBatch has not the size that it says")
    if at != len(data):
        raise InvalidArgument("bytes follow the records of a RecordBatch")
    if head.attributes & LOG_APPEND_TIME:
        timestamps_ms = [head.max_timestamp_ms] * count
    else:
        base = head.first_timestamp_ms
        timestamps_ms = [base + (delta >> 1 ^ -(delta & 1)) for delta in deltas]
    return Records(values, None if keys.count(None) == count else keys, timestamps_ms, headers)


def _headers(data: bytes, at: int) -> tuple[Headers, int]:
    count, at = _varint(data, at)
    if count & 1:
        raise InvalidArgument("a record has less than no headers")
    found: Headers = []
    for _ in range(count >> 1):
        length, at = _varint(data, at)
        if length & 1:
            raise InvalidArgument("a header has no name")
        start = at
        at += length >> 1
        name = data[start:at]
        length, at = _varint(data, at)
        value = None
        if length & 1:
            _require_absent(length)
        else:
            start = at
            at += length >> 1
            value = data[start:at]
        found.append((name, value))
    return found, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer in its zigzag form, and where it ends."""
    found = 0
    for shift in range(0, _VARINT_BITS_MAX, 7):
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
    raise InvalidArgument("an integer of a record has more than 64 bits")


def _require_absent(length: int) -> None:
    """Check that a size below zero is -1, which says that there are no bytes."""
    if length != 1:
        raise InvalidArgument("a record has a size below -1")
