"""Consumers of groups, and the loop around them, without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import magnetar
from magnetar.blocking.loop_thread import LoopThread
from magnetar.blocking.messaging import Receiving
from magnetar.blocking.transaction import Transaction, inner_of
from magnetar.enums import InitialPosition
from magnetar.groups import settings
from magnetar.message import Message
from magnetar.topic_partition import TopicPartition
from magnetar_core.ids import MessageId


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


def on_a_thread(
    callback: OnPartitions | None,
) -> settings.OnPartitions | None:
    """A callback may use the blocking client, which waits for the loop: it must not be in it."""
    if callback is None:
        return None

    async def call(places: list[TopicPartition]) -> None:
        await asyncio.to_thread(callback, places)

    return call
