"""Offset that a Kafka group has committed on a partition. Pure."""

from __future__ import annotations

from typing import NamedTuple

from magnetar_core.wire import record_pb2 as records

NO_LEADER_EPOCH = -1


class CommittedOffset(NamedTuple):
    """A committed offset: the next one that the group reads, and what the client keeps with it.

    Attributes:
        leader_epoch: NO_LEADER_EPOCH: the client named none.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH

    def row(self) -> records.CommittedOffsetRow:
        """Return it as stored."""
        return records.CommittedOffsetRow(
            offset=self.offset, metadata=self.metadata, leader_epoch=self.leader_epoch
        )

    @classmethod
    def of_row(cls, row: records.CommittedOffsetRow) -> CommittedOffset:
        """Return the committed offset of a row."""
        return cls(row.offset, row.metadata, row.leader_epoch)
