"""Finds servers: connections by address, the coordinators, the brokers of partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from magnetar.link.addresses import shard_of, title_of
from magnetar.link.any_broker import AnyBroker
from magnetar.link.connection import Connection
from magnetar.link.connection_base import ConnectionBase
from magnetar.link.members import BROKER, COORDINATOR, ClusterInfo, Lookup, Member
from magnetar.link.runtime import Runtime, awaited
from magnetar.link.servers import Servers
from magnetar.link.shard_connection import ShardConnection
from magnetar.link.topic_route import TopicRoute
from magnetar.link.topic_watch import TopicWatch
from magnetar_core.errors import (
    InvalidArgument,
    LogUnavailable,
    MagnetarError,
    TopicExists,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.membership.placement import tcid_of
from magnetar_core.membership.shard_address import server_of
from magnetar_core.transport.transport import LinkRefused
from magnetar_core.wire import topic_pb2

log = logging.getLogger("magnetar")

# How long a server may take to name the members before another one is asked too, when the client
# asks by itself: to ask two is harmless, and a call may wait for a shard.
MEMBERS_PATIENCE_MS_MAX = 60.0


class Cluster:
    """The servers that a client knows, found through the brokers that it was given."""

    def __init__(self, addresses: Sequence[str], runtime: Runtime) -> None:
        self.runtime = runtime
        self._servers = Servers(
            runtime, ask_members=self._look_for_owners, on_unreachable=self.refresh_members_soon
        )
        self.any_broker = AnyBroker(
            runtime, map(self.broker_at, addresses), self.refresh_members_soon
        )
        self.topic_watch = TopicWatch(runtime, self.look_up)
        self._brokers: tuple[Member, ...] = ()
        self._coordinators: tuple[Member, ...] = ()
        # How many questions for the members are under way.
        self._asking_count = 0

    def broker_at(self, address: str) -> Connection:
        """Return the connection to the broker at an address."""
        return self._servers.connection(address, BROKER)

    def shard_at(self, address: str) -> ShardConnection | None:
        """Return the connection that follows a broker's shard, if the address names one."""
        return None if shard_of(address) is None else self._servers.follow(BROKER, "", address)

    def server_at(self, address: str) -> ConnectionBase:
        """Return the connection to a broker's shard, or else to the broker at an address."""
        return self.shard_at(address) or self.broker_at(address)

    def broker(self, member: Member) -> ShardConnection:
        """Return the connection to a broker, which follows it to other addresses."""
        return self._servers.follow(BROKER, member.name, member.address)

    def _coordinator(self, member: Member) -> ShardConnection:
        return self._servers.follow(COORDINATOR, member.tcid or 0, member.address)

    @property
    def brokers(self) -> tuple[Member, ...]:
        """All brokers that are known, in order; the latest answer to info() names them."""
        return self._brokers

    async def info(self) -> ClusterInfo:
        """Ask for the members of the cluster, and remember them."""
        return await self._ask_members(self.runtime.config.broker_patience_ms, 0)

    async def bootstrap(self) -> None:
        """Reach a first server, and ask it for the members.

        Raises:
            LogUnavailable: no server could be reached in time, or none answered.
            MagnetarError: the servers refuse this client.
        """
        runtime = self.runtime
        asking = runtime.spawn(self.info, "bootstrap", awaited)
        timeout_ms = runtime.config.bootstrap_timeout_ms
        try:
            await asyncio.wait((asking,), timeout=timeout_ms / 1000)
            if not asking.done() and not runtime.has_reached_a_server:
                raise self._unreachable(timeout_ms)
            await runtime.result_of(asking)
        finally:
            asking.cancel()

    def _unreachable(self, timeout_ms: float) -> MagnetarError:
        failures = [one.failure for one in self.any_broker.everybody if one.failure is not None]
        kinds = {
            failure.kind if isinstance(failure, LinkRefused) else LogUnavailable
            for failure in failures
        }
        kind = kinds.pop() if len(kinds) == 1 else LogUnavailable
        causes = "; ".join(map(str, failures)) or "no attempt to connect has ended"
        error = kind(f"no server could be reached within {timeout_ms:.0f} ms: {causes}")
        error.__cause__ = failures[0] if failures else None
        return error

    async def _look_for_owners(self, turn: int) -> None:
        patience_ms = min(MEMBERS_PATIENCE_MS_MAX, self.runtime.config.broker_patience_ms)
        await self._ask_members(patience_ms, turn)

    async def _ask_members(self, patience_ms: float, turn: int) -> ClusterInfo:
        self._asking_count += 1
        try:
            reply, answerer = await self.any_broker.ask(
                topic_pb2.CommandGetClusterInfo(), patience_ms=patience_ms, turn=turn
            )
        finally:
            self._asking_count -= 1
        info = ClusterInfo(
            reply.cluster_id,
            reply.membership_version,
            reply.cluster_hash,
            # A broker that has no address of its own is where it was reached.
            tuple(
                Member(broker.name, broker.address or answerer.address) for broker in reply.brokers
            ),
            tuple(Member(one.name, one.address, one.tcid) for one in reply.coordinators),
            reply.server_version,
        )
        # A broker that was asked long ago, and answers late, may tell of earlier members.
        if info.membership_version >= self.runtime.members_version:
            self.runtime.members_version = info.membership_version
            self._learn(info.brokers, info.coordinators)
        return info

    def _learn(self, brokers: Iterable[Member], coordinators: Iterable[Member]) -> None:
        told = self._servers.told
        self._coordinators = tuple(
            replace(
                coordinator,
                address=told(COORDINATOR, coordinator.tcid or 0, coordinator.address).address,
            )
            for coordinator in coordinators
        )
        self.runtime.coordinator_count = len(self._coordinators)
        self._brokers = tuple(
            replace(broker, address=told(BROKER, broker.name, broker.address).address)
            for broker in brokers
        )
        known = [broker.address for broker in self._brokers if broker.address]
        # A server that has lost a shard is still there, and knows who has it.
        servers = [server_of(one) for one in known if shard_of(one) is not None]
        self.any_broker.learn(
            [*map(self.server_at, known), *(self.broker_at(server) for server in servers if server)]
        )
        self._servers.drop_idle_but(self.any_broker.everybody)

    def has_others_than(self, address: str) -> bool:
        """Return whether another broker may know more about the broker at an address."""
        return any(one.address != address for one in self.any_broker.everybody)

    def broker_title(self, address: str) -> str:
        """Return the name of a broker, for messages, with its address."""
        for broker in self._brokers:
            if broker.address == address:
                return f"broker {broker.name} at {title_of(address)}"
        return f"the broker at {title_of(address)}"

    def refresh_members_soon(self) -> None:
        """Ask for the members again in the background, since a broker does not answer."""
        if self._asking_count == 0:
            self.runtime.spawn(self._refresh_members, "ask for the members", self.runtime.fail)

    async def _refresh_members(self) -> None:
        if self._asking_count > 0:
            return
        try:
            await self.info()
        except MagnetarError as error:
            log.info("the list of the cluster's members could not be renewed: %s", error)

    async def _require_members(self) -> None:
        """Ask for the members if they are not known, or a server has told of a later list."""
        if not self._coordinators or not self.runtime.has_latest_members:
            await self.info()

    @property
    def only_coordinator(self) -> ShardConnection | None:
        """The connection to the coordinator, if it is known that there is one only."""
        if self.runtime.has_one_coordinator and self._coordinators:
            return self._coordinator(self._coordinators[0])
        return None

    async def coordinators(self, tcid: int | None = None) -> tuple[ShardConnection, ...]:
        """Return connections to all coordinators, or to the coordinator with this TCID.

        Each follows its coordinator to other servers.

        Raises:
            LogUnavailable: the cluster has no coordinator.
        """
        return tuple((await self.coordinators_by_tcid(tcid)).values())

    async def coordinators_by_tcid(self, tcid: int | None = None) -> dict[int, ShardConnection]:
        """Return the same as coordinators(), by TCID."""
        await self._require_members()
        if not self._coordinators:
            raise LogUnavailable("the cluster names no transaction coordinator")
        chosen = [
            coordinator
            for coordinator in self._coordinators
            if tcid is None or coordinator.tcid == tcid
        ]
        if not chosen:
            raise InvalidArgument(f"no coordinator of this cluster has the id {tcid}")
        return {one.tcid or 0: self._coordinator(one) for one in chosen}

    async def coordinator_for(self, name: str) -> ShardConnection:
        """Return the connection to the coordinator of a transactional id or a named sequence.

        Every client finds the same coordinator, as long as the members are the same: rendezvous
            hashing.
        """
        await self.coordinators()
        by_tcid = {one.tcid or 0: one for one in self._coordinators}
        return self._coordinator(by_tcid[tcid_of(name, by_tcid)])

    async def coordinator_of(self, txn_id: TxnID) -> ShardConnection:
        """Return the connection to the coordinator that issued a TxnID.

        Raises:
            TxnNotFound: no coordinator has this TCID.
        """
        await self._require_members()
        for attempt in range(2):
            for coordinator in self._coordinators:
                if coordinator.tcid == txn_id.tcid:
                    return self._coordinator(coordinator)
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
        addresses = tuple(address or answerer.address for address in reply.broker_addresses)
        for one in dict.fromkeys(addresses):
            if shard_of(one) is not None:
                self._servers.told(BROKER, one, one)
        return Lookup(reply.topic_id, addresses)

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
        self.topic_watch.stop()
        self._servers.close()

    def fail(self, error: MagnetarError) -> None:
        """Close all connections, since the client has failed."""
        self.close()
