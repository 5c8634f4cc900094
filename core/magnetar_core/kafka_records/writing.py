"""Writes a RecordBatch. There is no loop in Python over messages without headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import add
from typing import TypeVar, cast

import lz4.frame

from magnetar_core.errors import InvalidArgument
from magnetar_core.kafka_records.reading import Headers
from magnetar_core.record_batch import HEAD_BYTES, LZ4, NONE, with_head

_RECORDS_BYTES_MAX = (1 << 31) - HEAD_BYTES
_NO_BYTES = b"\x01"
_NO_HEADERS = b"\x00"
# What the sizes and offsets of nearly all messages are: what is made of them is kept. About 2 MB.
_KEPT = 1 << 14


Made = TypeVar("Made")


class _Kept(dict[int, Made]):
    """Values that are made of integers, and looked up without a call of Python's."""

    def __init__(self, make: Callable[[int], Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, number: int) -> Made:
        made = self._make(number)
        if 0 <= number < _KEPT:
            self[number] = made
        return made


def varint(number: int) -> bytes:
    """Return the zigzag form of an integer of 64 bits."""
    rest = (number << 1) ^ (number >> 63)
    found = bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    found.append(rest)
    return bytes(found)


_form = _Kept(varint).__getitem__
# The form of a value's size behind a key that is absent.
_form_without_key = _Kept(lambda size: _NO_BYTES + varint(size)).__getitem__
# Attributes, which are 0, and a difference of timestamps.
_begin = _Kept(lambda delta: b"\x00" + varint(delta)).__getitem__
# How many bytes a size and what it counts take together.
_with_size = _Kept(lambda size: size + len(varint(size))).__getitem__
_OFFSETS = list(map(varint, range(_KEPT)))
_OFFSET_SIZES = list(map(len, _OFFSETS))


def write_records(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    timestamps_ms: Sequence[int],
    headers: Mapping[int, Headers],
    *,
    base_offset: int,
    compression: int = NONE,
) -> bytes:
    """Return a batch. Columns have as many entries as there are values.

    Args:
        values: None for a tombstone.
        keys: None for a message without a key.
        timestamps_ms: the times of creation, in milliseconds since the Unix epoch.
        headers: by the place of a message, of those that have some.
        compression: NONE or LZ4, which every client reads.
    Raises:
        InvalidArgument: there are no messages, or more than 2 GiB.
    """
    count = len(values)
    if not count:
        raise InvalidArgument("a RecordBatch needs at least one message")
    first_ms = timestamps_ms[0]
    records = _records(values, keys, first_ms, timestamps_ms, headers)
    if compression == LZ4:
        # Java refuses frames with linked blocks.
        records = lz4.frame.compress(records, block_linked=False, store_size=False)
    if len(records) > _RECORDS_BYTES_MAX:
        raise InvalidArgument("a RecordBatch holds 2 GiB at most")
    return with_head(
        records,
        count=count,
        base_offset=base_offset,
        first_timestamp_ms=first_ms,
        max_timestamp_ms=max(timestamps_ms),
        compression=compression,
    )


def _records(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    first_ms: int,
    timestamps_ms: Sequence[int],
    headers: Mapping[int, Headers],
) -> bytes:
    count = len(values)
    offsets, sizes = _offsets(count)
    begins: Iterable[bytes]
    if timestamps_ms.count(first_ms) == count:
        begins, begin_size = repeat(_begin(0), count), len(_begin(0))
    else:
        begins = list(map(_begin, map((-first_ms).__add__, timestamps_ms)))
        sizes, begin_size = map(add, sizes, map(len, begins)), 0
    columns: list[Iterable[bytes]] = [begins, offsets]
    constant_size = begin_size
    if keys is None:
        value_forms, value_sizes, value_bytes = _sized(values, _form_without_key)
        constant_size += len(_NO_BYTES)
    else:
        key_forms, key_sizes, key_bytes = _sized(keys, _form)
        columns += (key_forms, key_bytes)
        sizes = map(add, sizes, key_sizes)
        value_forms, value_sizes, value_bytes = _sized(values, _form)
    columns += (value_forms, value_bytes)
    sizes = map(add, sizes, value_sizes)
    if headers:
        encoded = [_NO_HEADERS] * count
        for place, some in headers.items():
            encoded[place] = _headers(some)
        columns.append(encoded)
        sizes = map(add, sizes, map(len, encoded))
    else:
        columns.append(repeat(_NO_HEADERS, count))
        constant_size += len(_NO_HEADERS)
    forms = map(_form, map(constant_size.__add__, sizes))
    return b"".join(chain.from_iterable(zip(forms, *columns, strict=True)))


def _offsets(count: int) -> tuple[Sequence[bytes], Iterable[int]]:
    """Return the forms of the offsets from 0, and their sizes."""
    if count <= _KEPT:
        return _OFFSETS[:count], _OFFSET_SIZES[:count]
    forms = list(map(varint, range(count)))
    return forms, map(len, forms)


def _sized(
    entries: Sequence[bytes | None], form: Callable[[int], bytes]
) -> tuple[Iterable[bytes], Iterable[int], Sequence[bytes]]:
    """Return the form of each entry's size, how many bytes both take, and the entries.

    Args:
        form: makes the form of a size. It may stand behind other bytes, which do not count.
    """
    try:
        lengths = list(map(len, cast(Sequence[bytes], entries)))
    except TypeError:
        absent = form(0)[:-1] + _NO_BYTES
        return (
            [absent if entry is None else form(len(entry)) for entry in entries],
            [1 if entry is None else _with_size(len(entry)) for entry in entries],
            [entry or b"" for entry in entries],
        )
    return map(form, lengths), map(_with_size, lengths), cast(Sequence[bytes], entries)


def _headers(some: Headers) -> bytes:
    found = [_form(len(some))]
    for name, value in some:
        found += (_form(len(name)), name)
        if value is None:
            found.append(_NO_BYTES)
        else:
            found += (_form(len(value)), value)
    return b"".join(found)
