"""Stored batch on its way to consumers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from magnetar_broker.log.offset_set import Range
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.ids import TxnID
from magnetar_core.transport.spliced import Body, with_payload
from magnetar_core.wire import broker_pb2, common_pb2


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch and its position.

    Of its `count` messages, the first `visible_count` belong to the log.
    """

    entry_id: int
    first_index: int
    count: int
    visible_count: int
    append_time_ms: int
    batch: bytes
    txn_id: TxnID | None = None
    stamp: int = NO_STAMP

    @property
    def first_offset(self) -> int:
        """The offset of the first message."""
        return self.entry_id + self.first_index

    @property
    def end(self) -> int:
        """The offset after the last visible message."""
        return self.first_offset + self.visible_count

    def to_wire(self, excluded: Iterable[Range], redelivery_count: int = 0) -> Body:
        """Convert to the wire's message, a DeliveredBatch.

        Args:
            excluded: offsets of messages that are not for the receiver.
        """
        delivered = broker_pb2.DeliveredBatch(
            entry_id=self.entry_id,
            first_index=self.first_index,
            num_messages=self.count,
            excluded=[common_pb2.OffsetRange(first=first, last=last) for first, last in excluded],
            redelivery_count=redelivery_count,
            append_time_ms=self.append_time_ms,
        )
        if self.txn_id is not None:
            delivered.txn_id.most_bits, delivered.txn_id.least_bits = self.txn_id
            delivered.stamp = self.stamp
        return with_payload(delivered, "batch", self.batch)
