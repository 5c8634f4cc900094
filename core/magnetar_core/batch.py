"""The columnar batch: many messages as a few columns, not as rows. Pure.

    header   magic 2 | version 1 | part 4 bits, codec 4 bits | count 4 | body size 4
             | stored size 4 | key hash 4
    stored   the body below, compressed as the codec says
    checksum CRC-32C over header and stored bytes, 4

    body     flags 4, then for values, and for keys when present:
             offsets, count + 1 times int32, and a run of bytes;
             then, when present, event times, count times int64, NO_EVENT_TIME_MS for a message
             without one; properties, as offsets and bytes: for each message a JSON object of texts
             in UTF-8, or no bytes; which messages have a value, and which have a key, a bit for
             each message.

Without the bits, each message has a value, which may be empty, and an empty key says that there is
none. With them, a message without a value is a tombstone, and a key may be empty. What is absent
has no bytes. A batch that needs none of them has none of them.

A message that is too large for a batch travels as parts: its batch, made as above, is cut into
pieces, and each piece is the body of a batch of its own that says which part it is.

A batch of Kafka's clients is stored as it came: in place of a codec it has RECORD_BATCH, and the
stored bytes are a RecordBatch. Readers open it into the same columns; only its size when it is
opened is not known before.

Little-endian; offsets and bits are laid out as Arrow lays out a binary array, so that a reader
wraps them without a copy. The broker validates the header and stores the bytes that it received: it
looks inside only to learn mixed keys for a Key_Shared subscription.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from enum import IntEnum
from io import BytesIO
from itertools import accumulate, compress, repeat
from json.encoder import encode_basestring as _quoted
from operator import is_not, le, sub
from typing import Final, NamedTuple

import google_crc32c
import lz4.frame
import zstandard

from magnetar_core.errors import ChecksumMismatch, InvalidArgument, MessageTooLarge
from magnetar_core.kafka_records.headers import properties_of
from magnetar_core.kafka_records.reading import read_records
from magnetar_core.record_batch import NO_TIMESTAMP

MAGIC = 0x4D42
VERSION = 1
HEADER = struct.Struct("<HBBIIII")
CHECKSUM = struct.Struct("<I")
FLAGS = struct.Struct("<I")
_OFFSETS_OF_ONE: Final = struct.Struct("=ii")
OVERHEAD_BYTES = HEADER.size + CHECKSUM.size

# The CRC-32C of any bytes that end with their own CRC-32C.
# To copy less than this once more costs less than a checksum of each of its parts.
JOINED_BYTES_MAX = 16 << 10
_CHECKED = google_crc32c.value(bytes(CHECKSUM.size))

# The largest value of the header's count field.
COUNT_MAX = (1 << 32) - 1
# The most that a body with a single message has besides the message: flags, offsets of three
# columns, an event time, bits of two columns.
ONE_MESSAGE_OVERHEAD_BYTES = 38
# The default limit of a body, for callers that have no limit of their own.
BODY_BYTES_MAX = 64 << 20
# More than the best ratio of each codec: LZ4 writes 255 bytes as a single byte, Zstandard a block
# of 128 KiB as four bytes.
_EXPANSION_MAX = {0: 1, 1: 1 << 15, 2: 255}
_EXPANSION_SLACK_BYTES = 1 << 10

HAS_KEYS = 1
HAS_EVENT_TIMES = 2
HAS_PROPERTIES = 4
# Which messages have a value: some have none.
HAS_VALUE_BITS = 8
# Which messages have a key: some have an empty one.
HAS_KEY_BITS = 16
_KNOWN_FLAGS = HAS_KEYS | HAS_EVENT_TIMES | HAS_PROPERTIES | HAS_VALUE_BITS | HAS_KEY_BITS

# What a bit is in a text of digits.
_DIGITS = b"01"
# What follows the name of a message in an error.
NO_VALUE = "has no value, as a tombstone: value_or_none and values_or_none() give None for it"

# The event time of a message that has none. Any other int64 is a time, 0 as well.
NO_EVENT_TIME_MS = -(1 << 63)

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("Magnetar's batches are little-endian, and this machine is not")


class Codec(IntEnum):
    """Compression of a batch's body."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


# In place of a codec: the stored bytes are a RecordBatch of Kafka, compressed in its own way.
RECORD_BATCH = 3


