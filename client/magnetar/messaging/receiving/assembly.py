"""Joins the parts of messages that were sent in parts.

The parts of a message lie side by side in a transaction, so they arrive in sequence. A part without
its beginning belongs to a message that a seek has cut: it cannot be read.
Source: PIP-31, Atomic Produce.
"""

from __future__ import annotations

from magnetar.message import AssembledBatch, ReceivedBatch
from magnetar_core.batch import (
    ONE_MESSAGE_OVERHEAD_BYTES,
    OVERHEAD_BYTES,
    Part,
    part_of,
)
from magnetar_core.errors import MessageTooLarge


class Assembly:
    """Joins the parts of messages of a partition.

    Args:
        bytes_max: the largest message, in bytes.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[ReceivedBatch] = []
        self._byte_count = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a message is incomplete."""
        return bool(self._parts)

    def add(self, batch: ReceivedBatch) -> tuple[AssembledBatch | None, list[ReceivedBatch]]:
        """Add the next part.

        Returns:
            The message, if it is complete now, and the parts that belong to no message.
        Raises:
            MessageTooLarge: the message exceeds bytes_max.
            ChecksumMismatch: a part is damaged.
            InvalidArgument: a part is damaged.
        """
        part = part_of(batch.data)
        cut: list[ReceivedBatch] = []
        follows = self._parts and batch.first_offset == self._parts[-1].last_offset + 1
        if part is Part.FIRST or not follows:
            cut = self._parts
            self.clear()
        if part is not Part.FIRST and not self._parts:
            return None, [*cut, batch]
        self._parts.append(batch)
        self._byte_count += len(batch.data) - OVERHEAD_BYTES
        if self._byte_count > self._bytes_max + OVERHEAD_BYTES + ONE_MESSAGE_OVERHEAD_BYTES:
            self.clear()
            raise MessageTooLarge(
                f"a message of more than {self._bytes_max} bytes at offset {batch.first_offset}:"
                " raise message_bytes_max",
                message_bytes_max=self._bytes_max,
            )
        if part is not Part.LAST:
            return None, cut
        parts = self._parts
        self.clear()
        whole = AssembledBatch(parts, self._bytes_max)
        # Compressed, it may be much smaller than the message.
        whole.check_sizes([(whole.first_offset, whole.first_offset)], self._bytes_max)
        return whole, cut

    def clear(self) -> None:
        """Drop the parts so far, since they come again."""
        self._parts = []
        self._byte_count = 0
