"""Stored batch on its way to consumers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.ids import TxnID


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

    @property
    def first_offset(self) -> int:
        """The offset of the first message."""
        return self.entry_id + self.first_index

    @property
    def end(self) -> int:
        """The offset after the last visible message."""
        return self.first_offset + self.visible_count
