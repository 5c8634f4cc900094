"""Protocols of the group's consumer, as a transactional producer needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from magnetar.topic_partition import TopicPartition
from magnetar.transactions.transaction import Transaction


@runtime_checkable
class Member(Protocol):
    """A consumer that is a member of a group: magnetar.GroupConsumer."""

    async def joined(self, timeout_s: float | None = None) -> int:
        """Wait until the consumer is a member; see GroupConsumer.joined."""
        ...

    def redeliver(self) -> None:
        """Let messages come again; see GroupConsumer.redeliver."""
        ...

    async def ack_offsets(self, offsets: Mapping[TopicPartition, int], *, txn: Transaction) -> None:
        """Acknowledge up to offsets; see GroupConsumer.ack_offsets."""
        ...
