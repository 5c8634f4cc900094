"""Protocols of the producers that send in a transaction, and of consumers that acknowledge in it.

Producers and consumers know transactions. A transaction knows of them only these protocols.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from magnetar.message import Message, MessageColumns
from magnetar.transactions.begun import Begun
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import MessageId, Participant, PartitionName


class TopicProducer(Protocol):
    """Sends to a topic: magnetar.Producer."""

    async def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Any,
    ) -> TxnSend | MessageId:
        """Send a message; see Producer.send."""
        ...

    async def enqueue(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Any,
    ) -> None:
        """Send a message without waiting; see Producer.enqueue."""
        ...

    async def close(self) -> None:
        """Close the producer."""
        ...


@runtime_checkable
class Acknowledging(Protocol):
    """A consumer: magnetar.Consumer or magnetar.GroupConsumer, or the work of either."""

    async def ack_many(self, messages: Iterable[Message] | MessageColumns, *, txn: Any) -> None:
        """Acknowledge messages; see Consumer.ack_many."""
        ...

    async def ack_cumulative(self, message: Message, *, txn: Any) -> None:
        """Acknowledge a message and all messages before it; see Consumer.ack_cumulative."""
        ...


class WholeBatch(Protocol):
    """All messages of a lazy transaction, as a plain batch."""

    finished: bool

    @property
    def receipt(self) -> asyncio.Future[Any] | None:
        """The future that has the broker's answer."""
        ...


class Writer(Protocol):
    """Sends the commands of a transaction to a partition or subscription."""

    @property
    def name(self) -> Participant:
        """The name of the partition or the subscription."""
        ...

    @property
    def writer_id(self) -> int:
        """The id of the producer or the consumer."""
        ...

    @property
    def confirmed_count(self) -> int:
        """Confirmed messages or ack commands; the commit names it."""
        ...

    @property
    def has_unanswered(self) -> bool:
        """Whether there is something sent that is neither confirmed nor has failed."""
        ...

    def drain(self) -> Awaitable[None]:
        """Wait until everything sent is confirmed or has failed."""
        ...

    def abandon(self, error: MagnetarError) -> None:
        """Drop buffered messages; answers that are under way still count."""
        ...

    def give_up(self, error: MagnetarError) -> None:
        """Fail everything that is not confirmed, now."""
        ...

    def begin(self, begun: Begun) -> None:
        """Send commands from now on, since the transaction has its id."""
        ...

    def send_soon(self) -> None:
        """Send the collected messages or acks soon, with those that are added until then."""
        ...

    def send_collected(self) -> None:
        """Send the collected messages or acks."""
        ...

    def on_ended(self, committed: bool) -> None:
        """Note how the transaction has ended, and forget everything."""
        ...


class PlainSender(Protocol):
    """A producer's sends to the same partition outside of transactions."""

    def send_collected(self) -> None:
        """Send the collected messages."""
        ...

    @property
    def has_unanswered(self) -> bool:
        """Whether there is something sent that is neither confirmed nor has failed."""
        ...

    def drain(self) -> Awaitable[None]:
        """Wait until everything sent is confirmed or has failed."""
        ...

    def send_alone(self, open_batch: Any, *, timeout_ms: float) -> WholeBatch:
        """Send the messages that take_open_batch() returned."""
        ...

    def send_again(self, batch: Any, *, timeout_ms: float) -> None:
        """Repeat the batch of send_alone().

        Raises:
            OutcomeUnknown: the producer is closed, and the batch may be stored. No effect.
            ClientClosed: the producer is closed, and the batch is not stored. No effect.
        """
        ...


class Sender(Writer, Protocol):
    """Sends a producer's messages of a transaction to a partition."""

    @property
    def name(self) -> PartitionName:
        """The name of the partition."""
        ...

    @property
    def plain(self) -> PlainSender:
        """The same producer's sends to this partition outside of transactions."""
        ...

    @property
    def failure(self) -> MagnetarError | None:
        """The first error of a send; None without."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether no message waits."""
        ...

    def take_open_batch(self) -> Any:
        """Take the collected messages away, to send them in another way."""
        ...

    def lead_plain_sends(self) -> None:
        """Put the producer's later sends behind the transaction's messages (order, k)."""
        ...

    def pass_on(self) -> None:
        """Let sends follow what the aborted transaction followed, if they follow nothing."""
        ...