class Part(IntEnum):
    """Part of a message that a batch carries.

    WHOLE batches may have many messages, parts have 1.
    """

    WHOLE = 0
    FIRST = 1
    MIDDLE = 2
    LAST = 3


class BatchHeader(NamedTuple):
    """The fields of a batch that the broker needs.

    Attributes:
        codec: a Codec, or RECORD_BATCH.
        key_hash: CRC-32C of the key that all messages share; 0 when keys differ or are absent.
    """

    part: Part

    codec: int
    count: int  # type: ignore[assignment]
    body_bytes: int
    stored_bytes: int
    key_hash: int


_PART_AT = 3
_PART_SHIFT = 4
# Keys are the header's byte. Parts are never compressed; the batch that was cut into parts may be.
_KINDS: dict[int, tuple[Part, int]] = {
    **{codec.value: (Part.WHOLE, codec) for codec in Codec},
    RECORD_BATCH: (Part.WHOLE, RECORD_BATCH),
    **{part << _PART_SHIFT | Codec.NONE: (part, Codec.NONE) for part in Part if part},
}


class Row(NamedTuple):
    """A message of a decoded batch; fields that the message does not have are None."""

    key: bytes | None
    value: bytes | None
    event_time_ms: int | None
    properties: dict[str, str]


class Columns(NamedTuple):
    """A decoded batch. Offset columns (of values, and of keys if any) have count + 1 entries.

    The bytes of a column are a part of the object that `obj` of their memoryview names:
    `value_start` and `key_start` say where they begin in it.

    Attributes:
        value_bits: which messages have a value, as Arrow's bitmap of validity; None: all have.
        key_bits: which messages have a key; None: those whose key is not empty.
    """

    count: int  # type: ignore[assignment]
    value_offsets: array[int]
    value_bytes: memoryview
    key_offsets: array[int] | None
    key_bytes: memoryview | None
    event_times_ms: array[int] | None
    property_offsets: array[int] | None
    property_bytes: memoryview | None
    value_start: int
    key_start: int
    value_bits: memoryview | None = None
    key_bits: memoryview | None = None

    def values(self) -> list[bytes]:
        """Return the value of each message.

        Raises:
            InvalidArgument: a message has no value.
        """
        if self.value_bits is not None:
            for place in absent_places(self.value_bits, self.count):
                raise InvalidArgument(f"message {place} of the batch {NO_VALUE}")
        return _slices(self.value_offsets, self.value_bytes.obj, self.value_start)

    def values_or_none(self) -> Sequence[bytes | None]:
        """Return the value of each message; None for a message without one."""
        values = _slices(self.value_offsets, self.value_bytes.obj, self.value_start)
        return values if self.value_bits is None else _with_none(values, self.value_bits)

    def keys(self) -> list[bytes | None] | None:
        """Return the key of each message, None for a message without one.

        None instead of the list: the batch has no keys.
        """
        if self.key_offsets is None or self.key_bytes is None:
            return None
        keys = _slices(self.key_offsets, self.key_bytes.obj, self.key_start)
        if self.key_bits is not None:
            return _with_none(keys, self.key_bits)
        return [*keys] if all(keys) else [key or None for key in keys]

    def properties(self) -> list[dict[str, str]] | None:
        """Return the properties of each message; None if the batch has none.

        Raises:
            InvalidArgument: the properties are damaged.
        """
        if self.property_offsets is None or self.property_bytes is None:
            return None
        return list(map(_parsed, _slices(self.property_offsets, bytes(self.property_bytes), 0)))

    def event_time_ms(self, place: int) -> int | None:
        """Return the event time of a message; None if it has none."""
        if self.event_times_ms is None:
            return None
        time_ms = self.event_times_ms[place]
        return None if time_ms == NO_EVENT_TIME_MS else time_ms

    def row(self, place: int) -> Row:
        """Return a single message, without reading the others."""
        key = _slice(self.key_offsets, self.key_bytes, place)
        has_key = bool(key) if self.key_bits is None else _bit(self.key_bits, place)
        has_value = self.value_bits is None or _bit(self.value_bits, place)
        return Row(
            key if has_key else None,
            _slice(self.value_offsets, self.value_bytes, place) if has_value else None,
            self.event_time_ms(place),
            _parsed(_slice(self.property_offsets, self.property_bytes, place)),
        )

    def single(self, place: int) -> bytes:
        """Return a batch that has one of these messages, as it is."""
        value = _column_of_one(self.value_offsets, self.value_bytes, place)
        assert value is not None
        times = self.event_times_ms
        return encode_columns(
            1,
            value,
            _column_of_one(self.key_offsets, self.key_bytes, place),
            event_times_ms=None if times is None else times[place : place + 1].tobytes(),
            properties=_column_of_one(self.property_offsets, self.property_bytes, place),
            value_bits=_bits_of_one(self.value_bits, place),
            key_bits=_bits_of_one(self.key_bits, place),
        )

    def largest_message_bytes(self, first: int, last: int) -> int:
        """Return the size of the largest message from index first to index last, in bytes.

        The value, the key and the properties count.
        """
        columns = (self.value_offsets, self.key_offsets, self.property_offsets)
        offsets = [column[first : last + 2] for column in columns if column is not None]
        sizes = [map(sub, offset[1:], offset) for offset in offsets]
        return max(map(sum, zip(*sizes, strict=True)))


