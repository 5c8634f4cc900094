"""Pointers, which rows hold instead of large values: places in files of values. Pure.

A row begins with the byte 0xFF if it holds a pointer, or a small value that begins with this byte.
All other rows are values as they are.
Source: docs/design/0019-values.md.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import google_crc32c

# Rows that begin with it are not values as they are.
MARKED: Final = b"\xff"
_VALUE: Final = b"\xff\x00"
_POINTER: Final = b"\xff\x01"
_BODY = struct.Struct(">2sIQII")
_CHECKSUM = struct.Struct(">I")
POINTER_BYTES: Final = _BODY.size + _CHECKSUM.size


class Pointer(NamedTuple):
    """A place in a file of values.

    Attributes:
        file: its number.
        position: where the value begins, in bytes.
        length: of the value, in bytes.
        checksum: CRC-32C of the value.
    """

    file: int
    position: int
    length: int
    checksum: int

    def to_bytes(self) -> bytes:
        """Return the row of this pointer."""
        body = _BODY.pack(_POINTER, *self)
        return body + _CHECKSUM.pack(google_crc32c.value(body))


class RowDamaged(Exception):
    """A row holds neither a value nor a pointer."""


def row_of_value(value: bytes) -> bytes:
    """Return the row that holds a value itself."""
    return _VALUE + value if value.startswith(MARKED) else value


def read_marked(row: bytes) -> Pointer | bytes:
    """Return the content of a row that begins with MARKED: a pointer, or the value itself.

    Raises:
        RowDamaged: it holds neither.
    """
    if row.startswith(_VALUE):
        return row[len(_VALUE) :]
    pointer = pointer_of(row)
    if pointer is None:
        raise RowDamaged("a row is neither a value nor a pointer to one")
    return pointer


def pointer_of(row: bytes) -> Pointer | None:
    """Return the pointer that a row holds; None: it holds none."""
    if len(row) != POINTER_BYTES or not row.startswith(_POINTER):
        return None
    body = row[: _BODY.size]
    if _CHECKSUM.unpack_from(row, _BODY.size)[0] != google_crc32c.value(body):
        return None
    return Pointer(*_BODY.unpack(body)[1:])
