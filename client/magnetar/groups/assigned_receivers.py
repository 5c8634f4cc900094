"""A receiver for each partition that a group has assigned to a member, and acks of lost ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, ItemsView, Mapping
from functools import partial

from magnetar.config import ConsumerConfig
from magnetar.enums import SubscriptionType
from magnetar.groups.offsets import Offsets
from magnetar.groups.rebalance_callbacks import place_of
from magnetar.groups.settings import GroupSettings
from magnetar.link.cluster import Cluster
from magnetar.link.runtime import Runtime
from magnetar.link.topic_route import TopicRoute
from magnetar.link.unanswered import copy_error
from magnetar.messaging.receiving.partition_ownership import PartitionOwnership, Settling
from magnetar.messaging.receiving.partition_receiver import PartitionReceiver
from magnetar.messaging.receiving.permits import PrefetchBudget
from magnetar.topic_partition import TopicPartition
from magnetar_core.errors import IllegalGeneration, MagnetarError, TopicNotFound
from magnetar_core.ids import PartitionName


class AssignedReceivers:
    """The receivers of one member, from an assignment to its end."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        settings: GroupSettings,
        config: ConsumerConfig,
        prefetch: PrefetchBudget,
        subscription_type: SubscriptionType,
        consumer_name: str,
        order: list[PartitionReceiver],
        on_change: Callable[[], None],
        *,
        received_by: int,
    ) -> None:
        """No partition is assigned yet.

        Args:
            order: those that are received from; one that is forgotten leaves it.
            on_change: something can be received now, or never again.
            received_by: the id of the consumer that the application has.
        """
        self._received_by = received_by
        self._runtime = runtime
        self._cluster = cluster
        self._settings = settings
        self._config = config
        self._prefetch = prefetch
        self._type = subscription_type
        self._consumer_name = consumer_name
        self._order = order
        self._on_change = on_change
        self._routes: dict[int, TopicRoute] = {}
        self._by_name: dict[PartitionName, PartitionReceiver] = {}
        self._by_number: dict[int, PartitionReceiver] = {}
        # Acks of lost partitions that wait for their refusal.
        self._late_acks: dict[asyncio.Task[None], None] = {}
        self._failure: MagnetarError | None = None

    def items(self) -> ItemsView[PartitionName, PartitionReceiver]:
        """The partitions with their receivers."""
        return self._by_name.items()

    def get(self, name: PartitionName) -> PartitionReceiver | None:
        """The receiver of a partition, if it is assigned."""
        return self._by_name.get(name)

    def by_number(self, number: int) -> PartitionReceiver | None:
        """The receiver that has delivered a message, if its partition was not given away since."""
        return self._by_number.get(number)

    def at(self, place: TopicPartition) -> PartitionReceiver:
        """The receiver of a partition.

        Raises:
            IllegalGeneration: it is not assigned.
        """
        for name, receiver in self._by_name.items():
            if place_of(name) == place:
                return receiver
        group = self._settings.group
        raise IllegalGeneration(f"this member of group {group} does not have {place}")

    def meant(
        self, place: TopicPartition, offsets: Mapping[TopicPartition, int]
    ) -> PartitionReceiver:
        """The receiver of a partition whose messages came since it was assigned.

        Raises:
            IllegalGeneration: the messages are from an earlier assignment.
        """
        receiver = self.at(place)
        number = receiver.number
        if isinstance(offsets, Offsets):
            number = offsets.receivers[place]
        if receiver.queue.given_end is None or number != receiver.number:
            raise IllegalGeneration(f"{place} was assigned again since its messages were received")
        return receiver

    def settling(self, name: PartitionName) -> Settling:
        """Return which messages of a partition the application has not settled."""
        receiver = self._by_name.get(name)
        return Settling(False, False) if receiver is None else receiver.settling

    async def route(self, name: PartitionName) -> TopicRoute:
        """Find the brokers of a partition's topic.

        Raises:
            TopicNotFound: the topic is gone, or was made anew.
        """
        route = self._routes.get(name.topic_id)
        if route is None or name.partition >= route.partition_count:
            route = await self._cluster.route(name.topic)
            if route.topic_id != name.topic_id:
                raise TopicNotFound(f"{name} is of another incarnation of the topic")
            # Its broker has assigned it, so it is there.
            await route.reach(name.partition + 1)
            self._routes[name.topic_id] = route
        return route

    def add(self, route: TopicRoute, name: PartitionName, ownership: PartitionOwnership) -> None:
        """Receive from a partition that is assigned now."""
        receiver = PartitionReceiver(
            self._runtime,
            route,
            name.partition,
            self._settings.group,
            # One for each assignment: their acks in one transaction are numbered apart.
            self._runtime.new_id(),
            self._consumer_name,
            self._type,
            self._settings.initial_position,
            self._config,
            self._prefetch,
            self._on_change,
            ownership,
            received_by=self._received_by,
        )
        self._by_name[name] = receiver
        self._by_number[receiver.number] = receiver

    def forget(self, name: PartitionName) -> PartitionReceiver | None:
        """Forget a partition that is no longer assigned."""
        receiver = self._by_name.pop(name, None)
        if receiver is not None:
            del self._by_number[receiver.number]
            if receiver in self._order:
                self._order.remove(receiver)
        return receiver

    def lose(self, name: PartitionName) -> None:
        """Give up a partition that another member has: none of its messages count from now on."""
        receiver = self.forget(name)
        if receiver is None:
            return
        receiver.lose(IllegalGeneration(f"{name} was given away"))
        flushing = self._runtime.spawn(
            partial(self._flush_late, receiver), f"late acks of {name}", self._note
        )
        self._late_acks[flushing] = None
        self._runtime.when_done(self._note, flushing, lambda task: self._late_acks.pop(task, None))

    async def _flush_late(self, receiver: PartitionReceiver) -> None:
        try:
            await receiver.acks.flush()
        except MagnetarError as error:
            self._note(error)

    async def close_one(self, receiver: PartitionReceiver) -> None:
        """Confirm the acks of a partition that is given back; `flush_late` raises what failed."""
        self._note(await receiver.close())

    def _note(self, failure: MagnetarError | None) -> None:
        self._failure = self._failure or failure

    async def flush_late(self) -> None:
        """Wait for the acks of partitions that are gone.

        Raises:
            MagnetarError: the first failure of one of them, once.
        """
        if self._late_acks:
            await asyncio.gather(*self._late_acks, return_exceptions=True)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise copy_error(failure)

    async def close(self) -> None:
        """Confirm acks, and leave all partitions."""
        await asyncio.gather(*(receiver.close() for receiver in self._by_name.values()))
