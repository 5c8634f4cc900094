"""Several real brokers in virtual time, on disks in memory, linked by the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from tests.configs import broker_config
from tests.core.envelope import framed
from tests.simulation.network import Network
from tests.simulation.nodes import Environment, ServerNode
from tests.simulation.trace import Trace
from tests.virtual_loop import VirtualLoop
from tests.virtual_time import time_passes

from magnetar.testing.envelope import command
from magnetar.testing.lives import Incarnation
from magnetar_broker import keys
from magnetar_broker.broker import Broker
from magnetar_core.errors import LogUnavailable, from_wire
from magnetar_core.ids import PartitionName
from magnetar_core.membership.address_book import AddressBook, MemberAddress
from magnetar_core.membership.placement import shard_of
from magnetar_core.transport.transport import Link
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import service_pb2 as service
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_storage import store_identity
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore
from magnetar_storage.store import WriteBatch

PATIENCE_S = 120.0


class Client:
    """A conversation with a broker."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self._name = cluster.nodes[number].name
        self._incarnation = cluster.loop.incarnate("client")
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._link: Link | None = None
        self._last = 0

    async def connect(self) -> Client:
        network = self._cluster.network
        self._link = await network.connect(
            self._incarnation, self._name, "Broker", self._on_frame, self._on_closed
        )
        return self

    def begin(self, body: Any) -> asyncio.Future[Any]:
        assert self._link is not None
        self._last += 1
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._last] = answer
        self._link.write(framed(command(body, self._last)))
        return answer

    async def ask(self, body: Any) -> Any:
        return await asyncio.wait_for(self.begin(body), PATIENCE_S)

    def _on_frame(self, frame: service.Frame) -> None:
        for one in frame.commands:
            body = getattr(one, one.WhichOneof("body") or "")
            answer = self._answers.pop(one.request_id, None)
            if answer is None or answer.done():
                continue
            if isinstance(body, common.ServerError):
                answer.set_exception(from_wire(body))
            else:
                answer.set_result(body)

    def _on_closed(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(LogUnavailable("the link broke"))
        self._answers.clear()


class Cluster:
    """Brokers "b-0", "b-1", ...; the first one keeps the directory.

    They know each other as members of a list do, but for its hash: then no coordinators are waited
    for.
    """

    nodes: list[ServerNode]

    def __init__(
        self,
        loop: VirtualLoop,
        count: int,
        *,
        addresses: AddressBook | None = None,
        **settings: Any,
    ) -> None:
        self.loop = loop
        self._addresses = addresses
        self.network = Network(loop, Random("network"), Trace(loop.time))
        self._environment = Environment(loop, self.network, self.network.trace, "seed")
        self._settings = settings
        self.nodes = []
        self.grow(count)

    def grow(self, count: int) -> None:
        """From now on the list has so many brokers; each sees it when it starts."""
        self._members = tuple(
            MemberAddress(name=f"b-{number}", address=f"b-{number}") for number in range(count)
        )
        for one in self._members[len(self.nodes) :]:
            node = ServerNode(self._environment, one.name, self._make, keys.FAMILIES)
            node.restarts = False
            self.nodes.append(node)
        self.network.server_names = frozenset(one.name for one in self.nodes)

    def _make(
        self, node: ServerNode, store: MemoryStore, incarnation: Incarnation
    ) -> tuple[Broker, dict[str, Any]]:
        config = broker_config(
            name=node.name,
            address=node.name,
            brokers=self._members,
            broker_answer_deadline_ms=1_000,
            **self._settings,
        )
        broker = Broker(
            config,
            store,
            self.network.transport(incarnation),
            node.clock,
            Random(f"{node.name}/{node.life}"),
            node.on_fatal,
            addresses=self._addresses,
        )
        return broker, {"Broker": broker.server}

    async def start(self, *numbers: int) -> None:
        """Start these brokers, or all of them."""
        chosen = [self.nodes[number] for number in numbers] or self.nodes
        for node in chosen:
            node.start()
        for node in chosen:
            await asyncio.wait_for(node.ready.wait(), PATIENCE_S)

    def crash(self, number: int, *, power_loss: bool = False) -> None:
        self.nodes[number].crash(power_loss=power_loss)

    async def restart(self, number: int, *, power_loss: bool = False) -> None:
        self.crash(number, power_loss=power_loss)
        await self.start(number)

    async def refused_at_start(self, number: int) -> str:
        """Start a broker that does not come up; return why."""
        failed: list[BaseException] = []
        self.nodes[number].on_fatal = failed.append  # type: ignore[assignment, method-assign]
        self.nodes[number].start()
        await self.until(lambda: failed)
        return str(failed[0])

    def vanish(self, number: int) -> None:
        """The data directory of a broker that is down is gone."""
        node = self.nodes[number]
        node.disk = MemoryDisk(random=Random("new"))

    async def accept_loss(self, number: int, losses: int = 1_000) -> None:
        """Somebody accepts the loss of everything at a broker that is down."""
        store = MemoryStore(self.nodes[number].disk, keys.FAMILIES)
        row = await store.get(keys.META, store_identity.KEY)
        stored = records.StoreIdentity(
            format=1,
            kind="broker",
            member=self.nodes[number].name,
            brokers=[one.name for one in self._members],
        )
        if row is not None:
            stored = records.StoreIdentity.FromString(row)
        stored.losses += losses
        batch = WriteBatch()
        batch.put(keys.META, store_identity.KEY, stored.SerializeToString(deterministic=True))
        await store.write(batch)
        await store.sync()
        await store.close()

    def broker(self, number: int) -> Broker:
        broker = self.nodes[number].server
        assert isinstance(broker, Broker)
        return broker

    async def client(self, number: int) -> Client:
        return await Client(self, number).connect()

    async def ask(self, number: int, body: Any) -> Any:
        """Ask a broker, again and again while it says that it cannot answer now."""
        while True:
            try:
                return await (await self.client(number)).ask(body)
            except (LogUnavailable, OSError):
                await time_passes(0.1)

    async def create(self, number: int, topic: str, partitions: int = 0) -> int:
        """Create a topic at a broker; by default it has a partition at each. Returns its id."""
        answer = await self.ask(
            number,
            topic_wire.CommandCreateTopic(topic=topic, partitions=partitions or len(self.nodes)),
        )
        return int(answer.topic_id)

    def has_met(self, number: int) -> bool:
        """Whether a broker knows all that the first one knows."""
        return self.broker(number).topic_directory.is_current

    def names(self, number: int) -> list[str]:
        """Names of the topics that a broker knows."""
        return sorted(one.name for one in self.broker(number).topics.all())

    def partition_at(self, number: int, topic: str, topic_id: int) -> PartitionName:
        """A partition of the topic that lies at a broker."""
        partition = next(one for one in range(1 << 11) if shard_of(topic_id, one) == number)
        return PartitionName(topic, partition, topic_id)

    async def until(self, condition: Callable[[], object]) -> None:
        began = self.loop.time()
        while not condition():
            assert self.loop.time() - began < PATIENCE_S, "it did not come true"
            await time_passes(0.01)

    def check(self) -> None:
        for node in self.nodes:
            if node.alive:
                node.server.check()


def run(
    scenario: Callable[[Cluster], Awaitable[None]],
    count: int = 3,
    *,
    start: bool = True,
    make: type[Cluster] = Cluster,
    **settings: Any,
) -> None:
    loop = VirtualLoop()

    async def within() -> None:
        cluster = make(loop, count, **settings)
        if start:
            await cluster.start()
            await cluster.until(lambda: all(cluster.has_met(one) for one in range(count)))
        await scenario(cluster)
        cluster.check()

    try:
        loop.run_until_complete(within())
        loop.check()
    finally:
        loop.bury()
