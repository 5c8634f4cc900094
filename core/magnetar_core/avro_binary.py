"""Reads and skips the parts of an Avro datum. Pure.

Each function takes the value's bytes and an index. Bytes that no writer writes raise ValueError,
IndexError or struct.error: a number with too many bytes, a length below zero, a missing end.
Source: Apache Avro 1.12 Specification, Binary Encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

# Reads a value, and returns it and the index of its end. Skip returns the end alone.
Read = Callable[[bytes, int], tuple[Any, int]]
Skip = Callable[[bytes, int], int]

_FLOAT = Struct("<f").unpack_from
_DOUBLE = Struct("<d").unpack_from
_INT_MAX = (1 << 31) - 1
_LONG_BITS = 64


def read_null(data: bytes, at: int) -> tuple[None, int]:
    """Return None, which takes no bytes."""
    return None, at


def read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    """Return a boolean."""
    if data[at] > 1:
        raise ValueError(f"a boolean is the byte {data[at]}")
    return data[at] == 1, at + 1


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 64 bits, a variable number of bytes."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    found, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= _LONG_BITS:
            raise ValueError("a number takes more than ten bytes")
    if found >> _LONG_BITS:
        raise ValueError("a number takes more than 64 bits")
    return (found >> 1) ^ -(found & 1), at


def read_int(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 32 bits."""
    found, at = read_long(data, at)
    if not -_INT_MAX <= found + 1 <= _INT_MAX + 1:
        raise ValueError(f"an int is {found}")
    return found, at


def read_float(data: bytes, at: int) -> tuple[float, int]:
    """Return a number of four bytes."""
    return _FLOAT(data, at)[0], at + 4


def read_double(data: bytes, at: int) -> tuple[float, int]:
    """Return a number of eight bytes."""
    return _DOUBLE(data, at)[0], at + 8


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Return bytes with their length before them."""
    start, end = _extent(data, at)
    return data[start:end], end


def read_string(data: bytes, at: int) -> tuple[str, int]:
    """Return text."""
    start, end = _extent(data, at)
    return data[start:end].decode(), end


def fixed(size: int) -> Read:
    """Return a reader of so many bytes."""

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise ValueError("its end is missing")
        return data[at:end], end

    return read


def one_of(names: list[str]) -> Read:
    """Return a reader of symbols of an enum."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = read_long(data, at)
        if number < 0:
            raise ValueError(f"the symbol {number} of an enum")
        return names[number], at

    return read


def union(branches: list[Read]) -> Read:
    """Return a reader of values of several types."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = read_long(data, at)
        if number < 0:
            raise ValueError(f"the branch {number} of a union")
        return branches[number](data, at)

    return read


def array(item: Read) -> Read:
    """Return a reader of lists. Each item takes at least a byte."""

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, at = _block(data, at)
            if not count:
                return found, at
            for _ in range(count):
                one, at = item(data, at)
                found.append(one)

    return read


def mapping(value: Read) -> Read:
    """Return a reader of maps. A key that comes twice is an error: a value would be lost."""

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            count, at = _block(data, at)
            if not count:
                return found, at
            for _ in range(count):
                key, at = read_string(data, at)
                if key in found:
                    raise ValueError(f"a map has the key {key!r} twice")
                found[key], at = value(data, at)

    return read


def skipping(read: Read) -> Skip:
    """Return a function that skips a value by reading it."""
    return lambda data, at: read(data, at)[1]


def skip_bytes(data: bytes, at: int) -> int:
    """Skip bytes or text."""
    return _extent(data, at)[1]


def skip_record(fields: list[Skip]) -> Skip:
    """Return a function that skips the fields of a record."""

    def skip(data: bytes, at: int) -> int:
        for field in fields:
            at = field(data, at)
        return at

    return skip


def skip_union(branches: list[Skip]) -> Skip:
    """Return a function that skips a value of one of several types."""

    def skip(data: bytes, at: int) -> int:
        number, at = read_long(data, at)
        if number < 0:
            raise ValueError(f"the branch {number} of a union")
        return branches[number](data, at)

    return skip


def skip_blocks(item: Skip) -> Skip:
    """Return a function that skips the items of a list or of a map. Each takes at least a byte."""

    def skip(data: bytes, at: int) -> int:
        while True:
            count, at = _block(data, at)
            if not count:
                return at
            for _ in range(count):
                at = item(data, at)

    return skip


def _extent(data: bytes, at: int) -> tuple[int, int]:
    """Read a length, and return where the bytes after it begin and end."""
    size, at = read_long(data, at)
    if size < 0:
        raise ValueError(f"a length is {size}")
    if at + size > len(data):
        raise ValueError("its end is missing")
    return at, at + size


def _block(data: bytes, at: int) -> tuple[int, int]:
    """Return how many items follow. A negative count is followed by the block's size in bytes."""
    count, at = read_long(data, at)
    if count < 0:
        _, at = read_long(data, at)
    return abs(count), at
