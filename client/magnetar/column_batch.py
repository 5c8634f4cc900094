"""Messages that are columns already, as Arrow lays them out: they become a batch without a loop.

See magnetar_core.batch for the layout.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from operator import sub
from typing import NamedTuple

from magnetar_core.batch import Codec, encode_columns
from magnetar_core.errors import InvalidArgument, MessageTooLarge


class BytesColumn(NamedTuple):
    """Offsets from 0, count + 1 times int32, and the bytes that they cut."""

    offsets: bytes | memoryview
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """A batch to be sent; what its columns hold is not checked.

    Attributes:
        keys: an empty one counts as none.
        event_times_ms: count times int64; 0 counts as none.
        properties: each a JSON object of texts, or empty.
        key_hash: CRC-32C of the one key that all messages share; 0 if they do not.
    """

    count: int
    values: BytesColumn
    keys: BytesColumn | None = None
    event_times_ms: bytes | memoryview | None = None
    properties: BytesColumn | None = None
    key_hash: int = 0

    def __post_init__(self) -> None:
        for column in (self.values, self.keys, self.properties):
            if column is not None and _byte_count(column.offsets) != 4 * (self.count + 1):
                raise InvalidArgument(f"a column's offsets are not those of {self.count} messages")
        times = self.event_times_ms
        if times is not None and _byte_count(times) != 8 * self.count:
            raise InvalidArgument(f"the event times are not those of {self.count} messages")

    @property
    def byte_count(self) -> int:
        """Of the columns, before compression."""
        columns = (self.values, self.keys, self.properties)
        return sum(
            _byte_count(one.offsets) + _byte_count(one.data) for one in columns if one is not None
        )

    def check_sizes(self, message_bytes_max: int) -> None:
        """Raises: MessageTooLarge, when value, key and properties of a message exceed that."""
        if self.byte_count <= message_bytes_max:
            return
        columns = (self.values, self.keys, self.properties)
        offsets = [array("i", bytes(one.offsets)) for one in columns if one is not None]
        sizes = [map(sub, one[1:], one) for one in offsets]
        size = max(map(sum, zip(*sizes, strict=True)), default=0)
        if size > message_bytes_max:
            raise MessageTooLarge(
                f"a message of {size} bytes exceeds message_bytes_max, {message_bytes_max}",
                message_bytes_max=message_bytes_max,
            )

    def encode(self, codec: Codec) -> bytes:
        """Raises: InvalidArgument, without messages."""
        return encode_columns(
            self.count,
            self.values,
            self.keys,
            event_times_ms=self.event_times_ms,
            properties=self.properties,
            key_hash=self.key_hash,
            codec=codec,
        )


def _byte_count(column: bytes | memoryview) -> int:
    return column.nbytes if isinstance(column, memoryview) else len(column)
