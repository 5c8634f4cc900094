"""What a transactional producer needs of producers and consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from magnetar.message import Message
from magnetar.topic_partition import TopicPartition
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.ids import MessageId


class PlainProducer(Protocol):
    """Sends to a topic: magnetar.Producer."""

    @property
    def send(self) -> Callable[..., Awaitable[TxnSend | MessageId]]:
        """Send a message; see Producer.send."""
        ...

    @property
    def enqueue(self) -> Callable[..., Awaitable[None]]:
        """Send a message without waiting; see Producer.enqueue."""
        ...

    async def close(self) -> None:
        """Close the producer."""
        ...


class Acknowledging(Protocol):
    """A consumer: magnetar.Consumer, or magnetar.GroupConsumer."""

    async def ack_many(
        self, messages: Iterable[Message], *, txn: Transaction | None = None
    ) -> None:
        """Acknowledge messages; see Consumer.ack_many."""
        ...


class Member(Protocol):
    """A consumer that is a member of a group: magnetar.GroupConsumer."""

    async def joined(self, timeout_s: float | None = None) -> int:
        """Wait until the consumer is a member; see GroupConsumer.joined."""
        ...

    def redeliver(self) -> None:
        """Let messages come again; see GroupConsumer.redeliver."""
        ...

    async def ack_offsets(
        self, offsets: Mapping[TopicPartition, int], *, txn: Transaction | None = None
    ) -> None:
        """Acknowledge up to offsets; see GroupConsumer.ack_offsets."""
        ...
