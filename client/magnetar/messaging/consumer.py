"""Receives and acknowledges a subscription's messages, from some or all of a topic's partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from magnetar.config import ConsumerConfig
from magnetar.enums import InitialPosition, SubscriptionType
from magnetar.link.cluster import TopicRoute
from magnetar.link.runtime import Runtime
from magnetar.messaging.consumer_base import Acknowledged, ConsumerBase
from magnetar.messaging.dead_letters import DeadLetters
from magnetar.messaging.partition_receiver import PartitionReceiver
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import MessageId

__all__ = ["Acknowledged", "Consumer"]


class Consumer(ConsumerBase):
    """Made by `Client.subscribe`.

    Messages that were received and neither acknowledged nor given back stay with this consumer
    until it closes or its link breaks. Those acknowledged in a transaction that aborts come again.
    """

    def __init__(
        self,
        runtime: Runtime,
        route: TopicRoute,
        subscription: str,
        partitions: Sequence[int],
        subscription_type: SubscriptionType,
        initial_position: InitialPosition,
        consumer_name: str,
        config: ConsumerConfig,
        on_close: Callable[[Consumer], None],
        dead_letters: DeadLetters | None = None,
    ) -> None:
        super().__init__(runtime, subscription, subscription_type, dead_letters)
        self.consumer_id = runtime.new_id()
        self._route = route
        self._on_close = on_close
        self._receivers: dict[int, PartitionReceiver] = {
            partition: PartitionReceiver(
                runtime,
                route,
                partition,
                subscription,
                self.consumer_id,
                consumer_name or f"consumer-{self.consumer_id:016x}",
                subscription_type,
                initial_position,
                config,
                self._changed.set,
            )
            for partition in partitions
        }
        self._order = list(self._receivers.values())

    async def started(self) -> None:
        """Wait until every partition is attached. Raises: what a broker refuses it with."""
        for receiver in self._order:
            await receiver.started()

    @property
    def topic(self) -> str:
        return self._route.topic

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(self._receivers)

    @property
    def active_partitions(self) -> tuple[int, ...]:
        """FAILOVER: where this consumer is the one that gets messages."""
        return tuple(one for one, receiver in self._receivers.items() if receiver.active)

    async def seek(
        self,
        *,
        offset: int | None = None,
        message_id: MessageId | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | str | None = None,
        partition: int | None = None,
    ) -> dict[int, int]:
        """Move the subscription's cursor, for all of its consumers. Name exactly one target.

        What was received before is void: it is delivered again, or never, as the cursor says.

        Args:
            append_time_ms: milliseconds since the Unix epoch; the first message not older.
            position: "earliest" or "latest".
            partition: only there; all partitions of this consumer otherwise.
        Returns: the new offset of each partition.
        Raises:
            ResourceInUse: acks are pending in transactions. No effect.
        """
        if message_id is not None and partition is None:
            partition = message_id.partition
        receivers = self._order if partition is None else [self._receiver(partition)]
        return {
            receiver.name.partition: await self._seek(
                receiver, offset, message_id, append_time_ms, position
            )
            for receiver in receivers
        }

    async def close(self) -> None:
        """Confirm acks and leave the subscription."""
        if self._closed:
            return
        self._closed = True
        self._on_close(self)
        if self._dead_letters is not None:
            await self._dead_letters.close()
        await asyncio.gather(*(receiver.close() for receiver in self._order))
        self._changed.set()

    def _receiver_of(self, message: Acknowledged) -> PartitionReceiver:
        return self._receiver(message.partition)

    def _receiver(self, partition: int) -> PartitionReceiver:
        receiver = self._receivers.get(partition)
        if receiver is None:
            raise InvalidArgument(f"this consumer does not have partition {partition}")
        return receiver
