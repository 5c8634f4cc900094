"""A batch as the log has it, on its way to consumers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.ids import TxnID


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch and its place; of its `count` messages, the first `visible_count` belong here."""

    entry_id: int
    first_index: int
    count: int
    visible_count: int
    append_time_ms: int
    batch: bytes
    txn_id: TxnID | None = None

    @property
    def first_offset(self) -> int:
        return self.entry_id + self.first_index

    @property
    def end(self) -> int:
        return self.first_offset + self.visible_count
