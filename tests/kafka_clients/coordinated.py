"""A broker, a coordinator, and the port for Kafka's clients, in one process, on disks in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import uvloop
from prometheus_client import CollectorRegistry
from tests.broker.harness import Client, ManualClock
from tests.configs import broker_config, coordinator_config
from tests.kafka_clients.harness import KafkaClient
from tests.waiting import turns, until

from magnetar_broker import keys
from magnetar_broker.broker import Broker
from magnetar_broker.topics.partition import Partition
from magnetar_coordinator.coordinator import Coordinator
from magnetar_coordinator.metadata.records import FAMILIES
from magnetar_core import batch as columnar
from magnetar_core.clock import SystemClock
from magnetar_core.config import ListenConfig
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.server.commands import Conversation
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import service_pb2 as service
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.listener import Listener
from magnetar_kafka.nodes import alone
from magnetar_kafka.wire import apis
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore

BROKER, COORDINATOR = "127.0.0.1:6650", "127.0.0.1:6651"
EXPIRY_SCAN_MS = 5


class _Link:
    """Both directions of a conversation in this process."""

    def __init__(
        self,
        loopback: Loopback,
        address: str,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> None:
        self.address = address
        self._loopback = loopback
        self._loop = asyncio.get_running_loop()
        self._on_frame = on_frame
        self._on_closed = on_closed
        self.is_open = True
        self._session = loopback.acceptors[address].accept(
            Conversation(write=self._answer, origin="loopback")
        )

    def write(self, frame: bytes) -> None:
        if self.is_open:
            self._loop.call_soon(self._arrive, frame)

    def _arrive(self, frame: bytes) -> None:
        if self.is_open:
            self._session.on_frame(service.Frame.FromString(frame))

    def _answer(self, data: bytes) -> None:
        if self.is_open and not self._loopback.is_mute(self.address):
            self._loop.call_soon(self._hear, data)

    def _hear(self, data: bytes) -> None:
        if self.is_open:
            self._on_frame(service.Frame.FromString(data))

    async def drain(self) -> None:
        return

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loopback.links.remove(self)
            self._session.on_closed()
            self._loop.call_soon(self._on_closed)


class Loopback:
    """Links within this process.

    Attributes:
        mute: addresses whose answers are lost.
    """

    def __init__(self) -> None:
        self.acceptors: dict[str, Any] = {}
        self.links: list[_Link] = []
        self.mute: set[str] = set()

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> _Link:
        if address not in self.acceptors:
            raise LinkClosed(f"no server is at {address}")
        link = _Link(self, address, on_frame, on_closed)
        self.links.append(link)
        return link

    def is_mute(self, address: str) -> bool:
        return address in self.mute

    def cut(self, address: str) -> None:
        """End all links to a server, and let it be away."""
        self.acceptors.pop(address, None)
        for link in [one for one in self.links if one.address == address]:
            link.close()

    async def close(self) -> None:
        return


class CoordinatedWorld:
    """The servers, with topic "t" of two partitions."""

    def __init__(self, **coordinator: Any) -> None:
        self.loopback = Loopback()
        self.clock = ManualClock()
        self.fatal: list[BaseException] = []
        self.broker_disk, self.coordinator_disk = MemoryDisk(), MemoryDisk()
        self.settings = {"expiry_check_interval_ms": EXPIRY_SCAN_MS, **coordinator}
        self.clients: list[KafkaClient] = []
        self._lives = 0

    async def start(self) -> None:
        await self.start_broker()
        await self.start_coordinator()
        await self.native.ask(topic_wire.CommandCreateTopic(topic="t", partitions=2))

    async def start_broker(self) -> None:
        self._lives += 1
        self.broker = Broker(
            broker_config(free_space_floor_bytes=1 << 20),
            MemoryStore(self.broker_disk, keys.FAMILIES),
            self.loopback,
            self.clock,
            Random(self._lives),
            self.fatal.append,
        )
        await self.broker.start()
        self.loopback.acceptors[BROKER] = self.broker.server
        self.native = Client(self)  # type: ignore[arg-type]
        await self.open_listener()

    async def open_listener(self) -> None:
        """Open the port of the broker for Kafka's clients."""
        settings = LinkSettings(
            client_name="kafka",
            cluster_hash="",
            answer_deadline_ms=1_000,
            retry_delay_ms_min=5,
            reconnect_delay_ms_max=20,
        )
        config = self.broker.environment.config
        self.coordinators = Coordinators.of(config.coordinators, self.loopback, settings, Random(5))
        self.listener = Listener(
            KafkaConfig(kafka_group_first_join_delay_ms=0),
            ListenConfig(),
            SystemClock(),
            Random(self._lives),
            CollectorRegistry(),
            nodes=alone(max(1, len(config.brokers))),
            coordinators=self.coordinators,
        )
        self.listener.add(self.broker.local_access)
        self.address = await self.listener.open(0)

    async def start_coordinator(self) -> None:
        self._lives += 1
        self.coordinator = Coordinator(
            coordinator_config(free_space_floor_bytes=1 << 20, **self.settings),
            MemoryStore(self.coordinator_disk, FAMILIES),
            self.loopback,
            self.clock,
            Random(self._lives),
            self.fatal.append,
        )
        await self.coordinator.start()
        self.loopback.acceptors[COORDINATOR] = self.coordinator.server

    async def kill_broker(self) -> None:
        """Do as kill -9 does, and start it again."""
        self.broker_disk.crash()
        self.loopback.cut(BROKER)
        self.broker.abandon()
        await self.listener.close(grace_ms=1)
        await self.start_broker()

    async def kill_coordinator(self) -> None:
        """Do as kill -9 does, and start it again."""
        self.coordinator_disk.crash()
        self.loopback.cut(COORDINATOR)
        self.coordinator.abandon()
        await self.start_coordinator()

    async def connect(self) -> KafkaClient:
        port = int(self.address.rpartition(":")[2])
        client = KafkaClient(*await asyncio.open_connection("127.0.0.1", port))
        self.clients.append(client)
        return client

    async def linked(self, client: KafkaClient) -> None:
        """Wait until the listener has its link to the coordinator."""

        async def is_linked() -> bool:
            body = {
                "transactional_id": "nobody",
                "producer_id": 1,
                "producer_epoch": 0,
                "committed": False,
            }
            answer = await client.ask(apis.END_TXN, body, 1)
            return ErrorCode(answer["error_code"]) is not ErrorCode.COORDINATOR_NOT_AVAILABLE

        await until(is_linked)

    async def settle(self, *, check: bool = True) -> None:
        await turns(200)
        if check:
            self.broker.check()

    async def stop(self) -> None:
        for client in self.clients:
            client.close()
        await self.listener.close(grace_ms=1_000)
        await self.coordinator.close()
        await self.broker.close()
        assert not self.fatal

    def partition(self, number: int = 0) -> Partition:
        return self.broker.topics.get("t").partitions[number]

    def has_ended_all(self) -> bool:
        """Every transaction has ended at both partitions, and readers see its messages.

        A marker is applied before it is durable, and readers see what is durable.
        """
        return not any(
            one.index.open or one.log.durable_end < one.log.end_offset
            for one in (self.partition(0), self.partition(1))
        )

    async def read(self, number: int = 0) -> list[bytes]:
        """All that a reader sees, in order."""
        found = await self.partition(number).reader.read(0, bytes_max=1 << 20)
        return [
            value or b""
            for one in found
            for value in columnar.decode(one.batch).values_or_none()[: one.visible_count]
        ]


def run(scenario: Callable[[CoordinatedWorld], Awaitable[None]], **coordinator: Any) -> None:
    async def within() -> None:
        world = CoordinatedWorld(**coordinator)
        await world.start()
        try:
            await scenario(world)
        finally:
            await world.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(within())
