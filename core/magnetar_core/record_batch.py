"""Kafka's RecordBatch of format 2: its head, and its records. Pure.

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
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import google_crc32c
import lz4.frame
import zstandard

from magnetar_core.errors import ChecksumMismatch, InvalidArgument, MessageTooLarge

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

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

NO_TIMESTAMP = -1
# Attributes, three deltas and lengths of one byte each, the count of headers, its own length.
RECORD_BYTES_MIN = 7
_SNAPPY_FRAMES = b"\x82SNAPPY\x00"
_SNAPPY_HEAD_BYTES = 16


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


class Record(NamedTuple):
    """A message as Kafka has it: key, value and values of headers may be null."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


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


def read_records(batch: memoryview, *, bytes_max: int) -> list[Record]:
    """Open a batch.

    Args:
        bytes_max: the largest size of its records when they are decompressed.
    Raises:
        InvalidArgument: it cannot be decompressed, or its records contradict its head.
        MessageTooLarge: it exceeds bytes_max.
    """
    head = read_head(batch)
    body = _decompressed(batch[HEAD_BYTES:], head.compression, bytes_max)
    try:
        records = list(_records(body, head))
    except (IndexError, ValueError) as error:
        raise InvalidArgument("the records of a RecordBatch cannot be read") from error
    return records


