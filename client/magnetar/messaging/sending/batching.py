"""Batches while they grow, and the division of many values into batches. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import google_crc32c

from magnetar_core.batch import NO_EVENT_TIME_MS, Codec, encode

# What one message costs in a batch's columns besides its own bytes: two int32 offsets, event time.
MESSAGE_OVERHEAD_BYTES = 16


class OpenBatch:
    """A batch of columns that grow. A column appears with the first message that needs it."""

    __slots__ = (
        "count",
        "event_times_ms",
        "keys",
        "properties",
        "receipt",
        "size",
        "values",
        "values_alone",
    )

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        # The same list, while no message has anything but a value.
        self.values_alone: list[bytes | None] | None = self.values
        self.keys: list[bytes | None] | None = None
        self.event_times_ms: list[int] | None = None
        self.properties: list[bytes] | None = None
        # Bytes, roughly, before compression.
        self.size = 0
        self.count = 0
        # Of the sender: told what becomes of the batch.
        self.receipt: Any = None

    @property
    def batches(self) -> Sequence[OpenBatch]:
        """The batches to send: this batch."""
        return (self,)

    def of_key(self, key: bytes | None) -> OpenBatch:
        """Return the batch for a message with this key."""
        return self

    def add(
        self,
        value: bytes | None,
        key: bytes | None = None,
        properties: bytes = b"",
        event_time_ms: int | None = None,
    ) -> None:
        """Append a message."""
        size = MESSAGE_OVERHEAD_BYTES if value is None else len(value) + MESSAGE_OVERHEAD_BYTES
        if key is not None:
            size += len(key)
            if self.keys is None:
                self.keys = [None] * self.count
                self.values_alone = None
            self.keys.append(key)
        elif self.keys is not None:
            self.keys.append(None)
        if event_time_ms is not None:
            if self.event_times_ms is None:
                self.event_times_ms = [NO_EVENT_TIME_MS] * self.count
                self.values_alone = None
            self.event_times_ms.append(event_time_ms)
        elif self.event_times_ms is not None:
            self.event_times_ms.append(NO_EVENT_TIME_MS)
        if properties:
            size += len(properties)
            if self.properties is None:
                self.properties = [b""] * self.count
                self.values_alone = None
            self.properties.append(properties)
        elif self.properties is not None:
            self.properties.append(b"")
        self.values.append(value)
        self.count += 1
        self.size += size

    def extend(
        self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, size: int
    ) -> None:
        """Append many messages.

        Args:
            values: the values.
            keys: the keys, as many as values.
            size: how many bytes they add, as `cut` counts them.
        """
        if keys is not None:
            if self.keys is None:
                self.keys = [None] * self.count
                self.values_alone = None
            self.keys += keys
        elif self.keys is not None:
            self.keys += [None] * len(values)
        if self.event_times_ms is not None:
            self.event_times_ms += [NO_EVENT_TIME_MS] * len(values)
        if self.properties is not None:
            self.properties += [b""] * len(values)
        self.values += values
        self.count += len(values)
        self.size += size

    def encode(self, codec: Codec) -> bytes:
        """Return the batch as it is sent."""
        return encode(
            self.values,
            self.keys,
            event_times_ms=self.event_times_ms,
            properties=self.properties,
            codec=codec,
        )


# Stands for a batch where no message is collected.
NO_MESSAGES: Final = OpenBatch()


class OpenBatchesByKey:
    """A batch for each key, with the interface of a single batch.

    Messages without a key, and those with an empty key, share a batch.
    """

    __slots__ = ("_by_key", "count", "size")

    # Each message has to find the batch of its key.
    values_alone: list[bytes | None] | None = None

    def __init__(self) -> None:
        self._by_key: dict[bytes, OpenBatch] = {}
        self.size = 0
        self.count = 0

    @property
    def batches(self) -> Sequence[OpenBatch]:
        """The batches to send, in the order of their first messages."""
        return list(self._by_key.values())

    def of_key(self, key: bytes | None) -> OpenBatch:
        """Return the batch for a message with this key."""
        batch = self._by_key.get(key or b"")
        if batch is None:
            batch = self._by_key[key or b""] = OpenBatch()
        return batch

    def add(
        self,
        value: bytes | None,
        key: bytes | None = None,
        properties: bytes = b"",
        event_time_ms: int | None = None,
    ) -> None:
        """Append a message to the batch of its key."""
        batch = self.of_key(key)
        before = batch.size
        batch.add(value, key, properties, event_time_ms)
        self.size += batch.size - before
        self.count += 1

    def extend(
        self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, size: int
    ) -> None:
        """Append many messages to the batches of their keys."""
        if keys is None:
            self.of_key(None).extend(values, None, size)
        else:
            for value, key in zip(values, keys, strict=True):
                self.of_key(key).add(value, key)
        self.size += size
        self.count += len(values)


def cut(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    *,
    room_bytes: int,
    room_messages: int,
    batch_bytes_max: int,
    batch_messages_max: int,
) -> Iterator[tuple[int, int, int]]:
    """Divide values into batches, and return (start, stop, size) of each batch.

    The first batch fills the room that an open batch has left. It is empty when the first value
    does not fit there.
    """
    try:
        ends = _ends(map(len, values), None if keys is None else map(len, keys))  # type: ignore[arg-type]
    except TypeError:
        # Some are absent, which is found without a look at each beforehand.
        ends = _ends(lengths(values), None if keys is None else lengths(keys))
    start, done = 0, 0
    room_is_whole = room_bytes >= batch_bytes_max and room_messages > 0
    while start < len(values):
        stop = min(bisect_right(ends, done + room_bytes, start), start + room_messages)
        if stop == start and room_is_whole:
            stop = start + 1  # A value larger than a batch makes a batch of its own.
        end = ends[stop - 1] if stop > start else done
        yield start, stop, end - done
        start, done = stop, end
        room_bytes, room_messages, room_is_whole = batch_bytes_max, batch_messages_max, True


def _ends(value_sizes: Iterable[int], key_sizes: Iterable[int] | None) -> list[int]:
    """Return how many bytes messages take up to each of them."""
    sizes = map(MESSAGE_OVERHEAD_BYTES.__add__, value_sizes)
    if key_sizes is not None:
        sizes = map(int.__add__, sizes, key_sizes)
    return list(accumulate(sizes))


def lengths(entries: Sequence[bytes | None]) -> list[int]:
    """Return the size of each entry in bytes; 0 for None."""
    try:
        return list(map(len, entries))  # type: ignore[arg-type]
    except TypeError:
        return [0 if entry is None else len(entry) for entry in entries]


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key. It is the same for ever, in every client."""
    return int(google_crc32c.value(key)) % partition_count
