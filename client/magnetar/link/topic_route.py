"""The way to the partitions of a topic: each has a broker, and follows it when it moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from magnetar.link.connection import Connection
from magnetar.link.members import Lookup
from magnetar.link.runtime import Runtime
from magnetar.link.shard_connection import ShardConnection
from magnetar.link.topic_watch import TopicWatch
from magnetar_core.errors import Gone, LogUnavailable, MagnetarError, TopicNotFound
from magnetar_core.ids import PartitionName, SubscriptionName


class Brokers(Protocol):
    """The brokers of a cluster, as a route needs them."""

    runtime: Runtime
    topic_watch: TopicWatch

    def broker_at(self, address: str) -> Connection:
        """Return the connection to the broker at an address."""
        ...

    def shard_at(self, address: str) -> ShardConnection | None:
        """Return the connection that follows a shard, if the address names one."""
        ...

    async def look_up(self, topic: str) -> Lookup:
        """Ask for a topic's id, and for the addresses of its partitions' brokers."""
        ...

    def has_others_than(self, address: str) -> bool:
        """Return whether another broker may know more about the broker at an address."""
        ...

    def refresh_members_soon(self) -> None:
        """Ask for the members again in the background."""
        ...


class TopicRoute:
    """A topic, and the brokers that have its partitions. It may get more of them."""

    def __init__(
        self, brokers: Brokers, topic: str, topic_id: int, addresses: tuple[str, ...]
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self._brokers = brokers
        self._addresses = addresses
        self._connections: dict[int, ShardConnection] = {}
        self._refreshing: asyncio.Task[None] | None = None
        # Called when the topic has more partitions.
        self._on_grown: dict[object, Callable[[], None]] = {}

    @property
    def partition_count(self) -> int:
        """The number of the topic's partitions, as far as is known here."""
        return len(self._addresses)

    @property
    def runtime(self) -> Runtime:
        """The world of the client."""
        return self._brokers.runtime

    def partition_name(self, partition: int) -> PartitionName:
        """Return the name of a partition."""
        return PartitionName(self.topic, partition, self.topic_id)

    def subscription_name(self, partition: int, subscription: str) -> SubscriptionName:
        """Return the name of a subscription's partition."""
        return SubscriptionName(self.topic, partition, self.topic_id, subscription)

    def require(self, partition: int) -> None:
        """Check that the topic has a partition.

        Raises:
            TopicNotFound: it has none of this number.
        """
        if not 0 <= partition < self.partition_count:
            raise TopicNotFound(f"{self.topic} has no partition {partition}")

    def connection(self, partition: int) -> ShardConnection:
        """Return the connection to the broker of a partition, which follows it when it moves.

        A partition stays in its shard. So where shards change their owner, one connection follows
        a shard for all of its partitions; elsewhere the topic is looked up again.

        Raises:
            TopicNotFound: the topic has no such partition.
        """
        found = self._connections.get(partition)
        if found is None:
            self.require(partition)
            address = self._addresses[partition]
            found = self._brokers.shard_at(address) or ShardConnection(
                self._brokers.runtime,
                self._brokers.broker_at(address),
                look_up=self.refresh_soon,
                on_unreachable=lambda: self._on_unreachable(partition),
            )
            self._connections[partition] = found
        return found

    def by_address(self, partitions: Iterable[int]) -> dict[str, list[int]]:
        """Return partitions by the address of their broker."""
        found: dict[str, list[int]] = {}
        for partition in partitions:
            found.setdefault(self._addresses[partition], []).append(partition)
        return found

    def refresh_soon(self) -> None:
        """Look the topic up again in the background, since a partition has moved."""
        if self._refreshing is None:
            runtime = self._brokers.runtime
            self._refreshing = runtime.spawn(self._refresh, f"look up {self.topic}", runtime.fail)

    def _on_unreachable(self, partition: int) -> None:
        # Without another broker, its own broker would be asked.
        if self._brokers.has_others_than(self._addresses[partition]):
            self._brokers.refresh_members_soon()
            self.refresh_soon()

    async def _refresh(self) -> None:
        try:
            self.learn(await self._brokers.look_up(self.topic))
        except MagnetarError:
            pass  # A call that needs the partition is refused again, and comes back here.
        finally:
            self._refreshing = None

    def learn(self, found: Lookup) -> None:
        """Take a broker's answer, unless it knows fewer partitions, or another topic."""
        topic_id, addresses = found
        before = self.partition_count
        if topic_id != self.topic_id or len(addresses) < before:
            return
        self._addresses = addresses
        for partition, connection in self._connections.items():
            if self._brokers.shard_at(addresses[partition]) is not connection:
                connection.move(self._brokers.broker_at(addresses[partition]))
        if len(addresses) > before:
            for callback in list(self._on_grown.values()):
                callback()

    def when_grown(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever the topic has more partitions, until the returned function is called.

        Until then the topic is looked up again from time to time.
        """
        key = object()
        self._on_grown[key] = callback
        self._brokers.topic_watch.add(self)

        def stop() -> None:
            self._on_grown.pop(key, None)
            if not self._on_grown:
                self._brokers.topic_watch.remove(self)

        return stop

    async def reach(self, partition_count: int) -> None:
        """Wait until the topic has so many partitions here: a broker has told of them.

        Raises:
            LogUnavailable: no other broker tells of them in time.
            Gone: the topic of this name has another id.
        """
        runtime = self.runtime
        deadline_ms = runtime.now_ms() + runtime.config.operation_timeout_ms
        backoff = runtime.backoff()
        while self.partition_count < partition_count:
            found = await self._brokers.look_up(self.topic)
            if found.topic_id != self.topic_id:
                raise Gone(
                    f"topic {self.topic!r} with id {self.topic_id} was deleted; it has id"
                    f" {found.topic_id}"
                )
            self.learn(found)
            if self.partition_count >= partition_count:
                return
            delay_ms = backoff.next_ms()
            if runtime.now_ms() + delay_ms >= deadline_ms:
                raise LogUnavailable(
                    f"a broker knows {partition_count} partitions of {self.topic!r}, and another"
                    f" one {self.partition_count}: ask again"
                )
            await asyncio.sleep(delay_ms / 1000)
