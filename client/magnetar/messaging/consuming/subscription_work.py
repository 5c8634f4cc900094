"""The work of a Consumer, which has partitions of a topic, or all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from magnetar.config import ConsumerConfig
from magnetar.enums import InitialPosition, SubscriptionType
from magnetar.link.runtime import Runtime
from magnetar.link.topic_route import TopicRoute
from magnetar.messaging.consuming.consumer_work import Acknowledged, ConsumerWork
from magnetar.messaging.consuming.dead_letters import DeadLetters
from magnetar.messaging.receiving.partition_receiver import PartitionReceiver
from magnetar.messaging.receiving.permits import PrefetchBudget
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import MessageId


class SubscriptionWork(ConsumerWork):
    """Receives and acknowledges at the brokers of its partitions, and moves the cursor there.

    Attributes:
        topic: the topic's name.
        receivers: those of its partitions, by their numbers.
    """

    def __init__(
        self,
        runtime: Runtime,
        route: TopicRoute,
        subscription: str,
        partitions: Sequence[int] | None,
        subscription_type: SubscriptionType,
        initial_position: InitialPosition,
        consumer_name: str,
        config: ConsumerConfig,
        prefetch: PrefetchBudget,
        on_close: Callable[[SubscriptionWork], None],
        dead_letters: DeadLetters | None = None,
    ) -> None:
        """Attach to partitions.

        Args:
            partitions: their numbers; None: all that the topic has, and those that it gets.
        """
        super().__init__(runtime, subscription, subscription_type, dead_letters)
        self.topic = route.topic
        self._route = route
        self._on_close = on_close
        self._make = partial(
            PartitionReceiver,
            runtime,
            route,
            subscription=subscription,
            consumer_id=self.consumer_id,
            consumer_name=consumer_name or f"consumer-{self.consumer_id:016x}",
            subscription_type=subscription_type,
            config=config,
            prefetch=prefetch,
            on_change=self._note_change,
            received_by=self.consumer_id,
        )
        self.receivers: dict[int, PartitionReceiver] = {
            partition: self._make(partition, initial_position=initial_position)
            for partition in (range(route.partition_count) if partitions is None else partitions)
        }
        self._order = list(self.receivers.values())
        self._stop_watching = _nothing if partitions else route.when_grown(self._grow)

    def _grow(self) -> None:
        """Receive from the partitions that the topic has got, from their first message on."""
        for partition in range(len(self.receivers), self._route.partition_count):
            receiver = self._make(partition, initial_position=InitialPosition.EARLIEST)
            self.receivers[partition] = receiver
            self._order.append(receiver)
        self._note_change()

    async def started(self) -> None:
        """Wait until every partition is attached.

        Raises:
            MagnetarError: a broker refused the subscription.
        """
        for receiver in self._order:
            await receiver.started()

    async def seek(
        self,
        offset: int | None,
        message_id: MessageId | None,
        append_time_ms: int | None,
        position: InitialPosition | str | None,
        partition: int | None,
    ) -> dict[int, int]:
        """Move the cursor of the subscription; see Consumer.seek."""
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
        self._stop_watching()
        # At once: a close that is cancelled does not reach its end.
        self._note_change()
        self._on_close(self)
        if self._dead_letters is not None:
            await self._dead_letters.close()
        await asyncio.gather(*(receiver.close() for receiver in self._order))

    def _receiver_of(self, message: Acknowledged) -> PartitionReceiver:
        return self._receiver(message.partition)

    def _receiver(self, partition: int) -> PartitionReceiver:
        receiver = self.receivers.get(partition)
        if receiver is None:
            raise InvalidArgument(f"this consumer does not have partition {partition}")
        return receiver


def _nothing() -> None:
    return
