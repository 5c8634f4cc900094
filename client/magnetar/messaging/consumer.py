"""Consumers receive and acknowledge the messages of a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from magnetar.arguments import checked
from magnetar.config import ConsumerConfig
from magnetar.enums import InitialPosition, SubscriptionType
from magnetar.link.runtime import Runtime
from magnetar.link.topic_route import TopicRoute
from magnetar.messaging.consumer_base import Acknowledged, ConsumerBase
from magnetar.messaging.dead_letters import DeadLetters
from magnetar.messaging.partition_receiver import PartitionReceiver
from magnetar.messaging.permits import PrefetchBudget
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import MessageId

__all__ = ["Acknowledged", "Consumer"]


class Consumer(ConsumerBase):
    """Receives the messages of a subscription. `Client.subscribe` makes it.

    A received message stays with this consumer until it is acknowledged, given back by `nack`, or
    until the consumer closes or its link breaks. A message that was acknowledged in a transaction
    comes again if the transaction aborts.

        consumer = await client.subscribe("orders", "billing", initial_position="earliest")
        message = await consumer.receive()
        await consumer.ack(message)
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
        prefetch: PrefetchBudget,
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
                prefetch,
                self._note_change,
                received_by=self.consumer_id,
            )
            for partition in partitions
        }
        self._order = list(self._receivers.values())

    async def started(self) -> None:
        """Wait until every partition is attached.

        Raises:
            MagnetarError: a broker refused the subscription.
        """
        for receiver in self._order:
            await receiver.started()

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._route.topic

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the partitions from which this consumer receives."""
        return tuple(self._receivers)

    @property
    def active_partitions(self) -> tuple[int, ...]:
        """With FAILOVER: the partitions whose messages this consumer gets."""
        return tuple(
            partition for partition, receiver in self._receivers.items() if receiver.active
        )

    @checked
    async def seek(
        self,
        *,
        offset: int | None = None,
        message_id: MessageId | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | str | None = None,
        partition: int | None = None,
    ) -> dict[int, int]:
        """Move the cursor of the subscription, for all of its consumers.

        Give exactly one of `offset`, `message_id`, `append_time_ms` and `position`. Messages that
        were received before can no longer be acknowledged: those behind the new cursor are
        delivered again, the others are not.

        Args:
            offset: the offset of the next message to receive.
            message_id: the id of the next message to receive.
            append_time_ms: milliseconds since the Unix epoch: the next message is the first that
                was stored at this time or later.
            position: "earliest" or "latest".
            partition: the partition's number; by default all partitions of this consumer.
        Returns:
            The new offset of each partition.
        Raises:
            InvalidArgument: no target was given, or several.
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
        """Confirm pending acks and leave the subscription."""
        self._runtime.require_loop()
        if self._closed:
            return
        self._closed = True
        # At once: a close that is cancelled does not reach its end.
        self._note_change()
        self._on_close(self)
        if self._dead_letters is not None:
            await self._dead_letters.close()
        await asyncio.gather(*(receiver.close() for receiver in self._order))

    def _receiver_of(self, message: Acknowledged) -> PartitionReceiver:
        return self._receiver(message.partition)

    def _receiver(self, partition: int) -> PartitionReceiver:
        receiver = self._receivers.get(partition)
        if receiver is None:
            raise InvalidArgument(f"this consumer does not have partition {partition}")
        return receiver
