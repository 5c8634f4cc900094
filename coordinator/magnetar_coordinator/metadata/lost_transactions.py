"""TxnIDs below the counter's bound whose records never became durable. Pure.

A client may get a TxnID before its record is durable. If the coordinator ends in between, the
record is lost, and with it everything that came later: so the transaction cannot have been
committed. Its participants abort what they hold of it, as of any transaction that the coordinator
does not know, and a client that asks is told that it is aborted.

Each start finds one range: from the first counter without a durable record up to the bound.
Source: docs/design/0001-protocol.md, One transaction, NewTxn.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from magnetar_coordinator.metadata.records import TxnEnded
from magnetar_coordinator.metadata.transaction import TxnStatus
from magnetar_core.ids import TxnID
from magnetar_core.selections import digest_of_selection

# A coordinator that starts more often forgets the oldest: their TxnIDs are answered TxnForgotten.
RANGES_MAX: Final = 1_000

_RANGE: Final = struct.Struct(">QQ")

# From the first counter to the one behind the last.
LostRange = tuple[int, int]


def decode_lost(value: bytes | None) -> Sequence[LostRange]:
    """Return the ranges of a row; the row may not be there."""
    return [(first, end) for first, end in _RANGE.iter_unpack(value or b"")]


def encode_lost(ranges: Sequence[LostRange]) -> bytes:
    """Return the row of ranges."""
    return b"".join(_RANGE.pack(*one) for one in ranges)


def after_start(
    ranges: Sequence[LostRange], *, next_unopened: int, counter_bound: int
) -> Sequence[LostRange]:
    """Return the ranges as a start finds them.

    Args:
        next_unopened: no transaction with this counter or a higher counter has a durable record.
        counter_bound: counters continue here.
    """
    if next_unopened >= counter_bound:
        return ranges
    # The run before may have opened nothing: then its range grows.
    earlier = [one for one in ranges if one[0] != next_unopened]
    return [*earlier, (next_unopened, counter_bound)][-RANGES_MAX:]


def outcome_of(ranges: Sequence[LostRange], txn_id: TxnID) -> TxnEnded | None:
    """Return ABORTED for a transaction whose record was lost; None for any other."""
    if any(first <= txn_id.counter < end for first, end in ranges):
        return TxnEnded(txn_id, TxnStatus.ABORTED, 0, 0, digest_of_selection(None))
    return None
