"""The consumers of a client, of subscriptions and of groups: starts and closes them.

They stand in the room of groups since that may import what plain consumers are made of.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.arguments import enum_member
from magnetar.config import ConsumerConfig, ProducerConfig
from magnetar.enums import (
    InitialPosition,
    InitialPositionName,
    SubscriptionType,
    SubscriptionTypeName,
)
from magnetar.groups.group_consumer import GroupConsumer
from magnetar.groups.member_work import MemberWork
from magnetar.groups.settings import Callbacks, GroupSettings
from magnetar.link.cluster import Cluster
from magnetar.messaging.consuming.consumer import Consumer
from magnetar.messaging.consuming.consumer_work import ConsumerWork
from magnetar.messaging.consuming.dead_letters import DeadLetterPolicy, DeadLetters
from magnetar.messaging.consuming.subscription_work import SubscriptionWork
from magnetar.messaging.receiving.permits import PrefetchBudget
from magnetar.messaging.sending.backpressure import PendingBudget
from magnetar.messaging.sending.producer import Producer
from magnetar.messaging.sending.producer_work import ProducerWork
from magnetar.transactions.open_transactions import OpenTransactions
from magnetar_core.errors import InvalidArgument, MagnetarError


class OpenConsumers:
    """Makes consumers, and knows those that are not closed. Belongs to one client."""

    def __init__(
        self, cluster: Cluster, transactions: OpenTransactions, budget: PendingBudget
    ) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._transactions = transactions
        self._budget = budget
        self._prefetch = PrefetchBudget(cluster.runtime.config.prefetch_bytes_max)
        self._open: dict[int, ConsumerWork] = {}

    async def subscribe(
        self,
        topic: str,
        subscription: str,
        type: SubscriptionType | SubscriptionTypeName,
        initial_position: InitialPosition | InitialPositionName,
        partitions: Sequence[int] | None,
        consumer_name: str,
        config: ConsumerConfig,
        dead_letter: DeadLetterPolicy | None,
    ) -> Consumer:
        """Attach a consumer: see Client.subscribe."""
        route = await self._cluster.route(topic)
        # Each one once, or its receivers would take the partition from each other.
        named = range(route.partition_count) if partitions is None else partitions
        wanted = tuple(dict.fromkeys(named))
        if not wanted or not all(0 <= one < route.partition_count for one in wanted):
            raise InvalidArgument(f"{topic} has no partitions {list(wanted)}")
        work = SubscriptionWork(
            self._runtime,
            route,
            subscription,
            wanted,
            enum_member("type", SubscriptionType, type),
            enum_member("initial_position", InitialPosition, initial_position),
            consumer_name,
            config,
            self._prefetch,
            self._forget,
            await self._dead_letters(dead_letter, topic, subscription),
        )
        await self._start(work)
        return Consumer(work)

    async def join(
        self,
        settings: GroupSettings,
        callbacks: Callbacks,
        config: ConsumerConfig,
        dead_letter: DeadLetterPolicy | None,
    ) -> GroupConsumer:
        """Join a group: see Client.consumer_group."""
        for topic in settings.topics:
            await self._cluster.route(topic)
        one_topic = len(settings.topics) == 1 and not settings.pattern
        if dead_letter is not None and not dead_letter.topic and not one_topic:
            raise InvalidArgument("name a topic for the dead letters of several topics")
        work = MemberWork(
            self._runtime,
            self._cluster,
            settings,
            config,
            self._prefetch,
            callbacks,
            self._forget,
            await self._dead_letters(
                dead_letter, settings.topics[0] if one_topic else "", settings.group
            ),
        )
        await self._start(work)
        return GroupConsumer(work)

    def find(self, consumer_id: int) -> ConsumerWork | None:
        """Return the work of the open consumer of an id; None: there is none."""
        return self._open.get(consumer_id)

    def fail(self, error: MagnetarError) -> None:
        """Fail all consumers, since the client has failed."""
        works = list(self._open.values())
        self._runtime.fail_each([work.fail for work in works], error)

    async def close_all(self) -> None:
        """Close every consumer that is open."""
        for work in list(self._open.values()):
            await work.close()

    async def _start(self, work: SubscriptionWork | MemberWork) -> None:
        self._open[work.consumer_id] = work
        try:
            await work.started()
        except BaseException:
            await work.close()
            raise

    async def _dead_letters(
        self, policy: DeadLetterPolicy | None, topic: str, subscription: str
    ) -> DeadLetters | None:
        if policy is None:
            return None
        target = policy.topic_for(topic, subscription)
        await self._cluster.ensure_topic(target)
        begin = self._transactions.begin
        work = ProducerWork(
            self._runtime,
            await self._cluster.route(target),
            ProducerConfig(),
            self._budget,
            begin=begin,
            on_close=lambda _: None,
        )
        return DeadLetters(self._runtime, policy, subscription, Producer(work), begin)

    def _forget(self, work: ConsumerWork) -> None:
        self._open.pop(work.consumer_id, None)
