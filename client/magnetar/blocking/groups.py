"""Consumers of groups, and the loop around them, without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import magnetar
from magnetar import processing
from magnetar.blocking.loop_thread import LoopThread
from magnetar.blocking.messaging import Receiving
from magnetar.blocking.transactions import Transaction, inner_of
from magnetar.message import Message
from magnetar.model import InitialPosition
from magnetar.places import TopicPartition
from magnetar.processing import Output, ProcessSummary
from magnetar_core.ids import MessageId

if TYPE_CHECKING:
    from magnetar.blocking.transactions import TransactionalProducer


class GroupConsumer(Receiving):
    """See magnetar.GroupConsumer. Its callbacks run on threads of their own."""

    def __init__(self, loop: LoopThread, inner: magnetar.GroupConsumer) -> None:
        super().__init__(loop, inner)
        self.inner = inner

    @property
    def group(self) -> str:
        return self.inner.group

    @property
    def member_id(self) -> str:
        return self.inner.member_id

    @property
    def instance_id(self) -> str:
        return self.inner.instance_id

    @property
    def generation(self) -> int:
        return self.inner.generation

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return self._loop.call(lambda: self.inner.assignment)

    @property
    def waiting_partitions(self) -> tuple[TopicPartition, ...]:
        return self._loop.call(lambda: self.inner.waiting_partitions)

    def joined(self, timeout_s: float | None = None) -> int:
        return self._loop.wait(self.inner.joined(timeout_s))

    def poll(self, timeout_s: float = 5.0, max_messages: int = 1_000) -> list[Message]:
        return self._loop.wait(self.inner.poll(timeout_s, max_messages))

    def ack_offsets(
        self, offsets: Mapping[TopicPartition, int], *, txn: Transaction | None = None
    ) -> None:
        self._loop.wait(self.inner.ack_offsets(offsets, txn=inner_of(txn)))

    def seek(
        self,
        partition: TopicPartition,
        *,
        offset: int | None = None,
        message_id: MessageId | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | str | None = None,
    ) -> int:
        return self._loop.wait(
            self.inner.seek(
                partition,
                offset=offset,
                message_id=message_id,
                append_time_ms=append_time_ms,
                position=position,
            )
        )

    def has(self, message: Message) -> bool:
        return self.inner.has(message)

    def redeliver(self) -> None:
        self._loop.call(self.inner.redeliver)

    def close(self, *, leave: bool | None = None) -> None:
        self._loop.wait(self.inner.close(leave=leave))


OnPartitions = Callable[[list[TopicPartition]], object]


def on_a_thread(callback: OnPartitions | None) -> magnetar.group_consumer.OnPartitions | None:
    """A callback may use the blocking client, which waits for the loop: it must not be in it."""
    if callback is None:
        return None

    async def call(places: list[TopicPartition]) -> None:
        await asyncio.to_thread(callback, places)

    return call


def process(
    consumer: GroupConsumer,
    transform: Callable[[Message], Iterable[Output]],
    producer: TransactionalProducer,
    *,
    batch_messages_max: int = 1_000,
    batch_wait_s: float = 0.05,
    attempts_max: int = 3,
    dead_letter: str | None = None,
    handle_signals: bool = True,
) -> ProcessSummary:
    """See magnetar.process. transform() runs on a thread of its own, beside the heartbeats."""
    stop = asyncio.Event()

    async def on_thread(message: Message) -> list[Output]:
        return await asyncio.to_thread(lambda: list(transform(message)))

    work = processing.process(
        consumer.inner,
        on_thread,
        producer.inner,
        batch_messages_max=batch_messages_max,
        batch_wait_s=batch_wait_s,
        attempts_max=attempts_max,
        dead_letter=dead_letter,
        stop=stop,
        handle_signals=False,
    )
    loop = consumer.loop
    if not handle_signals:
        return loop.wait(work)
    with processing.stopping_signals(lambda: loop.post(stop.set)):
        return loop.wait(work)