def encode(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    *,
    event_times_ms: Sequence[int] | None = None,
    properties: Sequence[bytes] | None = None,
    codec: Codec = Codec.NONE,
) -> bytes:
    """Build a batch of len(values) messages. Each other column, if given, has as many entries.

    Args:
        values, keys: None for a message without one, which is not the same as an empty one.
        event_times_ms: NO_EVENT_TIME_MS for a message without one.
        properties: as encoded_properties() returns them.
    Raises:
        InvalidArgument: no messages, columns of unequal length, or over 2 GiB in a column.
    """
    count = len(values)
    if count == 0:
        raise InvalidArgument("a batch needs at least one message")
    flags = 0
    key_hash = 0
    bits: tuple[bytes, ...] = ()
    try:
        parts = [b"", *_column(values)]
    except TypeError:
        # What fails costs nothing until it does: nearly all batches have only values.
        if None not in values:
            raise
        flags |= HAS_VALUE_BITS
        parts = [b"", *_column([value or b"" for value in values])]
        bits = (_bits_of(values),)
    if keys is not None:
        _check_length(keys, count)
        flags |= HAS_KEYS
        first = keys[0] or b""
        if keys[-1] == first and keys.count(first) == count:
            key_hash = google_crc32c.value(first)
        if all(keys):
            parts += _column(keys)
        else:
            parts += _column([key or b"" for key in keys])
            if b"" in keys:
                flags |= HAS_KEY_BITS
                bits += (_bits_of(keys),)
    if event_times_ms is not None:
        _check_length(event_times_ms, count)
        flags |= HAS_EVENT_TIMES
        parts.append(array("q", event_times_ms).tobytes())
    if properties is not None:
        _check_length(properties, count)
        flags |= HAS_PROPERTIES
        parts += _column(properties)
    parts[0] = FLAGS.pack(flags)
    parts += bits
    return _built(count, parts, sum(map(len, parts)), key_hash, codec)


def _check_length(column: Sequence[object], count: int) -> None:
    if len(column) != count:
        raise InvalidArgument(f"a column has {len(column)} entries for {count} messages")


def encoded_properties(properties: Mapping[str, str]) -> bytes:
    """Return a message's properties as a batch stores them; empty if there are none.

    Raises:
        TypeError: a name or a value is not a text.
        UnicodeEncodeError: a text has a lone surrogate.
    """
    if not properties:
        return b""
    # A dumped dict would take anything for a value that JSON can write.
    quoted = [f"{_quoted(name)}: {_quoted(text)}" for name, text in properties.items()]
    return f"{{{', '.join(quoted)}}}".encode()


def _column_of_one(
    offsets: array[int] | None, column: memoryview | None, place: int
) -> tuple[bytes, bytes] | None:
    """Return the entry of a column for one message, as a column; None: there is no such column."""
    if offsets is None:
        return None
    found = _slice(offsets, column, place)
    return array("i", (0, len(found))).tobytes(), found


