"""RocksDB's log format, in which its write-ahead logs and its manifest are written. Pure.

A file is a row of blocks of 32 KiB. A record is cut into pieces that do not cross blocks, each with
a header: masked CRC-32C of type and content, length, type. In a log a record is a batch, and begins
with its sequence number and its count; in a manifest it is an edit, made of tagged fields.
Source: RocksDB wiki, Write Ahead Log File Format; MANIFEST.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import google_crc32c

BLOCK_BYTES: Final = 32 << 10
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
# Record types from this number on are notes about the file, such as its compression, not data.
_NOTES_FROM: Final = 9
_MASK_DELTA: Final = 0xA282EAD8
_U32: Final = 0xFFFFFFFF

_BATCH = struct.Struct("<QI")
# How many bytes of each record are kept: enough for the fields that are read.
HEAD_BYTES: Final = 512

# Operations of a batch, by the fields that follow: key, or key and value, or two keys.
_FIELDS: Final = {0: 1, 1: 2, 4: 1, 5: 2, 14: 2, 15: 2}
_PUTS: Final = frozenset({1, 5})
_OF_DEFAULT: Final = frozenset({0, 1, 15})
_OF_FAMILY: Final = frozenset({4, 5, 14})

_MIN_LOG_TO_KEEP: Final = 10
# Tags of a log that was closed and synced, and of a log before which all logs leave the list. The
# log's number comes first.
_LOG_ADDED: Final = (1 << 13) + 7
_LOGS_DELETED: Final = (1 << 13) + 8
_NUMBERS: Final = frozenset({2, 3, 4, 9, 10, 203})
_TEXTS: Final = frozenset({1})
# A length follows a tag with this bit, so that a reader may skip the field.
_MAY_BE_IGNORED: Final = 1 << 13


@dataclass(slots=True)
class Walk:
    """The readable part of a file, from its beginning.

    Attributes:
        heads: the beginnings of its records.
        starts: where its records begin, beside heads.
        end: where the last whole record ends.
        damaged_at: where a piece is cut off or damaged; None: everything is whole.
        goes_on: another record begins after that piece, so writing did not end there.
    """

    heads: list[bytes] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    end: int = 0
    damaged_at: int | None = None
    goes_on: bool = False


def walk(data: bytes, *, whole_from: int | None = None, trusts_lengths: bool = True) -> Walk:
    """Read a file up to its end, or to its first damaged piece.

    Args:
        whole_from: records that begin here or later are kept whole, not only their beginnings.
        trusts_lengths: a damaged piece says where the next one begins. Otherwise the rest of its
            block is searched, for a damaged length leads nowhere; content may look like a record.
    """
    found = Walk()
    at = start = 0
    head: bytearray | None = None
    while (at := _next_header(at)) < len(data):
        piece = _piece(data, at)
        if piece is None:
            break
        kind, begin, end = piece
        if kind < _NOTES_FROM:
            begins = kind in (_FULL, _FIRST)
            if begins != (head is None):
                found.goes_on = begins
                break
            if head is None:
                start, head = at, bytearray()
            if whole_from is not None and start >= whole_from:
                head += data[begin:end]
            elif len(head) < HEAD_BYTES:
                head += data[begin : min(end, begin + HEAD_BYTES)]
            if kind in (_FULL, _LAST):
                found.heads.append(bytes(head))
                found.starts.append(start)
                head = None
        at = end
        if head is None:
            found.end = end
    else:
        if head is None:
            return found
    found.damaged_at = min(at, len(data))
    found.goes_on = found.goes_on or _begins_again(data, at, trusts_lengths=trusts_lengths)
    return found


def sequences_of_batch(head: bytes) -> tuple[int, int]:
    """Return the first and the last sequence number of a log's record; if empty, last < first."""
    first, count = _BATCH.unpack_from(head.ljust(_BATCH.size, b"\x00"))
    return first, first + count - 1


def values_of_batch(record: bytes) -> Iterator[bytes]:
    """Yield the values of the rows that a batch sets, up to the first unknown operation.

    Source: RocksDB, db/write_batch.cc and db/dbformat.h.
    """
    at = _BATCH.size
    while at < len(record):
        kind = record[at]
        at += 1
        if kind in _OF_FAMILY:
            at = _varint(record, at)[1]
        elif kind not in _OF_DEFAULT:
            return
        fields: list[bytes] = []
        for _ in range(_FIELDS[kind]):
            length, at = _varint(record, at)
            fields.append(record[at : at + length])
            at += length
        if kind in _PUTS:
            yield fields[1]


@dataclass(frozen=True, slots=True)
class Edit:
    """The statements of an edit about write-ahead logs; None: no statement."""

    min_log_to_keep: int | None = None
    added_logs: tuple[int, ...] = ()
    deleted_before: int = 0


def read_edit(head: bytes) -> Edit:
    """Read the first fields of an edit, which are single numbers."""
    at = 0
    min_log: int | None = None
    added: list[int] = []
    deleted_before = 0
    while at < len(head):
        tag, at = _varint(head, at)
        if tag & _MAY_BE_IGNORED or tag in _TEXTS:
            length, at = _varint(head, at)
            if tag == _LOG_ADDED:
                added.append(_varint(head, at)[0])
            elif tag == _LOGS_DELETED:
                deleted_before = _varint(head, at)[0]
            at += length
        elif tag in _NUMBERS:
            number, at = _varint(head, at)
            if tag == _MIN_LOG_TO_KEEP:
                min_log = number
        else:
            break
    return Edit(min_log, tuple(added), deleted_before)


def _next_header(at: int) -> int:
    """Return where the next header begins. No header crosses blocks: short rests are padding."""
    left = BLOCK_BYTES - at % BLOCK_BYTES
    return at + left if left < _HEADER.size else at


def _piece(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Return a piece's type, and where its content begins and ends; None: the piece is damaged."""
    begin = at + _HEADER.size
    if begin > len(data):
        return None
    masked, length, kind = _HEADER.unpack_from(data, at)
    end = begin + length
    block_end = at - at % BLOCK_BYTES + BLOCK_BYTES
    if end > min(len(data), block_end) or not (_FULL <= kind <= _LAST or kind >= _NOTES_FROM):
        return None
    checksum = google_crc32c.value(data[begin - 1 : end])
    if masked != (((checksum >> 15) | (checksum << 17)) + _MASK_DELTA) & _U32:
        return None
    return kind, begin, end


def _begins_again(data: bytes, at: int, *, trusts_lengths: bool) -> bool:
    """Return whether a record begins after a damaged piece.

    The beginnings of the pieces in a block are known as far as lengths lead; each block begins with
    a piece.
    """
    block_end = at - at % BLOCK_BYTES + BLOCK_BYTES
    if not trusts_lengths:
        rest = range(at + 1, min(block_end, len(data)))
        if any(_record_from(data, start, block_end) for start in rest):
            return True
    elif at + _HEADER.size <= len(data):
        behind = at + _HEADER.size + _HEADER.unpack_from(data, at)[1]
        if behind < block_end and _record_from(data, behind, block_end):
            return True
    return any(
        _record_from(data, start, start + BLOCK_BYTES)
        for start in range(block_end, len(data), BLOCK_BYTES)
    )


def _record_from(data: bytes, at: int, block_end: int) -> bool:
    while at + _HEADER.size <= min(block_end, len(data)):
        piece = _piece(data, at)
        if piece is None:
            return False
        if piece[0] in (_FULL, _FIRST):
            return True
        at = piece[2]
    return False


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, len(data)
