"""Permits that let a broker send ahead; renewed when half of the queue is used. Pure."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.config import ConsumerConfig
from magnetar.message import ReceivedBatch


class Permits:
    """The permits of an attachment, as a number of messages and of bytes."""

    __slots__ = ("_byte_count", "_bytes_max", "_count", "_flow", "_messages_max")

    def __init__(self, config: ConsumerConfig, flow: Callable[[int, int], None]) -> None:
        """No permits are given yet.

        Args:
            flow: gives the broker more permits: a number of messages, and a number of bytes.
        """
        self._messages_max = config.receiver_queue_messages
        self._bytes_max = config.receiver_queue_bytes
        self._flow = flow
        # Used, and not given back yet.
        self._count = 0
        self._byte_count = 0

    def begin(self) -> None:
        """Begin with a new attachment, whose queue is empty."""
        self._count = 0
        self._byte_count = 0
        self._flow(self._messages_max, self._bytes_max)

    @property
    def left(self) -> int:
        """How many messages have to leave the queue for the permits to be renewed."""
        return max(1, self._messages_max // 2) - self._count

    def use(self, count: int) -> None:
        """Note that messages have left the queue."""
        self._count += count
        if self.left <= 0:
            self._top_up()

    def use_bytes(self, batch: ReceivedBatch) -> None:
        """Note that a batch has left the queue."""
        if not batch.permits:
            return
        self._byte_count += len(batch.data)
        if self._byte_count >= max(1, self._bytes_max // 2):
            self._top_up()

    def _top_up(self) -> None:
        count, self._count = self._count, 0
        byte_count, self._byte_count = self._byte_count, 0
        self._flow(count, byte_count)
