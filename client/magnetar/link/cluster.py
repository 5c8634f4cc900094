"""Finds servers: connections by address, the coordinators, the brokers of partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c

from magnetar.link.any_broker import AnyBroker
from magnetar.link.connection import Connection
from magnetar.link.partition_connection import PartitionConnection
from magnetar.link.runtime import Runtime
from magnetar_core.errors import (
    InvalidArgument,
    LogUnavailable,
    MagnetarError,
    TopicExists,
    TopicNotFound,
    TxnNotFound,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import topic_pb2

log = logging.getLogger("magnetar")

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


class Lookup(NamedTuple):
    """The brokers of a topic's partitions.

    Attributes:
        addresses: the address of each partition's broker.
    """

    topic_id: int
    addresses: tuple[str, ...]


class Cluster:
    """The servers that a client knows, found through the brokers that it was given."""

    def __init__(self, addresses: Sequence[str], runtime: Runtime) -> None:
        self.runtime = runtime
        self._connections: dict[tuple[str, str], Connection] = {}
        self.any_broker = AnyBroker(runtime, self._broker_at, addresses, self.refresh_members_soon)
        self._brokers: tuple[Member, ...] = ()
        self._coordinators: tuple[Member, ...] = ()
        self._membership_version = 0
        # How many questions for the members are under way.
        self._asking_count = 0

    def connection(self, address: str, service: str) -> Connection:
        """Return the connection to a service at an address."""
        found = self._connections.get((address, service))
        if found is None:
            found = Connection(address, service, self.runtime)
            self._connections[address, service] = found
        return found

    @property
    def brokers(self) -> tuple[Member, ...]:
        """All brokers that are known, in order; the latest answer to info() names them."""
        return self._brokers

    async def info(self) -> ClusterInfo:
        """Ask for the members of the cluster, and remember them."""
        self._asking_count += 1
        try:
            reply, answerer = await self.any_broker.ask(topic_pb2.CommandGetClusterInfo())
        finally:
            self._asking_count -= 1
        info = ClusterInfo(
            reply.cluster_id,
            reply.membership_version,
            reply.cluster_hash,
            # A broker that has no address of its own is where it was reached.
            tuple(Member(one.name, one.address or answerer.address) for one in reply.brokers),
            tuple(Member(one.name, one.address, one.tcid) for one in reply.coordinators),
            reply.server_version,
        )
        # A broker that was asked long ago, and answers late, may tell of earlier members.
        if info.membership_version >= self._membership_version:
            self._membership_version = info.membership_version
            self._brokers, self._coordinators = info.brokers, info.coordinators
            self.any_broker.learn(one.address for one in info.brokers)
        return info

    def has_others_than(self, address: str) -> bool:
        """Return whether another broker may know more about the broker at an address."""
        return any(one != address for one in self.any_broker.addresses)

    def broker_title(self, address: str) -> str:
        """Return the name of a broker, for messages, with its address."""
        for one in self._brokers:
            if one.address == address:
                return f"broker {one.name} at {address}"
        return f"the broker at {address}"

    def _broker_at(self, address: str) -> Connection:
        return self.connection(address, BROKER)

    def refresh_members_soon(self) -> None:
        """Ask for the members again in the background, since a broker does not answer."""
        if self._asking_count == 0:
            self.runtime.spawn(self._refresh_members(), "ask for the members")

    async def _refresh_members(self) -> None:
        if self._asking_count > 0:
            return
        try:
            await self.info()
        except MagnetarError as error:
            log.info("the members of the cluster are not known anew: %s", error)

    async def _require_members(self) -> None:
        """Ask for the members if they are not known, or a server has told of a later list."""
        told_version = self.runtime.cluster.membership_version
        if not self._coordinators or told_version > self._membership_version:
            await self.info()

    async def coordinators(self, tcid: int | None = None) -> tuple[Connection, ...]:
        """Return connections to all coordinators, or to the coordinator with this TCID.

        Raises:
            LogUnavailable: the cluster has no coordinator.
        """
        return tuple((await self.coordinators_by_tcid(tcid)).values())

    async def coordinators_by_tcid(self, tcid: int | None = None) -> dict[int, Connection]:
        """Return the same as coordinators(), by TCID."""
        await self._require_members()
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
        await self._require_members()
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
        topic_id, addresses = await self.look_up(topic)
        return TopicRoute(self, topic, topic_id, addresses)

    async def look_up(self, topic: str) -> Lookup:
        """Ask for a topic's id, and for the addresses of its partitions' brokers.

        Raises:
            TopicNotFound: there is no such topic.
        """
        reply, answerer = await self.any_broker.ask(topic_pb2.CommandLookup(topic=topic))
        # A broker that has no address of its own is where it was reached.
        return Lookup(
            reply.topic_id, tuple(one or answerer.address for one in reply.broker_addresses)
        )

    async def ensure_topic(self, topic: str) -> None:
        """Create a topic with a single partition, unless it exists."""
        try:
            await self.any_broker.request(
                topic_pb2.CommandCreateTopic(
                    topic=topic, partitions=1, retain_unconsumed=topic_pb2.YES
                )
            )
        except TopicExists:
            pass

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
        self._connections: dict[int, PartitionConnection] = {}
        self._refreshing: asyncio.Task[None] | None = None

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

    def connection(self, partition: int) -> PartitionConnection:
        """Return the connection to the broker of a partition, which follows it when it moves.

        Raises:
            TopicNotFound: the topic has no such partition.
        """
        found = self._connections.get(partition)
        if found is None:
            self.require(partition)
            found = self._connections[partition] = PartitionConnection(
                self._cluster.runtime,
                self._cluster.connection(self._addresses[partition], BROKER),
                look_up=self.refresh_soon,
                on_unreachable=lambda: self._on_unreachable(partition),
            )
        return found

    def by_address(self, partitions: Iterable[int]) -> dict[str, list[int]]:
        """Return partitions by the address of their broker."""
        found: dict[str, list[int]] = {}
        for one in partitions:
            found.setdefault(self._addresses[one], []).append(one)
        return found

    def refresh_soon(self) -> None:
        """Look the topic up again in the background, since a partition has moved."""
        if self._refreshing is None:
            runtime = self._cluster.runtime
            self._refreshing = runtime.spawn(self._refresh(), f"look up {self.topic}")

    def _on_unreachable(self, partition: int) -> None:
        # Where there is nobody else to ask, its own broker would be asked.
        if self._cluster.has_others_than(self._addresses[partition]):
            self._cluster.refresh_members_soon()
            self.refresh_soon()

    async def _refresh(self) -> None:
        try:
            topic_id, addresses = await self._cluster.look_up(self.topic)
            if topic_id == self.topic_id and len(addresses) == self.partition_count:
                self._addresses = addresses
                for partition, connection in self._connections.items():
                    connection.move(self._cluster.connection(addresses[partition], BROKER))
        except MagnetarError:
            pass  # Whoever needs the partition is refused again, and comes back here.
        finally:
            self._refreshing = None
