"""The half of a client that consumes: subscriptions, and memberships in groups."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.admin.administration import Administration
from magnetar.config import ConsumerConfig, ProducerConfig
from magnetar.enums import InitialPosition, SubscriptionType
from magnetar.groups.group_consumer import GroupConsumer
from magnetar.groups.settings import Callbacks, GroupSettings, OnPartitions
from magnetar.link.cluster import Cluster
from magnetar.link.runtime import Runtime
from magnetar.messaging.backpressure import PendingBudget
from magnetar.messaging.consumer import Consumer
from magnetar.messaging.dead_letters import DeadLetterPolicy, DeadLetters
from magnetar.messaging.producer import Producer
from magnetar.transactions.transaction import Transaction
from magnetar_core.errors import InvalidArgument, TopicExists


class Consuming(Administration):
    """Makes consumers, and knows those that are not closed."""

    def __init__(self, runtime: Runtime, cluster: Cluster, budget: PendingBudget) -> None:
        super().__init__(cluster)
        self._runtime = runtime
        self._budget = budget
        self._consumers: dict[int, Consumer | GroupConsumer] = {}

    def _require_open(self) -> None:
        """Raises: ClientClosed."""
        raise NotImplementedError

    async def begin_transaction(
        self, timeout_s: float = 60.0, *, lazy: bool = False
    ) -> Transaction:
        """Open a transaction at any live coordinator."""
        raise NotImplementedError

    async def subscribe(
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
        """Attach a consumer, creating the subscription when it is absent.

        Args:
            type: "exclusive", "shared", "failover", or "key_shared": shared, with the order of each
                key kept. Messages without a key then count as those of one key.
            initial_position: where a new subscription begins, "earliest" or "latest".
            partitions: only these; all of the topic otherwise.
            consumer_name: FAILOVER puts consumers in the order of their names. Random unless given.
            dead_letter: messages that come back too often move to another topic, exactly once.
        Raises:
            TopicNotFound: there is no such topic.
            ConsumerBusy: the exclusive subscription has a consumer, still after the operation
                timeout.
            SubscriptionExists: of another type.
        """
        self._require_open()
        given = {
            "receiver_queue_messages": receiver_queue_messages,
            "receiver_queue_bytes": receiver_queue_bytes,
            "message_bytes_max": message_bytes_max,
            "ack_linger_ms": ack_linger_ms,
            "nack_delay_ms": nack_delay_ms,
            "nack_delay_ms_max": nack_delay_ms_max,
        }
        config = ConsumerConfig(
            **{name: value for name, value in given.items() if value is not None}  # type: ignore[arg-type]
        )
        if isinstance(type, str):
            try:
                type = SubscriptionType[type.upper()]
            except KeyError:
                raise InvalidArgument(f"{type!r} is not a type of subscription") from None
        route = await self._cluster.route(topic)
        wanted = tuple(range(route.partition_count) if partitions is None else partitions)
        if not wanted or not all(0 <= one < route.partition_count for one in wanted):
            raise InvalidArgument(f"{topic} has no partitions {list(wanted)}")
        consumer = Consumer(
            self._runtime,
            route,
            subscription,
            wanted,
            type,
            InitialPosition.of(initial_position),
            consumer_name,
            config,
            self._forget_consumer,
            await self._dead_letters(dead_letter, topic, subscription),
        )
        self._consumers[consumer.consumer_id] = consumer
        try:
            await consumer.started()
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def consumer_group(
        self,
        group: str,
        topics: str | Sequence[str] | None = None,
        pattern: str | None = None,
        *,
        instance_id: str = "",
        session_timeout_s: float | None = None,
        rebalance_timeout_s: float | None = None,
        max_poll_interval_s: float = 300.0,
        initial_position: InitialPosition | str = InitialPosition.LATEST,
        allow_two_phase_commit: bool = False,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        receiver_queue_messages: int | None = None,
        receiver_queue_bytes: int | None = None,
        message_bytes_max: int | None = None,
        ack_linger_ms: float | None = None,
        nack_delay_ms: float | None = None,
        nack_delay_ms_max: float | None = None,
        dead_letter: DeadLetterPolicy | None = None,
    ) -> GroupConsumer:
        """Join a group, whose members share the partitions of topics; made when it is absent.

        Args:
            topics: one or several that exist.
            pattern: with a shell's wildcards, as `orders-*`; topics that are made later count too.
            instance_id: makes the member static: a restart within the session timeout moves no
                partition, and whoever joins under the same id takes its place (KIP-345).
            session_timeout_s: without a sign of life for so long, others take over. None: the
                broker's default, as for the next one.
            rebalance_timeout_s: how long the application may keep a partition that is asked back.
            max_poll_interval_s: seconds between calls of receive; an application that takes longer
                leaves the group, and joins again with its next receive.
            initial_position: where partitions begin that the group has not read.
            allow_two_phase_commit: acks may be part of transactions that never expire, and hold a
                partition for as long as they like. All members say the same.
            on_assigned, on_revoked, on_lost: functions or coroutine functions that are given a list
                of TopicPartition: before anything of them is received; before they are given back;
                after they were given to others. What they raise, the next receive raises.
            dead_letter: as of subscribe; with several topics it has to name its own.
        Raises:
            TopicNotFound: one of the topics does not exist.
            InvalidArgument: no topics and no pattern, or a setting makes no sense.
            LogUnavailable: nobody answers in time.
        Source: KIP-447; KIP-848; docs/design/0003-groups.md.
        """
        self._require_open()
        given = {
            "receiver_queue_messages": receiver_queue_messages,
            "receiver_queue_bytes": receiver_queue_bytes,
            "message_bytes_max": message_bytes_max,
            "ack_linger_ms": ack_linger_ms,
            "nack_delay_ms": nack_delay_ms,
            "nack_delay_ms_max": nack_delay_ms_max,
        }
        config = ConsumerConfig(
            **{name: value for name, value in given.items() if value is not None}  # type: ignore[arg-type]
        )
        settings = GroupSettings(
            group=group,
            topics=(topics,) if isinstance(topics, str) else tuple(topics or ()),
            pattern=pattern or "",
            instance_id=instance_id,
            session_timeout_s=session_timeout_s,
            rebalance_timeout_s=rebalance_timeout_s,
            max_poll_interval_s=max_poll_interval_s,
            initial_position=InitialPosition.of(initial_position),
            allow_two_phase_commit=allow_two_phase_commit,
        )
        for topic in settings.topics:
            await self._cluster.route(topic)
        one_topic = len(settings.topics) == 1 and not settings.pattern
        if dead_letter is not None and not dead_letter.topic and not one_topic:
            raise InvalidArgument("name a topic for the dead letters of several topics")
        consumer = GroupConsumer(
            self._runtime,
            self._cluster,
            settings,
            config,
            Callbacks(on_assigned, on_revoked, on_lost),
            self._forget_consumer,
            await self._dead_letters(dead_letter, settings.topics[0] if one_topic else "", group),
        )
        self._consumers[consumer.consumer_id] = consumer
        try:
            await consumer.started()
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def _dead_letters(
        self, policy: DeadLetterPolicy | None, topic: str, subscription: str
    ) -> DeadLetters | None:
        if policy is None:
            return None
        target = policy.topic_for(topic, subscription)
        try:
            await self.create_topic(target)
        except TopicExists:
            pass
        route = await self._cluster.route(target)
        producer = Producer(
            self._runtime,
            route,
            ProducerConfig(),
            self._budget,
            begin=self.begin_transaction,
            on_close=lambda _: None,
        )
        return DeadLetters(self._runtime, policy, subscription, producer, self.begin_transaction)

    def _forget_consumer(self, consumer: Consumer | GroupConsumer) -> None:
        self._consumers.pop(consumer.consumer_id, None)
