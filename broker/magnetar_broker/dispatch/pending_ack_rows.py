"""Rows of acks in transactions. Pure.

a byte 1, then each range as 16 bytes
a byte 2, a CommittedOffsetRow behind its length of 4 bytes, then each range as 16 bytes
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from magnetar_broker.dispatch.acknowledgements import PendingAck
from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_broker.log.offset_set import Range
from magnetar_core.wire import record_pb2 as records

_RANGE = struct.Struct(">QQ")
_LENGTH = struct.Struct(">I")
_RANGES, _COMMIT = b"\x01", b"\x02"


def pack(ranges: Sequence[Range], commit: CommittedOffset | None = None) -> bytes:
    """Return the row of an ack in a transaction.

    Args:
        commit: the committed offset that it brings with it, if any.
    """
    head = _RANGES
    if commit is not None:
        stored = commit.row().SerializeToString()
        head = _COMMIT + _LENGTH.pack(len(stored)) + stored
    return head + b"".join([_RANGE.pack(*one) for one in ranges])


def unpack(ordinal: int, ack_sequence: int, row: bytes) -> PendingAck:
    """Return the ack whose row pack() returned.

    Raises:
        ValueError: the row is damaged.
    """
    start, commit = 1, None
    if row[:1] == _COMMIT and len(row) > _LENGTH.size:
        begin = start + _LENGTH.size
        start = begin + _LENGTH.unpack_from(row, start)[0]
        try:
            stored = records.CommittedOffsetRow.FromString(row[begin:start])
        except DecodeError as error:
            raise ValueError(f"the row of an ack is damaged: {error}") from None
        commit = CommittedOffset.of_row(stored)
    elif row[:1] != _RANGES:
        raise ValueError(
            f"the row of an ack is damaged: it begins with {row[:1].hex() or 'nothing'}"
        )
    if start > len(row) or (len(row) - start) % _RANGE.size:
        raise ValueError(f"the row of an ack is damaged: it has {len(row)} bytes")
    return PendingAck(ordinal, ack_sequence, tuple(_RANGE.iter_unpack(row[start:])), commit)
