"""What a transactional producer needs of plain producers and of consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from magnetar.message import Message
from magnetar.topic_partition import TopicPartition
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.ids import MessageId


class PlainProducer(Protocol):
    """Sends to one topic: magnetar.Producer."""

    @property
    def send(self) -> Callable[..., Awaitable[TxnSend | MessageId]]: ...

    @property
    def enqueue(self) -> Callable[..., Awaitable[None]]: ...

    async def close(self) -> None: ...


class Acknowledging(Protocol):
    """magnetar.Consumer, or magnetar.GroupConsumer."""

    async def ack_many(
        self, messages: Iterable[Message], *, txn: Transaction | None = None
    ) -> None: ...


class Member(Protocol):
    """Consumes as a member of a group: magnetar.GroupConsumer."""

    async def joined(self, timeout_s: float | None = None) -> int: ...

    def redeliver(self) -> None: ...

    async def ack_offsets(
        self, offsets: Mapping[TopicPartition, int], *, txn: Transaction | None = None
    ) -> None: ...
