"""Two brokers and two coordinators in virtual time, whose wall clocks disagree."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

from tests.client.fakes import FAST
from tests.simulation.network import Network
from tests.simulation.nodes import Environment, ServerNode
from tests.simulation.raw import BROKER, COORDINATOR
from tests.simulation.servers import (
    broker_config,
    broker_names,
    coordinator_config,
    coordinator_names,
)
from tests.simulation.trace import Trace
from tests.virtual_loop import VirtualClock, VirtualLoop
from tests.virtual_time import time_passes

import magnetar
from magnetar import Client
from magnetar.testing.lives import Incarnation
from magnetar_broker import keys
from magnetar_broker.broker import Broker
from magnetar_coordinator.coordinator import Coordinator
from magnetar_coordinator.metadata.records import FAMILIES
from magnetar_core.membership.placement import shard_of
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore

PATIENCE_S = 120.0
PATIENT = dataclasses.replace(
    FAST,
    operation_timeout_ms=60_000,
    send_timeout_ms=60_000,
    commit_timeout_ms=60_000,
    request_timeout_ms=3_000,
    backoff_ms_max=200,
)
HASTY = dataclasses.replace(PATIENT, operation_timeout_ms=2_000)
BROKERS = broker_names(2)
COORDINATORS = coordinator_names(2)


class Cluster:
    """The servers, each on a disk of its own, and the network between them.

    Attributes:
        brokers: by shard.
        coordinators: by TCID. The second one's clock is five seconds behind, unless it is set.
    """

    def __init__(self, loop: VirtualLoop, seed: str) -> None:
        self.loop = loop
        self.seed = seed
        self.network = Network(loop, Random(f"{seed}/network"), Trace(loop.time))
        self._environment = Environment(loop, self.network, self.network.trace, seed)
        self.brokers = [self._node(name, self._broker, keys.FAMILIES) for name in BROKERS]
        self.coordinators = [
            self._node(name, partial(self._coordinator, tcid), tuple(FAMILIES))
            for tcid, name in enumerate(COORDINATORS)
        ]
        self.network.server_names = frozenset([*BROKERS, *COORDINATORS])
        self._client_count = 0

    @property
    def nodes(self) -> list[ServerNode]:
        return [*self.brokers, *self.coordinators]

    def _node(self, name: str, make: Any, families: tuple[str, ...]) -> ServerNode:
        node = ServerNode(self._environment, name, make, families)
        node.restarts = False
        node.clock.wall_offset_ms = 0
        return node

    def _broker(
        self, node: ServerNode, store: MemoryStore, incarnation: Incarnation
    ) -> tuple[Broker, dict[str, Any]]:
        config = broker_config(node.name, BROKERS, COORDINATORS, {})
        transport = self.network.transport(incarnation)
        random = Random(f"{node.name}/{node.life}")
        broker = Broker(config, store, transport, node.clock, random, node.on_fatal)
        return broker, {BROKER: broker.server}

    def _coordinator(
        self, tcid: int, node: ServerNode, store: MemoryStore, incarnation: Incarnation
    ) -> tuple[Coordinator, dict[str, Any]]:
        config = coordinator_config(node.name, tcid, BROKERS, {})
        transport = self.network.transport(incarnation)
        random = Random(f"{node.name}/{node.life}")
        coordinator = Coordinator(config, store, transport, node.clock, random, node.on_fatal)
        return coordinator, {COORDINATOR: coordinator.server}

    async def start(self, *nodes: ServerNode) -> None:
        """Start these servers, or all of them."""
        for node in nodes or self.nodes:
            node.start()
        for node in nodes or self.nodes:
            await asyncio.wait_for(node.ready.wait(), PATIENCE_S)

    async def replace_disk(self, node: ServerNode) -> None:
        """A server loses its disk, and starts with an empty one."""
        node.crash(power_loss=False)
        disk = MemoryDisk(random=Random("new"))
        disk.sync_seconds = node.disk.sync_seconds
        node.disk = disk
        await self.start(node)

    async def connect(self, config: magnetar.ClientConfig = PATIENT) -> Client:
        self._client_count += 1
        name = f"sdk-{self._client_count}"
        return await magnetar.connect(
            [BROKERS[0]],
            transport=self.network.transport(self.loop.incarnate(name)),
            clock=VirtualClock(),
            random=Random(f"{self.seed}/{name}"),
            config=config,
        )

    async def until(self, condition: Callable[[], object]) -> None:
        began = self.loop.time()
        while not condition():
            assert self.loop.time() - began < PATIENCE_S, "it did not come true"
            await time_passes(0.01)


async def at_each_broker(client: Client, topic: str, **settings: Any) -> tuple[int, int]:
    """Create a topic; returns a partition at each broker."""
    topic_id = await client.admin.topics.create(topic, partitions=8, **settings)
    shards = [shard_of(topic_id, number) for number in range(8)]
    return shards.index(0), shards.index(1)


def run(scenario: Callable[[Cluster, Client], Awaitable[None]], seed: str = "seed") -> None:
    loop = VirtualLoop(deadline=3_000.0)

    async def within() -> None:
        cluster = Cluster(loop, seed)
        cluster.coordinators[1].clock.wall_offset_ms = -5_000
        await cluster.start()
        async with await cluster.connect() as client:
            await scenario(cluster, client)
        for node in cluster.brokers:
            if node.alive:
                node.server.check()

    try:
        loop.run_until_complete(within())
        loop.check()
    finally:
        loop.bury()
