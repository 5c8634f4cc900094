"""What an administrator does with subscriptions: create, delete and move them."""

from __future__ import annotations

from magnetar.admin.forced_aborts import ForcedAborts
from magnetar.enums import InitialPosition, SubscriptionType
from magnetar.link.cluster import Cluster
from magnetar.messaging.seeking import seek_command
from magnetar_core.wire import broker_pb2


class SubscriptionAdmin:
    """Administers subscriptions: `client.admin.subscriptions`."""

    def __init__(self, cluster: Cluster, forced: ForcedAborts) -> None:
        self._cluster = cluster
        self._forced = forced

    async def create(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionType = SubscriptionType.EXCLUSIVE,
        initial_position: InitialPosition | str = InitialPosition.LATEST,
    ) -> None:
        """Create a subscription on all partitions, without a consumer. Harmless if it exists.

        Args:
            type: which consumers it takes.
            initial_position: where it begins, "earliest" or "latest".
        Raises:
            TopicNotFound: there is no such topic.
            SubscriptionExists: of another type.
        """
        route = await self._cluster.route(topic)
        for partition in range(route.partition_count):
            await route.connection(partition).request(
                broker_pb2.CommandSubscribe(
                    subscription=route.subscription_name(partition, subscription).to_wire(),
                    type=int(type),  # type: ignore[arg-type]
                    initial_position=int(InitialPosition.of(initial_position)),  # type: ignore[arg-type]
                )
            )

    async def delete(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription on all partitions.

        Args:
            force: abort the transactions that are in the way.
        Raises:
            SubscriptionNotFound: there is none of this name.
            ResourceInUse: acks pend there. It may be deleted on some partitions; repeat it.
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
            )

    async def seek(
        self,
        topic: str,
        subscription: str,
        *,
        offset: int | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | str | None = None,
        partition: int | None = None,
        force: bool = False,
    ) -> dict[int, int]:
        """Move a subscription's cursor. Name exactly one target.

        Args:
            append_time_ms: milliseconds since the Unix epoch; the first message not older.
            position: "earliest" or "latest".
            partition: only there; all otherwise.
            force: abort the transactions whose pending acks are in the way.
        Returns:
            The new offset of each partition.
        Raises:
            SubscriptionNotFound: there is none of this name.
            ResourceInUse: acks pend there. No effect on that partition.
        """
        route = await self._cluster.route(topic)
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
            )
            moved[one] = reply.offset
        return moved
