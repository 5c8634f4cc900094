"""The same client without asyncio: for scripts, threads and Spark tasks.

One background thread runs the asyncio client; every call waits for it. Names, arguments and errors
are those of the asyncio classes, except that timeouts also end a call whose answer does not come.
Objects may be used from several threads.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import magnetar
from magnetar import client as asyncio_client
from magnetar.batching import Properties
from magnetar.cluster import ClusterInfo
from magnetar.config import ClientConfig
from magnetar.consumer import Acknowledged
from magnetar.dead_letters import DeadLetterPolicy
from magnetar.errors import ClientClosed, UsedAfterFork
from magnetar.message import Message, MessageColumns
from magnetar.model import (
    InitialPosition,
    SubscriptionType,
    TopicDescription,
    TopicSummary,
    TransactionAction,
    TransactionDescription,
    TransactionStatus,
    TxnSend,
    UncommittedMessage,
)
from magnetar_core.batch import Codec
from magnetar_core.clock import Clock
from magnetar_core.ids import MessageId, TxnID
from magnetar_core.transport import Transport

T = TypeVar("T")


class _LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="magnetar", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop and wait for it. An interrupt cancels it.

        Raises:
            UsedAfterFork: the loop's thread lives in the parent process only.
        """
        self.check(work.close)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call something on the loop and wait for its result."""

        async def work() -> T:
            return function()

        return self.wait(work())

    def check(self, otherwise: Callable[[], None] = lambda: None) -> None:
        if os.getpid() != self._pid:
            otherwise()
            raise UsedAfterFork(
                "this client was made before a fork and does not work in the child process; "
                "connect again here"
            )
        if self._closed:
            otherwise()
            raise ClientClosed("the client is closed")

    def close(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


class _Closing:
    """Things that are closed at the end of a `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transaction:
    """See magnetar.Transaction. As a context manager it commits, or aborts on an exception."""

    def __init__(self, loop: _LoopThread, inner: magnetar.Transaction) -> None:
        self._loop = loop
        self.inner = inner

    @property
    def txn_id(self) -> TxnID:
        return self.inner.txn_id

    @property
    def status(self) -> TransactionStatus:
        return self.inner.status

    def commit(self, *, wait_finished: bool = False) -> None:
        self._loop.wait(self.inner.commit(wait_finished=wait_finished))

    def abort(self) -> None:
        self._loop.wait(self.inner.abort())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.wait(self.inner.__aexit__(kind, error, traceback))


def _inner(txn: Transaction | None) -> magnetar.Transaction | None:
    return None if txn is None else txn.inner


class Producer(_Closing):
    """See magnetar.Producer."""

    def __init__(self, loop: _LoopThread, inner: magnetar.Producer) -> None:
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
                txn=_inner(txn),
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
                txn=_inner(txn),
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
                txn=_inner(txn),
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
        self._loop.wait(self.inner.send_many(values, keys, partition=partition, txn=_inner(txn)))

    def flush(self) -> None:
        self._loop.wait(self.inner.flush())

    def close(self) -> None:
        self._loop.wait(self.inner.close())


class Consumer(_Closing):
    """See magnetar.Consumer. Iterating gives messages until the consumer is closed."""

    def __init__(self, loop: _LoopThread, inner: magnetar.Consumer) -> None:
        self._loop = loop
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

    def receive(self, timeout_s: float | None = None) -> Message:
        return self._loop.wait(self.inner.receive(timeout_s))

    def receive_batch(
        self, max_messages: int = 1_000, timeout_s: float | None = None
    ) -> list[Message]:
        return self._loop.wait(self.inner.receive_batch(max_messages, timeout_s))

    def receive_columns(
        self, max_messages: int = 10_000, timeout_s: float | None = None
    ) -> list[MessageColumns]:
        return self._loop.wait(self.inner.receive_columns(max_messages, timeout_s))

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                message = self.receive()
            except ClientClosed:
                return
            yield message

    def ack(self, message: Acknowledged, *, txn: Transaction | None = None) -> None:
        self._loop.wait(self.inner.ack(message, txn=_inner(txn)))

    def ack_many(
        self, messages: Iterable[Acknowledged] | MessageColumns, *, txn: Transaction | None = None
    ) -> None:
        self._loop.wait(self.inner.ack_many(messages, txn=_inner(txn)))

    def ack_nowait(
        self,
        messages: Acknowledged | Iterable[Acknowledged] | MessageColumns,
        *,
        txn: Transaction | None = None,
    ) -> None:
        self._loop.call(lambda: self.inner.ack_nowait(messages, txn=_inner(txn)))

    def ack_cumulative(self, message: Acknowledged, *, txn: Transaction | None = None) -> None:
        self._loop.wait(self.inner.ack_cumulative(message, txn=_inner(txn)))

    def flush_acks(self) -> None:
        self._loop.wait(self.inner.flush_acks())

    def nack(self, message: Acknowledged, *, delay_s: float | None = None) -> None:
        self._loop.call(lambda: self.inner.nack(message, delay_s=delay_s))

    def nack_many(self, messages: Iterable[Message], *, delay_s: float | None = None) -> None:
        self._loop.call(lambda: self.inner.nack_many(messages, delay_s=delay_s))

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

    def close(self) -> None:
        self._loop.wait(self.inner.close())


class Client(_Closing):
    """See magnetar.Client."""

    def __init__(self, loop: _LoopThread, inner: magnetar.Client) -> None:
        self._loop = loop
        self.inner = inner

    def create_producer(
        self,
        topic: str,
        *,
        codec: Codec | str = Codec.NONE,
        linger_ms: float | None = None,
        batch_bytes_max: int | None = None,
        batch_messages_max: int | None = None,
        in_flight_batches_max: int | None = None,
        whole_bytes_max: int | None = None,
        message_bytes_max: int | None = None,
    ) -> Producer:
        inner = self._loop.wait(
            self.inner.create_producer(
                topic,
                codec=codec,
                linger_ms=linger_ms,
                batch_bytes_max=batch_bytes_max,
                batch_messages_max=batch_messages_max,
                in_flight_batches_max=in_flight_batches_max,
                whole_bytes_max=whole_bytes_max,
                message_bytes_max=message_bytes_max,
            )
        )
        return Producer(self._loop, inner)

    def subscribe(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionType | str = SubscriptionType.EXCLUSIVE,
        initial_position: InitialPosition | str = InitialPosition.LATEST,
        partitions: Sequence[int] | None = None,
        consumer_name: str = "",
        receiver_queue_messages: int | None = None,
        receiver_queue_bytes: int | None = None,
        message_bytes_max: int | None = None,
        ack_linger_ms: float | None = None,
        nack_delay_ms: float | None = None,
        nack_delay_ms_max: float | None = None,
        dead_letter: DeadLetterPolicy | None = None,
    ) -> Consumer:
        inner = self._loop.wait(
            self.inner.subscribe(
                topic,
                subscription,
                type=type,
                initial_position=initial_position,
                partitions=partitions,
                consumer_name=consumer_name,
                receiver_queue_messages=receiver_queue_messages,
                receiver_queue_bytes=receiver_queue_bytes,
                message_bytes_max=message_bytes_max,
                ack_linger_ms=ack_linger_ms,
                nack_delay_ms=nack_delay_ms,
                nack_delay_ms_max=nack_delay_ms_max,
                dead_letter=dead_letter,
            )
        )
        return Consumer(self._loop, inner)

    def begin_transaction(self, timeout_s: float = 60.0, *, lazy: bool = False) -> Transaction:
        inner = self._loop.wait(self.inner.begin_transaction(timeout_s, lazy=lazy))
        return Transaction(self._loop, inner)

    def transaction(self, timeout_s: float = 60.0, *, lazy: bool = False) -> Transaction:
        """`with client.transaction() as txn`. Unlike in asyncio it begins at the call."""
        return self.begin_transaction(timeout_s, lazy=lazy)

    def read(
        self,
        topic: str,
        partition: int = 0,
        start: int = 0,
        end: int | None = None,
        *,
        follow_period_s: float | None = None,
    ) -> Iterator[Message]:
        for columns in self.read_columns(
            topic, partition, start, end, follow_period_s=follow_period_s
        ):
            yield from columns

    def read_columns(
        self,
        topic: str,
        partition: int = 0,
        start: int = 0,
        end: int | None = None,
        *,
        follow_period_s: float | None = None,
        messages_max: int = 10_000,
        bytes_max: int = 4 << 20,
    ) -> Iterator[MessageColumns]:
        pieces = self.inner.read_columns(
            topic,
            partition,
            start,
            end,
            follow_period_s=follow_period_s,
            messages_max=messages_max,
            bytes_max=bytes_max,
        )
        try:
            while (columns := self._loop.wait(_next(pieces))) is not None:
                yield columns
        finally:
            self._loop.wait(pieces.aclose())

    def cluster_info(self) -> ClusterInfo:
        return self._loop.wait(self.inner.cluster_info())

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        retention_ms: int = 0,
        retention_bytes: int = 0,
        retain_unconsumed: bool = True,
    ) -> int:
        return self._loop.wait(
            self.inner.create_topic(
                topic,
                partitions=partitions,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                retain_unconsumed=retain_unconsumed,
            )
        )

    def list_topics(self) -> list[TopicSummary]:
        return self._loop.wait(self.inner.list_topics())

    def describe_topic(self, topic: str) -> TopicDescription:
        return self._loop.wait(self.inner.describe_topic(topic))

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        self._loop.wait(self.inner.delete_topic(topic, force=force))

    def create_subscription(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionType = SubscriptionType.EXCLUSIVE,
        initial_position: InitialPosition | str = InitialPosition.LATEST,
    ) -> None:
        self._loop.wait(
            self.inner.create_subscription(
                topic, subscription, type=type, initial_position=initial_position
            )
        )

    def unsubscribe(self, topic: str, subscription: str, *, force: bool = False) -> None:
        self._loop.wait(self.inner.unsubscribe(topic, subscription, force=force))

    def seek(
        self,
        topic: str,
        subscription: str,
        *,
        offset: int | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | str | None = None,
        partition: int | None = None,
        force: bool = False,
    ) -> dict[int, int]:
        return self._loop.wait(
            self.inner.seek(
                topic,
                subscription,
                offset=offset,
                append_time_ms=append_time_ms,
                position=position,
                partition=partition,
                force=force,
            )
        )

    def peek_uncommitted(
        self,
        topic: str,
        partition: int = 0,
        txn_id: TxnID | None = None,
        *,
        skip: int = 0,
        messages_max: int = 100,
    ) -> list[UncommittedMessage]:
        return self._loop.wait(
            self.inner.peek_uncommitted(
                topic, partition, txn_id, skip=skip, messages_max=messages_max
            )
        )

    def list_transactions(
        self,
        statuses: Iterable[TransactionStatus] = (),
        *,
        age_ms_min: int = 0,
        limit: int = 1_000,
    ) -> list[TransactionDescription]:
        return self._loop.wait(
            self.inner.list_transactions(statuses, age_ms_min=age_ms_min, limit=limit)
        )

    def describe_transaction(self, txn_id: TxnID) -> TransactionDescription:
        return self._loop.wait(self.inner.describe_transaction(txn_id))

    def end_transaction(
        self, txn_id: TxnID, action: TransactionAction, *, wait_finished: bool = True
    ) -> TransactionStatus:
        return self._loop.wait(
            self.inner.end_transaction(txn_id, action, wait_finished=wait_finished)
        )

    def accept_transaction_loss(self, txn_id: TxnID) -> None:
        self._loop.wait(self.inner.accept_transaction_loss(txn_id))

    def close(self) -> None:
        """Close the client and end its thread. In a forked child: does nothing."""
        try:
            self._loop.check()
        except (UsedAfterFork, ClientClosed):
            return
        try:
            self._loop.wait(self.inner.close())
        finally:
            self._loop.close()


def connect(
    address: str,
    *,
    transport: Callable[[], Transport] | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    config: ClientConfig | None = None,
) -> Client:
    """See magnetar.connect.

    Args:
        transport: makes the transport, on the client's own thread.
    """
    loop = _LoopThread()

    async def work() -> magnetar.Client:
        return await asyncio_client.connect(
            address,
            transport=None if transport is None else transport(),
            clock=clock,
            random=random,
            config=config,
        )

    try:
        return Client(loop, loop.wait(work()))
    except BaseException:
        loop.close()
        raise


async def _next(pieces: AsyncIterator[MessageColumns]) -> MessageColumns | None:
    return await anext(pieces, None)
