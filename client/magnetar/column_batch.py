"""Batches that are made of columns, as Arrow has them, without a loop over messages.

magnetar_core.batch describes the layout.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from operator import sub
from typing import NamedTuple

from magnetar.arguments import check_fields
from magnetar_core.batch import Codec, buffer_bytes, encode_columns
from magnetar_core.errors import InvalidArgument, MessageTooLarge


class BytesColumn(NamedTuple):
    """A column of texts or bytes, as Arrow lays it out.

    Attributes:
        offsets: where each message's bytes begin, and where the last end: count + 1 times int32,
            from 0.
        data: the bytes of all messages, side by side.
    """

    offsets: bytes | memoryview
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """A batch to be sent. The contents of its columns are not checked.

    Attributes:
        count: the number of messages.
        values: the values.
        keys: the keys; an empty key means that the message has no key, unless key_bits say more.
        event_times_ms: count times int64, milliseconds since the Unix epoch; the lowest int64 means
            that the message has no event time.
        properties: for each message a JSON object of texts, or an empty text.
        key_hash: the CRC-32C of the key, if all messages have the same key; otherwise 0.
        value_bits: which messages have a value, as Arrow's bitmap of validity, with zeros behind
            the last message; None: all have one. What is absent has no bytes in its column.
        key_bits: which messages have a key, in the same way; a key may be empty then.
    Raises:
        InvalidArgument: a column has another number of messages, or another type.
    """

    count: int
    values: BytesColumn
    keys: BytesColumn | None = None
    event_times_ms: bytes | memoryview | None = None
    properties: BytesColumn | None = None
    key_hash: int = 0
    value_bits: bytes | memoryview | None = None
    key_bits: bytes | memoryview | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for column in (self.values, self.keys, self.properties):
            if column is not None and buffer_bytes(column.offsets) != 4 * (self.count + 1):
                raise InvalidArgument(f"a column's offsets are not those of {self.count} messages")
        times = self.event_times_ms
        if times is not None and buffer_bytes(times) != 8 * self.count:
            raise InvalidArgument(f"the event times are not those of {self.count} messages")
        for bits in (self.value_bits, self.key_bits):
            if bits is not None and buffer_bytes(bits) != -(-self.count // 8):
                raise InvalidArgument(f"the bits are not those of {self.count} messages")
        if self.key_bits is not None and self.keys is None:
            raise InvalidArgument("there are bits of keys, and no keys")

    @property
    def byte_count(self) -> int:
        """The size of the columns in bytes, before compression."""
        columns = (self.values, self.keys, self.properties)
        return sum(
            buffer_bytes(column.offsets) + buffer_bytes(column.data)
            for column in columns
            if column is not None
        )

    def check_sizes(self, message_bytes_max: int) -> None:
        """Check that no message is too large.

        Raises:
            MessageTooLarge: value, key and properties of a message exceed the limit together.
        """
        if self.byte_count <= message_bytes_max:
            return
        columns = (self.values, self.keys, self.properties)
        offsets = [array("i", bytes(column.offsets)) for column in columns if column is not None]
        sizes = [map(sub, column[1:], column) for column in offsets]
        size = max(map(sum, zip(*sizes, strict=True)), default=0)
        if size > message_bytes_max:
            raise MessageTooLarge(
                f"a message of {size} bytes exceeds message_bytes_max, {message_bytes_max}",
                message_bytes_max=message_bytes_max,
            )

    def encode(self, codec: Codec) -> bytes:
        """Return the batch as it is sent.

        Raises:
            InvalidArgument: the batch has no messages.
        """
        return encode_columns(
            self.count,
            self.values,
            self.keys,
            event_times_ms=self.event_times_ms,
            properties=self.properties,
            value_bits=self.value_bits,
            key_bits=self.key_bits,
            key_hash=self.key_hash,
            codec=codec,
        )