def encode_columns(
    count: int,
    values: tuple[bytes | memoryview, bytes | memoryview],
    keys: tuple[bytes | memoryview, bytes | memoryview] | None = None,
    *,
    event_times_ms: bytes | memoryview | None = None,
    properties: tuple[bytes | memoryview, bytes | memoryview] | None = None,
    value_bits: bytes | memoryview | None = None,
    key_bits: bytes | memoryview | None = None,
    key_hash: int = 0,
    codec: Codec = Codec.NONE,
) -> bytes:
    """Build a batch from columns that already have the layout that `Columns` describes.

    Args:
        values: offsets (count + 1 times int32, from 0), and the bytes that they divide. Neither is
            checked. The same holds for keys and properties.
        event_times_ms: count times int64.
        value_bits, key_bits: as in `Columns`, with zeros behind the last message. What is absent
            has no bytes. There are no bits of keys without keys.
        key_hash: hash of the key that all messages share; 0 if keys differ.
    Raises:
        InvalidArgument: no messages.
    """
    if count == 0:
        raise InvalidArgument("a batch needs at least one message")
    flags = 0
    parts: list[bytes | memoryview] = [b"", *values]
    if keys is not None:
        flags |= HAS_KEYS
        parts += keys
    if event_times_ms is not None:
        flags |= HAS_EVENT_TIMES
        parts.append(event_times_ms)
    if properties is not None:
        flags |= HAS_PROPERTIES
        parts += properties
    if value_bits is not None:
        flags |= HAS_VALUE_BITS
        parts.append(value_bits)
    if key_bits is not None:
        flags |= HAS_KEY_BITS
        parts.append(key_bits)
    parts[0] = FLAGS.pack(flags)
    return _built(count, parts, sum(map(buffer_bytes, parts)), key_hash, codec)


def _bits_of_one(bits: memoryview | None, place: int) -> bytes | None:
    return None if bits is None else bytes((_bit(bits, place),))


