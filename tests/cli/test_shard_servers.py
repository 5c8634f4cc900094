"""Shards that a process opens, hands over and loses: real brokers, on stores in a directory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.cluster.views import view
from tests.raw_talk import RawTalk
from tests.waiting import turns, until

from magnetar_broker.broker import Broker
from magnetar_broker.config import BrokerConfig
from magnetar_broker.keys import FAMILIES, META, PAYLOAD_FAMILIES
from magnetar_cli.servers.open_store import Rows
from magnetar_cli.servers.owner_options import servers_of
from magnetar_cli.servers.server_process import Component, World
from magnetar_cli.servers.shard_metrics import ShardMetrics
from magnetar_cli.servers.shard_servers import ShardKind, ShardServers
from magnetar_cluster.directory.view import BROKER, Format, ShardName
from magnetar_cluster.hosting.shard_opener import RunningShard, ShardOwnership
from magnetar_cluster.owners_book import OwnersBook
from magnetar_core.clock import SystemClock
from magnetar_core.config import ListenConfig
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.membership.shard_address import ShardPlace
from magnetar_core.server.commands import CommandServer
from magnetar_core.server.doors import Doors
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import topic_pb2 as wire
from magnetar_storage.store import StoreFailed, StoreFenced
from magnetar_storage.store_config import StoreConfig

ONE = Format(broker_shards=1, coordinator_shards=1)
ZERO = ShardName(BROKER, 0)


class FakeComponent:
    """What a shard's server is to its process."""

    @property
    def server(self) -> CommandServer:
        raise NotImplementedError

    async def start(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def abandon(self) -> None:
        return


class Process:
    """A server of shards, as `magnetar broker --etcd` has it, without etcd."""

    def __init__(self, directory: Path) -> None:
        self.doors = Doors()
        self.server = GrpcServer("Broker", ListenConfig(stop_grace_ms=100), self.doors)
        self.metrics = ShardMetrics()
        self.ends: list[BaseException] = []
        self.speaks = True
        self.format = ONE
        self._directory = directory
        self._build: Callable[[ShardName, World], Component] = self.build
        kind = ShardKind(rows=self._rows, build=lambda shard, world: self._build(shard, world))
        self.shards = ShardServers(kind, self.doors, self.metrics, SystemClock(), "127.0.0.1:1")

    def own(self, epoch: int, shard: ShardName = ZERO) -> ShardOwnership:
        return ShardOwnership(
            shard=shard, epoch=epoch, may_speak=lambda: self.speaks, on_end=self.ends.append
        )

    async def open(self, epoch: int) -> RunningShard:
        return await self.shards.open(self.own(epoch))

    def build(self, shard: ShardName, world: World) -> Component:
        brokers, _ = servers_of(self.format)
        component: Component = Broker(
            BrokerConfig(name=str(shard), brokers=brokers, coordinators=()),
            world.store,
            world.transport,
            world.clock,
            world.random,
            world.on_fatal,
            world.registry,
            OwnersBook(lambda: self.shards.view),
        )
        return component

    def told(self) -> str:
        registry = CollectorRegistry()
        registry.register(self.metrics)
        return generate_latest(registry).decode()

    def _rows(self, shard: ShardName) -> Rows:
        return Rows(
            kind="broker",
            name=str(shard),
            data_dir=self._directory / "none",
            families=FAMILIES,
            payload_families=PAYLOAD_FAMILIES,
            block_cache_bytes=1 << 20,
            memtables_bytes=8 << 20,
            config=StoreConfig(store=f"file://{self._directory}/objects"),
        )


class Cluster:
    """Two processes, and a client."""

    def __init__(self, directory: Path) -> None:
        self.a, self.b = Process(directory), Process(directory)
        self.transport = GrpcTransport()

    async def connect(self, process: Process, epoch: int) -> RawTalk:
        address = f"{process.server.address}#{ShardPlace(0, epoch)}"
        return await RawTalk().connect(self.transport, address, "Broker")


def play(directory: Path, scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        cluster = Cluster(directory)
        for one in (cluster.a, cluster.b):
            await one.server.open()
        try:
            async with asyncio.timeout(60):
                await scenario(cluster)
        finally:
            await cluster.transport.close()
            for one in (cluster.a, cluster.b):
                await one.server.close()

    asyncio.run(run())


async def topics(talk: RawTalk) -> list[str]:
    return [one.topic for one in (await talk.ask(wire.CommandListTopics())).topics]


def test_a_shard_is_handed_over_with_everything_in_it(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        shard = await cluster.a.open(7)
        talk = await cluster.connect(cluster.a, 7)
        await talk.ask(wire.CommandCreateTopic(topic="orders"))
        assert 'shard="0"' in cluster.a.told()
        await shard.close()
        await talk.closed.wait()
        assert cluster.a.told() == ""
        with pytest.raises(LinkClosed):
            await cluster.connect(cluster.a, 7)
        other = await cluster.b.open(9)
        assert await topics(await cluster.connect(cluster.b, 9)) == ["orders"]
        # It comes back: another ownership.
        await other.close()
        again = await cluster.a.open(11)
        assert await topics(await cluster.connect(cluster.a, 11)) == ["orders"]
        with pytest.raises(LinkClosed):
            await cluster.connect(cluster.a, 7)
        await again.close()
        assert cluster.a.ends == cluster.b.ends == []

    play(tmp_path, scenario)


def test_who_was_fenced_says_nothing_and_ends_alone(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        former = await cluster.a.open(7)
        talk = await cluster.connect(cluster.a, 7)
        await talk.ask(wire.CommandCreateTopic(topic="orders"))
        present = await cluster.b.open(9)
        # A write finds out at once.
        answer = talk.begin(wire.CommandCreateTopic(topic="late"))
        await until(lambda: cluster.a.ends)
        (error,) = cluster.a.ends
        assert isinstance(error, StoreFenced)
        # Its conversations end by themselves.
        await talk.closed.wait()
        with pytest.raises(LinkClosed):
            await cluster.connect(cluster.a, 7)
        await former.abandon()
        await talk.closed.wait()
        assert not answer.done()
        assert await topics(await cluster.connect(cluster.b, 9)) == ["orders"]
        await former.abandon()
        await present.close()
        assert len(cluster.a.ends) == 1

    play(tmp_path, scenario)


def test_what_is_not_durable_is_not_written_by_who_loses_the_shard(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        former = await cluster.a.open(7)
        talk = await cluster.connect(cluster.a, 7)
        await talk.ask(wire.CommandCreateTopic(topic="orders"))
        cluster.a.speaks = False
        answer = talk.begin(wire.CommandListTopics())
        await talk.closed.wait()
        assert not answer.done()
        await former.abandon()
        present = await cluster.b.open(9)
        assert await topics(await cluster.connect(cluster.b, 9)) == ["orders"]
        await present.close()
        assert cluster.a.ends == []

    play(tmp_path, scenario)


def test_a_handover_that_was_too_late_is_no_failure(tmp_path: Path) -> None:
    """The next owner has fenced the store while this one closes."""

    async def scenario(cluster: Cluster) -> None:
        former = await cluster.a.open(7)
        talk = await cluster.connect(cluster.a, 7)
        await talk.ask(wire.CommandCreateTopic(topic="orders"))
        present = await cluster.b.open(9)
        (server,) = cluster.a.shards._servers
        assert isinstance(server._component, Broker)
        server._component.environment.commits.batch.put(META, b"late", b"")
        await former.close()
        assert cluster.a.ends == []
        assert await topics(await cluster.connect(cluster.b, 9)) == ["orders"]
        await present.close()

    play(tmp_path, scenario)


def test_a_shard_that_cannot_be_opened_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        def broken(shard: ShardName, world: World) -> Component:
            raise ZeroDivisionError

        cluster.a._build = broken
        with pytest.raises(ZeroDivisionError):
            await cluster.a.open(7)
        assert cluster.a.told() == ""
        with pytest.raises(LinkClosed):
            await cluster.connect(cluster.a, 7)
        cluster.a._build = cluster.a.build
        shard = await cluster.a.open(8)
        assert await topics(await cluster.connect(cluster.a, 8)) == []
        await shard.close()

    play(tmp_path, scenario)


def test_an_opening_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for _ in range(5):
            opening = asyncio.create_task(cluster.a.open(7))
            await until(lambda: cluster.a.doors._doors)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert cluster.a.doors._doors == {}
            assert not cluster.a.shards._servers
        shard = await cluster.b.open(8)
        await shard.close()

    play(tmp_path, scenario)


def test_an_opening_ends_when_somebody_else_has_the_shard(tmp_path: Path) -> None:
    """A coordinator may wait for an answer to a question that it may not ask any more."""

    class Patient(FakeComponent):
        async def start(self) -> None:
            await asyncio.Event().wait()

    async def scenario(cluster: Cluster) -> None:
        process = cluster.a
        process._build = lambda shard, world: Patient()
        opening = asyncio.create_task(process.open(7))
        await until(lambda: process.shards._servers)
        (server,) = process.shards._servers
        await until(lambda: server._component)
        for shown in (view(6), view(7, broker_0=("a", 7)), view(9, broker_0=("a", 7))):
            process.shards.owners_changed(shown)
            await turns(10)
            assert not server._failure.done()
        process.shards.owners_changed(view(10, broker_0=("b", 10)))
        with pytest.raises(StoreFenced, match="broker-0"):
            await opening
        assert not process.shards._servers

    play(tmp_path, scenario)


def test_a_shard_that_ends_just_when_it_is_ready_is_not_open(tmp_path: Path) -> None:
    """Its member would keep it for ever, and it would never say a word."""

    async def scenario(cluster: Cluster) -> None:
        process = cluster.a

        def build(shard: ShardName, world: World) -> Component:
            class Doomed(FakeComponent):
                async def start(self) -> None:
                    world.on_fatal(StoreFailed("the first write failed"))

            return Doomed()

        process._build = build
        with pytest.raises(StoreFailed, match="the first write"):
            await process.open(7)
        assert not process.shards._servers
        with pytest.raises(LinkClosed):
            await cluster.connect(process, 7)

    play(tmp_path, scenario)


def test_shards_of_one_process_have_metrics_of_their_own(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        process = cluster.a
        process.format = replace(ONE, broker_shards=2)
        shards = [
            await process.shards.open(process.own(7 + number, ShardName(BROKER, number)))
            for number in range(2)
        ]
        process.shards.owners_changed(view(9))
        told = process.told()
        assert told.count("# TYPE magnetar_broker_recovery_seconds gauge") == 1
        for number in range(2):
            assert f'magnetar_broker_recovery_seconds{{shard="{number}"}}' in told
        for shard in shards:
            await shard.close()

    play(tmp_path, scenario)