def _records(body: bytes, head: Head) -> Iterator[Record]:
    """Yield the records of a decompressed body.

    Raises:
        IndexError: it is cut short.
        ValueError: it contradicts itself.
    """
    if head.count * RECORD_BYTES_MIN > len(body):
        raise ValueError("there are fewer bytes than the records need")
    first_ms, at = head.first_timestamp_ms, 0
    is_append_time = head.attributes & LOG_APPEND_TIME
    for number in range(head.count):
        length, at = _varint(body, at)
        end = at + length
        delta_ms, at = _varint(body, at + 1)
        offset_delta, at = _varint(body, at)
        key, at = _nullable(body, at)
        value, at = _nullable(body, at)
        header_count, at = _varint(body, at)
        headers: list[tuple[bytes, bytes | None]] = []
        if header_count:
            if not 0 < header_count <= len(body):
                raise ValueError("a record has an impossible count of headers")
            for _ in range(header_count):
                name, at = _nullable(body, at)
                if name is None:
                    raise ValueError("a header has no name")
                text, at = _nullable(body, at)
                headers.append((name, text))
        if at != end or offset_delta != number:
            raise ValueError("a record contradicts itself")
        if is_append_time:
            timestamp_ms = head.max_timestamp_ms
        else:
            timestamp_ms = NO_TIMESTAMP if first_ms == NO_TIMESTAMP else first_ms + delta_ms
        yield Record(timestamp_ms, key, value, headers)
    if at != len(body):
        raise ValueError("bytes are left over")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint and where the next field begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _nullable(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if length < 0:
        if length != -1:
            raise ValueError("a length is negative")
        return None, at
    end = at + length
    if end > len(data):
        raise IndexError("a field is cut short")
    return data[at:end], end


def encode_records(records: Iterable[Record], *, base_offset: int) -> bytes:
    """Build a batch that is not compressed.

    Raises:
        InvalidArgument: there are no records.
    """
    listed = list(records)
    if not listed:
        raise InvalidArgument("a RecordBatch needs at least one record")
    first_ms = listed[0].timestamp_ms
    body, one = bytearray(), bytearray()
    for number, (timestamp_ms, key, value, headers) in enumerate(listed):
        one.clear()
        one.append(0)
        _put_varint(one, timestamp_ms - first_ms)
        _put_varint(one, number)
        _put_nullable(one, key)
        _put_nullable(one, value)
        _put_varint(one, len(headers))
        for name, text in headers:
            _put_nullable(one, name)
            _put_nullable(one, text)
        _put_varint(body, len(one))
        body += one
    count = len(listed)
    max_ms = max(record.timestamp_ms for record in listed)
    checked = _TAIL.pack(0, count - 1, first_ms, max_ms, -1, -1, -1, count) + body
    # Leader epoch, magic and checksum are counted, too.
    following = len(checked) + _LEAD.size - _PREFIX.size
    return (
        _LEAD.pack(base_offset, following, -1, MAGIC, google_crc32c.value(bytes(checked))) + checked
    )


def _put_varint(out: bytearray, number: int) -> None:
    value = (number << 1) ^ (number >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
        return
    _put_varint(out, len(data))
    out += data


def _decompressed(stored: memoryview, codec: int, bytes_max: int) -> bytes:
    """Return decompressed records, of bytes_max at most.

    Raises:
        InvalidArgument: they cannot be decompressed.
        MessageTooLarge: there are more.
    """
    try:
        if codec == NONE:
            body = bytes(stored)
        elif codec == GZIP:
            gzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
            body = gzip.decompress(stored, bytes_max + 1)
        elif codec == SNAPPY:
            body = _unsnapped(bytes(stored), bytes_max)
        elif codec == LZ4:
            frame = lz4.frame.LZ4FrameDecompressor()
            body = bytes(frame.decompress(bytes(stored), max_length=bytes_max + 1))
        elif codec == ZSTD:
            with zstandard.ZstdDecompressor().stream_reader(stored) as reader:
                body = _read_up_to(reader, bytes_max + 1)
        else:
            raise InvalidArgument(f"a RecordBatch has the unknown compression {codec}")
    except (zlib.error, zstandard.ZstdError, RuntimeError, ValueError, IndexError) as error:
        raise InvalidArgument("a RecordBatch cannot be decompressed") from error
    if len(body) > bytes_max:
        raise _too_large(bytes_max)
    return body


def _too_large(bytes_max: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"a RecordBatch of more than {bytes_max} bytes when it is opened", body_bytes_max=bytes_max
    )


def _read_up_to(reader: zstandard.ZstdDecompressionReader, byte_count: int) -> bytes:
    pieces: list[bytes] = []
    while byte_count:
        piece = reader.read(byte_count)
        if not piece:
            break
        pieces.append(piece)
        byte_count -= len(piece)
    return b"".join(pieces)


def _unsnapped(stored: bytes, bytes_max: int) -> bytes:
    """Decompress Snappy: a block, or Java's frames of blocks."""
    if not stored.startswith(_SNAPPY_FRAMES):
        return _snappy_block(stored, bytes_max)
    pieces: list[bytes] = []
    at = _SNAPPY_HEAD_BYTES
    while at < len(stored):
        length = int.from_bytes(stored[at : at + 4], "big")
        at += 4
        pieces.append(_snappy_block(stored[at : at + length], bytes_max))
        bytes_max -= len(pieces[-1])
        at += length
    return b"".join(pieces)


def _snappy_block(data: bytes, bytes_max: int) -> bytes:
    """Decompress a block of Snappy.

    Raises:
        IndexError: it is cut short.
        ValueError: it contradicts itself.
        MessageTooLarge: it exceeds bytes_max.
    Source: https://github.com/google/snappy/blob/main/format_description.txt
    """
    size = shift = at = 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ValueError("the size is not a number of 32 bits")
    if size > bytes_max:
        raise _too_large(bytes_max)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                width = length - 60
                length = _little(data, at, width) + 1
                at += width
            if at + length > len(data):
                raise IndexError("a literal is cut short")
            out += data[at : at + length]
            at += length
        else:
            if kind == 1:
                length = (tag >> 2 & 7) + 4
                distance = (tag >> 5) << 8 | data[at]
                at += 1
            else:
                length = (tag >> 2) + 1
                width = 2 if kind == 2 else 4
                distance = _little(data, at, width)
                at += width
            if not 0 < distance <= len(out):
                raise ValueError("a copy begins before the data")
            start = len(out) - distance
            if distance >= length:
                out += out[start : start + length]
            else:
                piece = bytes(out[start:])
                out += (piece * (length // distance + 1))[:length]
        if len(out) > size:
            raise ValueError("the data exceeds its size")
    if len(out) != size:
        raise ValueError("the data is shorter than its size")
    return bytes(out)


def _little(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise IndexError("a length or a distance is cut short")
    return int.from_bytes(data[at : at + width], "little")
