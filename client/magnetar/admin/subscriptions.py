"""Administration of subscriptions: create and delete subscriptions, move their cursors."""

from __future__ import annotations

from magnetar.admin.forced_aborts import ForcedAborts
from magnetar.arguments import checked, enum_member
from magnetar.enums import InitialPosition, InitialPositionName, SubscriptionType
from magnetar.link.cluster import Cluster
from magnetar.messaging.consuming.seeking import seek_command
from magnetar_core.wire import broker_pb2


class SubscriptionAdmin:
    """Administers subscriptions: `client.admin.subscriptions`."""

    def __init__(self, cluster: Cluster, forced: ForcedAborts) -> None:
        self._cluster = cluster
        self._forced = forced

    @checked
    async def create(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionType = SubscriptionType.EXCLUSIVE,
        initial_position: InitialPosition | InitialPositionName = InitialPosition.LATEST,
    ) -> None:
        """Create a subscription on all partitions of a topic, without a consumer.

        The call changes nothing when the subscription exists with the same type.

        Args:
            topic: the topic's name.
            subscription: the subscription's name.
            type: how the consumers of the subscription share a partition.
            initial_position: where the subscription begins, "earliest" or "latest".
        Raises:
            TopicNotFound: no topic has this name.
            SubscriptionExists: the subscription exists with another type.
        """
        beginning = enum_member("initial_position", InitialPosition, initial_position)
        route = await self._cluster.route(topic)
        for partition in range(route.partition_count):
            await route.connection(partition).request(
                broker_pb2.CommandSubscribe(
                    subscription=route.subscription_name(partition, subscription).to_wire(),
                    type=int(type),  # type: ignore[arg-type]
                    initial_position=int(beginning),  # type: ignore[arg-type]
                )
            )

    @checked
    async def delete(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription on all partitions of a topic.

        Args:
            topic: the topic's name.
            subscription: the subscription's name.
            force: first abort the transactions with pending acks on the subscription.
        Raises:
            SubscriptionNotFound: no subscription has this name.
            ResourceInUse: a partition has pending acks of the subscription. Other partitions may
                have deleted it already; repeat the call.
            InvalidTxnState: with force: one of these transactions may be prepared for two-phase
                commit. Other partitions may have deleted it already.
        """
        route = await self._cluster.route(topic)
        for partition in range(route.partition_count):
            command = broker_pb2.CommandUnsubscribe(
                subscription=route.subscription_name(partition, subscription).to_wire()
            )
            connection = route.connection(partition)
            await self._forced.unless_in_use(
                lambda connection=connection, command=command: connection.request(command),  # type: ignore[misc]
                topic,
                subscription,
                force=force,
                partitions=(partition,),
            )

    @checked
    async def seek(
        self,
        topic: str,
        subscription: str,
        *,
        offset: int | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | InitialPositionName | None = None,
        partition: int | None = None,
        force: bool = False,
    ) -> dict[int, int]:
        """Move the cursors of a subscription.

        Name exactly one of offset, append_time_ms and position.

        Args:
            topic: the topic's name.
            subscription: the subscription's name.
            offset: the offset of the next message that the subscription gets.
            append_time_ms: move to the first message that was stored at this time or later, in
                milliseconds since the Unix epoch.
            position: "earliest" or "latest".
            partition: move the cursor of this partition only; None: of all partitions.
            force: first abort the transactions with pending acks on the subscription.
        Returns:
            The new offset of each partition.
        Raises:
            SubscriptionNotFound: no subscription has this name.
            ResourceInUse: a partition has pending acks; its cursor has not moved.
            InvalidTxnState: with force: one of these transactions may be prepared for two-phase
                commit; the cursor of its partition has not moved.
        """
        route = await self._cluster.route(topic)
        if partition is not None:
            route.require(partition)
        moved: dict[int, int] = {}
        for one in range(route.partition_count) if partition is None else (partition,):
            command = seek_command(
                route.subscription_name(one, subscription), offset, None, append_time_ms, position
            )
            connection = route.connection(one)
            reply = await self._forced.unless_in_use(
                lambda connection=connection, command=command: connection.request(command),  # type: ignore[misc]
                topic,
                subscription,
                force=force,
                partitions=(one,),
            )
            moved[one] = reply.offset
        return moved
