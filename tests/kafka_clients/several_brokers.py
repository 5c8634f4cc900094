"""Several processes with ports for Kafka's clients, and shards that move, on disks in memory.

A process is a listener; its shards are brokers on links within this process. Shards keep their
disks when they move, and clients are told where they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import uvloop
from prometheus_client import CollectorRegistry
from tests.broker.harness import Client, ManualClock
from tests.configs import broker_config
from tests.kafka_clients.coordinated import Loopback
from tests.kafka_clients.harness import KafkaClient
from tests.waiting import turns, until

from magnetar_broker import keys
from magnetar_broker.broker import Broker
from magnetar_broker.topics.partition import Partition
from magnetar_core.clock import SystemClock
from magnetar_core.config import ListenConfig
from magnetar_core.ids import PartitionName
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.membership.placement import shard_of
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.listener import Listener
from magnetar_kafka.nodes import Nodes
from magnetar_kafka.offset_owners import BrokerLinks
from magnetar_kafka.shards import Shard, shard_of_group
from magnetar_kafka.wire import apis
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore

COUNT = 3
PARTITIONS = 6
LINKS = LinkSettings(
    client_name="kafka",
    cluster_hash="",
    answer_deadline_ms=1_000,
    retry_delay_ms_min=5,
    reconnect_delay_ms_max=20,
)


class Process:
    """A process: a listener, and the shards that it has now."""

    def __init__(self, world: SeveralBrokers, number: int) -> None:
        self.number = number
        self._world = world
        self.shards: dict[int, Shard] = {}
        self.is_running = False
        self.address = ""

    async def start(self) -> None:
        world = self._world
        nodes = Nodes(lambda: world.members, self.address, have_fixed_shards=False)
        self.links = BrokerLinks.of(world.members, world.loopback, LINKS, Random(self.number))
        self.listener = Listener(
            KafkaConfig(**world.kafka),
            ListenConfig(),
            SystemClock(),
            Random(100 + self.number),
            CollectorRegistry(),
            nodes=nodes,
            coordinators=Coordinators(),
            brokers=self.links,
        )
        port = int(self.address.rpartition(":")[2] or 0)
        self.address = nodes.own = await self.listener.open(port)
        self.is_running = True


class SeveralBrokers:
    """Three processes, each with a shard at first, and topic "t" of six partitions."""

    def __init__(self, **kafka: Any) -> None:
        self.kafka = {"kafka_group_first_join_delay_ms": 0, **kafka}
        self.loopback = Loopback()
        self.clock = ManualClock()
        self.fatal: list[BaseException] = []
        self.members = [
            MemberAddress(name=f"broker-{number}", address=f"broker-{number}")
            for number in range(COUNT)
        ]
        self._configured = tuple(self.members)
        self.disks = [MemoryDisk() for _ in range(COUNT)]
        self.brokers: dict[int, Broker] = {}
        self.processes = [Process(self, number) for number in range(COUNT)]
        self.clients: list[KafkaClient] = []
        self._lives = 0

    async def start(self) -> None:
        for process in self.processes:
            await process.start()
        for shard in range(COUNT):
            await self.open(shard, at=shard)
        await self.native(0).ask(topic_wire.CommandCreateTopic(topic="t", partitions=PARTITIONS))
        await until(
            lambda: all(one.topics.lookup("t") is not None for one in self.brokers.values())
        )
        owners = {self.shard_of(number) for number in range(PARTITIONS)}
        assert owners == set(range(COUNT)), "each broker has partitions"
        await self.linked()

    async def open(self, shard: int, *, at: int) -> None:
        """Open a shard at a process."""
        self._lives += 1
        broker = self.brokers[shard] = Broker(
            broker_config(
                name=f"broker-{shard}", brokers=self._configured, free_space_floor_bytes=1 << 20
            ),
            MemoryStore(self.disks[shard], keys.FAMILIES),
            self.loopback,
            self.clock,
            Random(self._lives),
            self.fatal.append,
        )
        await broker.start()
        self.loopback.acceptors[f"broker-{shard}"] = broker.server
        process = self.processes[at]
        added = process.listener.add(broker.local_access)
        process.shards[shard] = added
        self.members[shard] = replace(self.members[shard], kafka_address=process.address)
        await until(lambda: added.access.may_serve)

    def close_shard(self, shard: int) -> None:
        """Let a shard go as a lost lease does: its broker ends at once."""
        (process,) = [one for one in self.processes if shard in one.shards]
        process.listener.remove(process.shards.pop(shard))
        self.members[shard] = replace(self.members[shard], kafka_address="")
        self.disks[shard].crash()
        self.loopback.cut(f"broker-{shard}")
        self.brokers.pop(shard).abandon()

    async def move(self, shard: int, *, to: int) -> None:
        """Give a shard to another process."""
        self.close_shard(shard)
        await self.open(shard, at=to)
        await self.linked()

    async def kill(self, number: int) -> None:
        """End a process as kill -9 does; its shards have no owner afterwards."""
        process = self.processes[number]
        process.is_running = False
        for shard in list(process.shards):
            self.close_shard(shard)
        await process.listener.close(grace_ms=1)

    async def linked(self) -> None:
        """Wait until each process has its links to all shards that are open."""

        def are_up() -> bool:
            return all(
                process.links._links[shard]._link.is_up
                for process in self.processes
                if process.is_running
                for shard in self.brokers
            )

        await until(are_up)

    async def connect(self, number: int) -> KafkaClient:
        """Connect to a process."""
        host, _, port = self.processes[number].address.rpartition(":")
        client = KafkaClient(*await asyncio.open_connection(host, int(port)))
        self.clients.append(client)
        return client

    def native(self, shard: int) -> Client:
        """A client of ours at a shard."""
        return Client(_Of(self, shard))  # type: ignore[arg-type]

    def shard_of(self, number: int) -> int:
        """The shard of a partition of "t"."""
        (topic_id,) = {one.topics.get("t").topic_id for one in self.brokers.values()}
        return shard_of(topic_id, number)

    def name(self, number: int) -> PartitionName:
        topic_id = next(iter(self.brokers.values())).topics.get("t").topic_id
        return PartitionName("t", number, topic_id)

    def partition(self, number: int) -> Partition:
        return self.brokers[self.shard_of(number)].topics.get("t").hosted[number]

    def home(self, group: str) -> int:
        """The process that coordinates a group."""
        shard = shard_of_group(group, COUNT)
        (process,) = [one for one in self.processes if shard in one.shards]
        return process.number

    async def coordinator(self, group: str) -> KafkaClient:
        """A client at the process that FindCoordinator names."""
        running = next(one.number for one in self.processes if one.is_running)
        asked = await self.connect(running)
        (row,) = (
            await asked.ask(apis.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [group]})
        )["coordinators"]
        assert row["error_code"] == ErrorCode.NONE
        at = f"{row['host']}:{row['port']}"
        (number,) = [one.number for one in self.processes if one.address == at]
        assert number == self.home(group)
        return await self.connect(number)

    async def settle(self) -> None:
        await turns(100)

    async def stop(self) -> None:
        for client in self.clients:
            client.close()
        for process in self.processes:
            if process.is_running:
                await process.listener.close(grace_ms=1_000)
        for broker in self.brokers.values():
            await broker.close()
        assert not self.fatal


class _Of:
    """A shard of the world, as the harness of clients asks for it."""

    def __init__(self, world: SeveralBrokers, shard: int) -> None:
        self.broker = world.brokers[shard]
        self.settle = world.settle


def run(scenario: Callable[[SeveralBrokers], Awaitable[None]], **kafka: Any) -> None:
    async def within() -> None:
        world = SeveralBrokers(**kafka)
        await world.start()
        try:
            await scenario(world)
        finally:
            await world.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(within())
