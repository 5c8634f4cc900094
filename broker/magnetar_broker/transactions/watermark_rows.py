"""Rows of watermarks in the metadata of a broker. Pure.

Source: docs/protocol/rules.md, rules c and n.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_broker.transactions.watermark import Watermark
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import transaction_pb2 as txn_wire


def encode(watermark: Watermark, orphans: Iterable[int] = ()) -> bytes:
    """Encode a watermark.

    Args:
        orphans: counters of covered transactions that a recovery has to read as well.
    """
    return records.WatermarkRow(
        incarnation=watermark.incarnation,
        low_watermark=watermark.low_watermark,
        live=[txn_wire.TxnRange(first=first, last=last) for first, last in watermark.live],
        orphans=sorted(orphans),
        next_counter=watermark.next_counter,
        counter_bound=watermark.counter_bound,
        store_digest=watermark.store_digest,
    ).SerializeToString()


def decode(value: bytes) -> tuple[Watermark, list[int]]:
    """Decode a watermark, and the counters of covered transactions to read as well."""
    row = records.WatermarkRow.FromString(value)
    watermark = Watermark(
        row.incarnation,
        row.low_watermark,
        tuple((one.first, one.last) for one in row.live),
        row.next_counter,
        row.counter_bound,
        row.store_digest,
    )
    return watermark, list(row.orphans)
