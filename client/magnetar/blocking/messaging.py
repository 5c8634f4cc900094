"""Producers and consumers without asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import magnetar
from magnetar.blocking.loop_thread import Closing, LoopThread
from magnetar.blocking.transaction import Transaction, inner_of
from magnetar.column_batch import ColumnBatch
from magnetar.enums import InitialPosition
from magnetar.errors import ClientClosed
from magnetar.message import Message, MessageColumns
from magnetar.messaging.batching import Properties
from magnetar.messaging.consumer import Acknowledged
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.ids import MessageId


class Producer(Closing):
    """See magnetar.Producer."""

    def __init__(self, loop: LoopThread, inner: magnetar.Producer) -> None:
        self._loop = loop
        self.inner = inner

    @property
    def topic(self) -> str:
        return self.inner.topic

    @property
    def partition_count(self) -> int:
        return self.inner.partition_count

    def send(
        self,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | None = None,
    ) -> MessageId | TxnSend:
        return self._loop.wait(
            self.inner.send(
                value,
                key,
                properties=properties,
                event_time_ms=event_time_ms,
                partition=partition,
                txn=inner_of(txn),
            )
        )

    def enqueue(
        self,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | None = None,
    ) -> None:
        """One visit to the loop's thread per message: `send_many` is much faster."""
        self._loop.wait(
            self.inner.enqueue(
                value,
                key,
                properties=properties,
                event_time_ms=event_time_ms,
                partition=partition,
                txn=inner_of(txn),
            )
        )

    def send_nowait(
        self,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | None = None,
    ) -> None:
        self._loop.call(
            lambda: self.inner.send_nowait(
                value,
                key,
                properties=properties,
                event_time_ms=event_time_ms,
                partition=partition,
                txn=inner_of(txn),
            )
        )

    def send_many(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes] | None = None,
        *,
        partition: int | None = None,
        txn: Transaction | None = None,
    ) -> None:
        self._loop.wait(self.inner.send_many(values, keys, partition=partition, txn=inner_of(txn)))

    def send_columns(
        self,
        batches: Iterable[ColumnBatch],
        *,
        partition: int | None = None,
        txn: Transaction | None = None,
    ) -> None:
        self._loop.wait(self.inner.send_columns(batches, partition=partition, txn=inner_of(txn)))

    def flush(self) -> None:
        self._loop.wait(self.inner.flush())

    def close(self) -> None:
        self._loop.wait(self.inner.close())


class Receiving(Closing):
    """What every consumer does, however it comes by its partitions; see magnetar.Consumer.

    Iterating gives messages until the consumer is closed.
    """

    def __init__(self, loop: LoopThread, inner: magnetar.Consumer | magnetar.GroupConsumer) -> None:
        self._loop = loop
        self._receiving = inner

    @property
    def loop(self) -> LoopThread:
        """The client's thread, for what is built on top of this consumer."""
        return self._loop

    def receive(self, timeout_s: float | None = None) -> Message:
        return self._loop.wait(self._receiving.receive(timeout_s))

    def receive_batch(
        self, max_messages: int = 1_000, timeout_s: float | None = None
    ) -> list[Message]:
        return self._loop.wait(self._receiving.receive_batch(max_messages, timeout_s))

    def receive_columns(
        self, max_messages: int = 10_000, timeout_s: float | None = None
    ) -> list[MessageColumns]:
        return self._loop.wait(self._receiving.receive_columns(max_messages, timeout_s))

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                message = self.receive()
            except ClientClosed:
                return
            yield message

    def ack(self, message: Acknowledged, *, txn: Transaction | None = None) -> None:
        self._loop.wait(self._receiving.ack(message, txn=inner_of(txn)))

    def ack_many(
        self, messages: Iterable[Acknowledged] | MessageColumns, *, txn: Transaction | None = None
    ) -> None:
        self._loop.wait(self._receiving.ack_many(messages, txn=inner_of(txn)))

    def ack_nowait(
        self,
        messages: Acknowledged | Iterable[Acknowledged] | MessageColumns,
        *,
        txn: Transaction | None = None,
    ) -> None:
        self._loop.call(lambda: self._receiving.ack_nowait(messages, txn=inner_of(txn)))

    def ack_cumulative(self, message: Acknowledged, *, txn: Transaction | None = None) -> None:
        self._loop.wait(self._receiving.ack_cumulative(message, txn=inner_of(txn)))

    def flush_acks(self) -> None:
        self._loop.wait(self._receiving.flush_acks())

    def nack(self, message: Acknowledged, *, delay_s: float | None = None) -> None:
        self._loop.call(lambda: self._receiving.nack(message, delay_s=delay_s))

    def nack_many(self, messages: Iterable[Message], *, delay_s: float | None = None) -> None:
        self._loop.call(lambda: self._receiving.nack_many(messages, delay_s=delay_s))

    def close(self) -> None:
        self._loop.wait(self._receiving.close())


class Consumer(Receiving):
    """See magnetar.Consumer."""

    def __init__(self, loop: LoopThread, inner: magnetar.Consumer) -> None:
        super().__init__(loop, inner)
        self.inner = inner

    @property
    def topic(self) -> str:
        return self.inner.topic

    @property
    def subscription(self) -> str:
        return self.inner.subscription

    @property
    def partitions(self) -> tuple[int, ...]:
        return self.inner.partitions

    @property
    def active_partitions(self) -> tuple[int, ...]:
        return self.inner.active_partitions

    def seek(
        self,
        *,
        offset: int | None = None,
        message_id: MessageId | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | str | None = None,
        partition: int | None = None,
    ) -> dict[int, int]:
        return self._loop.wait(
            self.inner.seek(
                offset=offset,
                message_id=message_id,
                append_time_ms=append_time_ms,
                position=position,
                partition=partition,
            )
        )