def _bits_of(entries: Sequence[bytes | None]) -> bytes:
    """Return which entries are not None, a bit for each, from the lowest bit of the first byte."""
    digits = bytes(map(_DIGITS.__getitem__, map(is_not, entries, repeat(None))))
    return int(digits[::-1], 2).to_bytes(-(-len(entries) // 8), "little")


def absent_places(bits: bytes | memoryview, count: int) -> list[int]:
    """Return the places of the entries that are absent, in ascending order.

    Raises:
        ValueError: there are bits for more entries than `count`.
    """
    present = int.from_bytes(bits, "little")
    if present >> count:
        raise ValueError("bits left over")
    # A further one keeps the zeros at the end; the digits begin with the highest bit.
    digits = bin(present | 1 << count)[:2:-1]
    return list(compress(range(count), map("0".__eq__, digits)))


def _bit(bits: memoryview, place: int) -> int:
    return int(bits[place >> 3]) >> (place & 7) & 1


def wrapped_records(records: bytes, count: int) -> bytes:
    """Return the batch that stores a RecordBatch of Kafka, which was checked, as it is."""
    size = len(records)
    return _sealed(HEADER.pack(MAGIC, VERSION, RECORD_BATCH, count, size, size, 0), (records,))


def is_of_kafka(batch: bytes) -> bool:
    """Return whether a batch that read_header has accepted stores a RecordBatch."""
    return batch[_PART_AT] == RECORD_BATCH


def stored_records(batch: bytes) -> memoryview:
    """Return the RecordBatch in a batch of which is_of_kafka() is true."""
    return memoryview(batch)[HEADER.size : -CHECKSUM.size]


def part_of(batch: bytes) -> Part:
    """Return which part a batch is. Call it only for batches that read_header has accepted."""
    return Part(batch[_PART_AT] >> _PART_SHIFT)


def split(batch: bytes, piece_bytes_max: int) -> list[bytes]:
    """Cut the batch of a single message into at least two parts; join() puts them together."""
    piece_bytes = min(piece_bytes_max, -(-len(batch) // 2))
    pieces = [batch[at : at + piece_bytes] for at in range(0, len(batch), piece_bytes)]
    last = len(pieces) - 1
    parts = []
    for number, piece in enumerate(pieces):
        part = Part.FIRST if number == 0 else Part.LAST if number == last else Part.MIDDLE
        kind = part << _PART_SHIFT | Codec.NONE
        header = HEADER.pack(MAGIC, VERSION, kind, 1, len(piece), len(piece), 0)
        parts.append(_sealed(header, (piece,)))
    return parts


def piece_of(batch: bytes) -> memoryview:
    """Return the piece of the original batch that a part carries.

    Raises:
        InvalidArgument: as read_header.
        ChecksumMismatch: as read_header.
    """
    header = read_header(batch)
    return memoryview(batch)[HEADER.size : HEADER.size + header.stored_bytes]


def join(parts: Sequence[bytes]) -> bytes:
    """Return the batch that was split into these parts.

    Raises:
        InvalidArgument: as read_header.
        ChecksumMismatch: as read_header.
    """
    return b"".join(piece_of(part) for part in parts)


def _built(
    count: int,
    body: Sequence[bytes | memoryview],
    body_bytes: int,
    key_hash: int,
    codec: Codec,
) -> bytes:
    """Return the batch with a body, whose parts are copied once if it is large as it is stored."""
    stored_bytes = body_bytes
    stored = body
    if codec:
        stored = (_compress(b"".join(body), codec),)
        stored_bytes = len(stored[0])
    header = HEADER.pack(MAGIC, VERSION, codec, count, body_bytes, stored_bytes, key_hash)
    if stored_bytes > JOINED_BYTES_MAX:
        return _sealed(header, stored)
    # To copy it twice costs less than a checksum of each part.
    joined = b"".join((header, *stored))
    return joined + CHECKSUM.pack(google_crc32c.value(joined))


def _sealed(header: bytes, stored: Sequence[bytes | memoryview]) -> bytes:
    checksum = google_crc32c.value(header)
    for part in stored:
        # It takes no views.
        checksum = google_crc32c.extend(checksum, part if isinstance(part, bytes) else bytes(part))
    return b"".join((header, *stored, CHECKSUM.pack(checksum)))


def buffer_bytes(part: bytes | memoryview) -> int:
    """Return how many bytes a part of a batch has; a view may count items of another size."""
    return part.nbytes if isinstance(part, memoryview) else len(part)


def read_header(batch: bytes, *, verify: bool = True) -> BatchHeader:
    """Validate a batch without opening its body.

    Raises:
        InvalidArgument: not a batch, another version, or sizes that do not fit together.
        ChecksumMismatch: the batch is damaged.
    """
    if len(batch) < OVERHEAD_BYTES:
        raise InvalidArgument(f"{len(batch)} bytes are too short for a batch")
    magic, version, kind, count, body_bytes, stored_bytes, key_hash = HEADER.unpack_from(batch)
    if magic != MAGIC or version != VERSION:
        raise InvalidArgument("not a batch of a version that this server knows")
    found = _KINDS.get(kind)
    if found is None:
        raise InvalidArgument(f"unknown codec or part {kind}")
    part, codec = found
    if part and count != 1:
        raise InvalidArgument("a part belongs to exactly one message")
    if count == 0 or len(batch) != OVERHEAD_BYTES + stored_bytes:
        raise InvalidArgument("the batch's header does not fit its size")
    if verify and google_crc32c.value(batch) != _CHECKED:
        raise ChecksumMismatch()
    fields = part, codec, count, body_bytes, stored_bytes, key_hash
    # Without the constructor of a NamedTuple, which is a Python function.
    return tuple.__new__(BatchHeader, fields)


def check_claims(header: BatchHeader, *, body_bytes_max: int, messages_max: int) -> None:
    """Check that the sizes which a header declares are possible, and within limits.

    The function opens and allocates nothing, because a few bytes may declare gigabytes.

    Raises:
        MessageTooLarge: the body exceeds body_bytes_max, or the count exceeds messages_max.
        InvalidArgument: the stored bytes cannot hold as much as the header declares, or it is a
            RecordBatch, which the port for Kafka's clients checks, and no other.
    """
    part, codec, count, body_bytes, stored_bytes, _ = header
    if codec == RECORD_BATCH:
        raise InvalidArgument("batches of Kafka are sent to the port for Kafka's clients")
    if body_bytes > body_bytes_max:
        raise MessageTooLarge(
            f"a batch of {body_bytes} bytes when it is opened exceeds {body_bytes_max}",
            body_bytes_max=body_bytes_max,
        )
    if count > messages_max:
        raise MessageTooLarge(
            f"a batch of {count} messages exceeds {messages_max}", messages_max=messages_max
        )
    if codec is Codec.NONE:
        plausible = body_bytes == stored_bytes
    else:
        plausible = body_bytes <= stored_bytes * _EXPANSION_MAX[codec] + _EXPANSION_SLACK_BYTES
    if not plausible:
        raise InvalidArgument(f"{stored_bytes} stored bytes cannot be a body of {body_bytes}")
    # Flags, then count + 1 offsets.
    if not part and body_bytes < FLAGS.size + 4 * (count + 1):
        raise InvalidArgument(f"a body of {body_bytes} bytes cannot hold {count} messages")


def open_body(
    batch: bytes, *, verify: bool = True, body_bytes_max: int = BODY_BYTES_MAX
) -> tuple[int, memoryview]:
    """Return the count of messages and the opened body. Its columns are not checked.

    Raises:
        InvalidArgument: as read_header, or the body contradicts its header.
        ChecksumMismatch: as read_header.
        MessageTooLarge: the body exceeds body_bytes_max.
    """
    header = read_header(batch, verify=verify)
    if header.part:
        raise InvalidArgument("a part of a message cannot be opened by itself")
    if header.codec == RECORD_BATCH:
        return header.count, memoryview(_body_of_records(batch, header.count, body_bytes_max))
    check_claims(header, body_bytes_max=body_bytes_max, messages_max=COUNT_MAX)
    stored = memoryview(batch)[HEADER.size : HEADER.size + header.stored_bytes]
    body = _decompress(stored, header)
    if len(body) != header.body_bytes:
        raise InvalidArgument("the batch's body does not fit its header")
    return header.count, memoryview(body)


def _body_of_records(batch: bytes, count: int, body_bytes_max: int) -> bytes:
    """Return the body that a batch would have had if a client of ours had sent its messages."""
    records = read_records(bytes(stored_records(batch)), bytes_max=body_bytes_max)
    if len(records.values) != count:
        raise InvalidArgument("the batch's records do not fit its header")
    properties = None
    if records.headers:
        properties = [b""] * count
        for place, headers in records.headers.items():
            properties[place] = encoded_properties(properties_of(headers))
    made = encode(
        records.values,
        records.keys,
        event_times_ms=_times_of(records.timestamps_ms),
        properties=properties,
    )
    return made[HEADER.size : -CHECKSUM.size]


def _times_of(timestamps_ms: list[int]) -> list[int] | None:
    """Return event times for timestamps of Kafka; None: there are none."""
    if min(timestamps_ms) <= NO_EVENT_TIME_MS or max(timestamps_ms) >= -NO_EVENT_TIME_MS:
        raise InvalidArgument("a record's timestamp does not fit into 64 bits")
    without = timestamps_ms.count(NO_TIMESTAMP)
    if not without:
        return timestamps_ms
    if without == len(timestamps_ms):
        return None
    return [NO_EVENT_TIME_MS if time_ms == NO_TIMESTAMP else time_ms for time_ms in timestamps_ms]


def decode(batch: bytes, *, verify: bool = True, body_bytes_max: int = BODY_BYTES_MAX) -> Columns:
    """Open a batch and return its columns.

    Raises:
        InvalidArgument: as read_header, or the body contradicts its header.
        ChecksumMismatch: as read_header.
        MessageTooLarge: the body exceeds body_bytes_max.
    """
    count, body = open_body(batch, verify=verify, body_bytes_max=body_bytes_max)
    try:
        return _columns(body, count, HEADER.size if body.obj is batch else 0)
    except (struct.error, ValueError, IndexError) as error:
        raise InvalidArgument("the batch's columns do not fit its header") from error


def _columns(body: memoryview, count: int, body_start: int) -> Columns:
    """Return the columns of a body that begins at `body_start` of what its memory belongs to."""
    flags = read_flags(body)
    at = FLAGS.size
    value_offsets, value_bytes, at = _read_column(body, at, count)
    value_start, key_start = body_start + at - len(value_bytes), 0
    key_offsets = key_bytes = event_times = property_offsets = property_bytes = None
    if flags & HAS_KEYS:
        key_offsets, key_bytes, at = _read_column(body, at, count)
        key_start = body_start + at - len(key_bytes)
    if flags & HAS_EVENT_TIMES:
        event_times = array("q")
        event_times.frombytes(body[at : at + 8 * count])
        at += 8 * count
    if flags & HAS_PROPERTIES:
        property_offsets, property_bytes, at = _read_column(body, at, count)
    value_bits = key_bits = None
    if flags & HAS_VALUE_BITS:
        value_bits, at = _read_bits(body, at, value_offsets)
    if key_offsets is not None and flags & HAS_KEY_BITS:
        key_bits, at = _read_bits(body, at, key_offsets)
    if at != len(body):
        raise ValueError("bytes left over")
    return Columns(
        count,
        value_offsets,
        value_bytes,
        key_offsets,
        key_bytes,
        event_times,
        property_offsets,
        property_bytes,
        value_start,
        key_start,
        value_bits,
        key_bits,
    )


def read_flags(body: memoryview) -> int:
    """Return which columns a body has, as the sum of HAS_KEYS and the others.

    Raises:
        struct.error: the body is too short.
        ValueError: there are columns that this version does not know.
    """
    flags = int(FLAGS.unpack_from(body)[0])
    if flags & ~_KNOWN_FLAGS or (flags & HAS_KEY_BITS and not flags & HAS_KEYS):
        raise ValueError("unknown columns")
    return flags


def _column(entries: Sequence[bytes | None]) -> tuple[bytes, bytes]:
    """Return entries as offsets and bytes.

    Raises:
        TypeError: an entry is None.
    """
    if len(entries) == 1:
        (only,) = entries
        # Most batches of small transactions; arrays take several times as long to make.
        if len(only) <= JOINED_BYTES_MAX:  # type: ignore[arg-type]
            return _OFFSETS_OF_ONE.pack(0, len(only)), only  # type: ignore[arg-type, return-value]
    try:
        offsets = array("i", accumulate(map(len, entries), initial=0))  # type: ignore[arg-type]
    except OverflowError as error:
        raise InvalidArgument("a batch's column holds 2 GiB at most") from error
    return offsets.tobytes(), b"".join(entries)  # type: ignore[arg-type]


def _read_column(body: memoryview, at: int, count: int) -> tuple[array[int], memoryview, int]:
    offsets = array("i")
    end = at + 4 * (count + 1)
    if end > len(body):
        raise ValueError("offsets cut short")
    offsets.frombytes(body[at:end])
    size = offsets[count]
    rises = all(map(le, offsets, offsets[1:]))
    if offsets[0] != 0 or not rises or end + size > len(body):
        raise ValueError("offsets out of range")
    return offsets, body[end : end + size], end + size


def _read_bits(body: memoryview, at: int, offsets: array[int]) -> tuple[memoryview, int]:
    count = len(offsets) - 1
    end = at + -(-count // 8)
    if end > len(body):
        raise ValueError("bits cut short")
    bits = body[at:end]
    if any(offsets[place] != offsets[place + 1] for place in absent_places(bits, count)):
        raise ValueError("an absent entry has bytes")
    return bits, end


def _with_none(entries: list[bytes], bits: memoryview) -> list[bytes | None]:
    found: list[bytes | None] = [*entries]
    for place in absent_places(bits, len(found)):
        found[place] = None
    return found


def _slices(offsets: array[int], data: object, start: int) -> list[bytes]:
    """Return the entries of a column whose bytes begin at `start` of some bytes. Offsets rise."""
    assert isinstance(data, bytes)
    # It shares the bytes: a copy of a large batch costs more than all of its slices.
    stream = BytesIO(data)
    stream.seek(start)
    return list(map(stream.read, map(sub, offsets[1:], offsets)))


def _slice(offsets: array[int] | None, data: memoryview | None, place: int) -> bytes:
    if offsets is None or data is None:
        return b""
    return bytes(data[offsets[place] : offsets[place + 1]])


def _parsed(text: bytes) -> dict[str, str]:
    """Parse a message's properties."""
    try:
        parsed = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise InvalidArgument("the batch's properties are damaged") from error
    if not isinstance(parsed, dict):
        raise InvalidArgument("the batch's properties are damaged")
    return parsed


def _compress(body: bytes, codec: Codec) -> bytes:
    if codec is Codec.ZSTD:
        return zstandard.compress(body, 1)
    return bytes(lz4.frame.compress(body))


def _decompress(stored: memoryview, header: BatchHeader) -> bytes | memoryview:
    # The header's claim bounds the size: a small frame cannot make the server use all its memory.
    try:
        if header.codec is Codec.ZSTD:
            if zstandard.frame_content_size(bytes(stored[:18])) not in (-1, header.body_bytes):
                raise InvalidArgument("the batch's body does not fit its header")
            return zstandard.ZstdDecompressor().decompress(
                stored, max_output_size=header.body_bytes
            )
        if header.codec is Codec.LZ4:
            with_limit = lz4.frame.LZ4FrameDecompressor()
            return bytes(with_limit.decompress(bytes(stored), max_length=header.body_bytes))
    except (zstandard.ZstdError, RuntimeError, ValueError) as error:
        raise InvalidArgument("the batch's body cannot be decompressed") from error
    return stored
