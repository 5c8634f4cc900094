"""Consumers receive and acknowledge the messages of a subscription."""

from __future__ import annotations

from magnetar.arguments import checked
from magnetar.enums import InitialPosition
from magnetar.messaging.consuming.consumer_base import ConsumerBase
from magnetar.messaging.consuming.subscription_work import SubscriptionWork
from magnetar_core.ids import MessageId


class Consumer(ConsumerBase):
    """Receives the messages of a subscription. `Client.subscribe` makes it.

    A received message stays with this consumer until it is acknowledged, given back by `nack`, or
    until the consumer closes or its link breaks. A message that was acknowledged in a transaction
    comes again if the transaction aborts.

        consumer = await client.subscribe("orders", "billing", initial_position="earliest")
        message = await consumer.receive()
        await consumer.ack(message)
    """

    work: SubscriptionWork

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.work.topic

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the partitions from which this consumer receives."""
        return tuple(self.work.receivers)

    @property
    def active_partitions(self) -> tuple[int, ...]:
        """With FAILOVER: the partitions whose messages this consumer gets."""
        return tuple(
            partition for partition, receiver in self.work.receivers.items() if receiver.active
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
        return await self.work.seek(offset, message_id, append_time_ms, position, partition)

    async def close(self) -> None:
        """Confirm pending acks and leave the subscription."""
        await self.work.close()
