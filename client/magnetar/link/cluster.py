"""Finds servers: connections by address, the coordinators, the brokers of partitions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import google_crc32c

from magnetar.link.connection import Connection
from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession
from magnetar_core.errors import (
    InvalidArgument,
    LogUnavailable,
    MagnetarError,
    TopicExists,
    TxnNotFound,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import topic_pb2

BROKER = "Broker"
COORDINATOR = "TransactionCoordinator"


@dataclass(frozen=True, slots=True)
class Member:
    """A server of the cluster.

    Attributes:
        tcid: the number of a coordinator; None for a broker.
    """

    name: str
    address: str
    tcid: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The members of a cluster.

    Attributes:
        cluster_id: identifies the cluster; empty if the servers have no id.
        membership_version: raised when the members change.
    """

    cluster_id: str
    membership_version: int
    cluster_hash: str
    brokers: tuple[Member, ...]
    coordinators: tuple[Member, ...]
    server_version: str


class Cluster:
    """The servers that a client knows, found through the broker that it was given."""

    def __init__(self, address: str, runtime: Runtime) -> None:
        self.runtime = runtime
        self._connections: dict[tuple[str, str], Connection] = {}
        self.bootstrap = self.connection(address, BROKER)
        self._coordinators: tuple[Member, ...] = ()

    def connection(self, address: str, service: str) -> Connection:
        """Return the connection to a service at an address."""
        found = self._connections.get((address, service))
        if found is None:
            found = Connection(address, service, self.runtime)
            self._connections[address, service] = found
        return found

    async def info(self) -> ClusterInfo:
        """Ask for the members of the cluster, and remember the coordinators."""
        reply = await self.bootstrap.request(
            topic_pb2.CommandGetClusterInfo(reached_at=self.bootstrap.address)
        )
        self._coordinators = tuple(
            Member(one.name, one.address, one.tcid) for one in reply.coordinators
        )
        return ClusterInfo(
            reply.cluster_id,
            reply.membership_version,
            reply.cluster_hash,
            tuple(Member(one.name, one.address) for one in reply.brokers),
            self._coordinators,
            reply.server_version,
        )

    async def coordinators(self, tcid: int | None = None) -> tuple[Connection, ...]:
        """Return connections to all coordinators, or to the coordinator with this TCID.

        Raises:
            LogUnavailable: the cluster has no coordinator.
        """
        return tuple((await self.coordinators_by_tcid(tcid)).values())

    async def coordinators_by_tcid(self, tcid: int | None = None) -> dict[int, Connection]:
        """Return the same as coordinators(), by TCID."""
        if not self._coordinators:
            await self.info()
        if not self._coordinators:
            raise LogUnavailable("the cluster names no transaction coordinator")
        chosen = [one for one in self._coordinators if tcid is None or one.tcid == tcid]
        if not chosen:
            raise InvalidArgument(f"no coordinator of this cluster has the id {tcid}")
        return {one.tcid or 0: self.connection(one.address, COORDINATOR) for one in chosen}

    async def coordinator_for(self, name: str) -> Connection:
        """Return the connection to the coordinator of a transactional id or a named sequence.

        Every client finds the same coordinator, as long as the members are the same: rendezvous
            hashing.
        """
        await self.coordinators()
        chosen = max(
            self._coordinators, key=lambda one: google_crc32c.value(f"{one.tcid}/{name}".encode())
        )
        return self.connection(chosen.address, COORDINATOR)

    async def coordinator_of(self, txn_id: TxnID) -> Connection:
        """Return the connection to the coordinator that issued a TxnID.

        Raises:
            TxnNotFound: no coordinator has this TCID.
        """
        for attempt in range(2):
            for one in self._coordinators:
                if one.tcid == txn_id.tcid:
                    return self.connection(one.address, COORDINATOR)
            if attempt == 0:
                await self.info()
        raise TxnNotFound(f"no coordinator of this cluster has the id {txn_id.tcid}")

    async def route(self, topic: str) -> TopicRoute:
        """Look up a topic.

        Raises:
            TopicNotFound: there is no such topic.
        """
        reply = await self._lookup(topic)
        return TopicRoute(self, topic, reply.topic_id, tuple(reply.broker_addresses))

    async def ensure_topic(self, topic: str) -> None:
        """Create a topic with a single partition, unless it exists."""
        try:
            await self.bootstrap.request(
                topic_pb2.CommandCreateTopic(
                    topic=topic, partitions=1, retain_unconsumed=topic_pb2.YES
                )
            )
        except TopicExists:
            pass

    async def _lookup(self, topic: str) -> topic_pb2.CommandLookupResponse:
        return await self.bootstrap.request(
            topic_pb2.CommandLookup(topic=topic, reached_at=self.bootstrap.address)
        )

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()


class TopicRoute:
    """A topic, and the brokers that have its partitions."""

    def __init__(
        self, cluster: Cluster, topic: str, topic_id: int, addresses: tuple[str, ...]
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition_count = len(addresses)
        self._cluster = cluster
        self._addresses = addresses
        self._refreshing: asyncio.Task[None] | None = None

    def partition_name(self, partition: int) -> PartitionName:
        """Return the name of a partition."""
        return PartitionName(self.topic, partition, self.topic_id)

    def subscription_name(self, partition: int, subscription: str) -> SubscriptionName:
        """Return the name of a subscription's partition."""
        return SubscriptionName(self.topic, partition, self.topic_id, subscription)

    def connection(self, partition: int) -> Connection:
        """Return the connection to the broker of a partition."""
        address = self._addresses[partition]
        return self._cluster.connection(address, BROKER) if address else self._cluster.bootstrap

    async def session(self, partition: int) -> LinkSession:
        """Return a live link to the broker of a partition."""
        return await self.connection(partition).session()

    def refresh_soon(self) -> None:
        """Look the topic up again in the background, since a partition has moved."""
        if self._refreshing is None:
            runtime = self._cluster.runtime
            self._refreshing = runtime.spawn(self._refresh(), f"look up {self.topic}")

    async def _refresh(self) -> None:
        try:
            reply = await self._cluster._lookup(self.topic)
            addresses = tuple(reply.broker_addresses)
            if reply.topic_id == self.topic_id and len(addresses) == self.partition_count:
                self._addresses = addresses
        except MagnetarError:
            pass  # Whoever needs the partition is refused again, and comes back here.
        finally:
            self._refreshing = None
