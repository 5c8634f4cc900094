"""A broker on a disk in memory, with a port for Kafka's clients on a real socket."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import google_crc32c
import uvloop
from prometheus_client import CollectorRegistry
from tests.broker.harness import World

from magnetar_core.config import ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.gates.gates import gates_of
from magnetar_core.kafka_records.writing import write_records
from magnetar_core.record_batch import NO_TIMESTAMP
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.listener import Listener
from magnetar_kafka.nodes import alone
from magnetar_kafka.shards import Shard
from magnetar_kafka.wire import apis
from magnetar_kafka.wire.apis import Api
from magnetar_kafka.wire.codec import (
    Input,
    is_flexible,
    request_writer,
    response_reader,
    skip_tags,
)

ENOUGH_SECONDS = 20.0


class Record(NamedTuple):
    """A message as Kafka has it."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


class KafkaClient:
    """A connection of a client that sends what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._asked: list[tuple[int, Api, int]] = []

    def tell(self, api: Api, body: dict[str, Any], version: int | None = None) -> None:
        """Send a request."""
        version = api.last if version is None else version
        self._correlation_id += 1
        out = bytearray(self._head(api.key, version))
        if is_flexible(api, version):
            out.append(0)
        request_writer(api, version)(out, body)
        self.send_frame(bytes(out))
        self._asked.append((self._correlation_id, api, version))

    def _head(self, key: int, version: int) -> bytes:
        numbers = key.to_bytes(2, "big") + version.to_bytes(2, "big")
        return numbers + self._correlation_id.to_bytes(4, "big") + b"\x00\x04test"

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(len(frame).to_bytes(4, "big") + frame)

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> dict[str, Any]:
        """Return the answer to the oldest request that has none."""
        correlation_id, api, version = self._asked.pop(0)
        frame = await self.frame()
        source = Input(frame)
        assert int.from_bytes(source.take(4), "big") == correlation_id
        if is_flexible(api, version) and api is not apis.API_VERSIONS:
            skip_tags(source)
        found = response_reader(api, version)(source)
        assert source.at == len(frame)
        return dict(found)

    async def frame(self) -> bytes:
        async with asyncio.timeout(ENOUGH_SECONDS):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(size)

    async def ask(
        self, api: Api, body: dict[str, Any], version: int | None = None
    ) -> dict[str, Any]:
        self.tell(api, body, version)
        return await self.answer()

    async def is_closed(self) -> bool:
        """Wait for the end of the connection; return whether nothing came before it."""
        try:
            async with asyncio.timeout(ENOUGH_SECONDS):
                return not await self._reader.read(1)
        except ConnectionError:
            return True

    def close(self) -> None:
        self._writer.close()


class KafkaWorld(World):
    """A broker with topic "t" of two partitions, and its port."""

    def __init__(self, kafka: dict[str, Any] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.kafka = kafka or {}
        self.listen = ListenConfig()
        self.access = AccessConfig()
        self.registry = CollectorRegistry()
        self.clients: list[KafkaClient] = []

    async def _open(self) -> None:
        await super()._open()
        self.registry = CollectorRegistry()
        self.listener = Listener(
            KafkaConfig(**self.kafka),
            self.listen,
            self.clock,
            Random(3),
            self.registry,
            nodes=alone(max(1, len(self.broker.environment.config.brokers))),
            coordinators=Coordinators(),
            gate=gates_of(self.access, self.listen, self.clock),
        )
        self.shard: Shard = self.listener.add(self.broker.local_access)
        self.address = await self.listener.open(0)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    async def connect(self, tls: ssl.SSLContext | None = None) -> KafkaClient:
        client = KafkaClient(*await asyncio.open_connection("127.0.0.1", self.port, ssl=tls))
        self.clients.append(client)
        return client

    async def connect_to(self, address: str) -> KafkaClient:
        """Connect to a port of another listener."""
        host, _, port = address.rpartition(":")
        client = KafkaClient(*await asyncio.open_connection(host, int(port)))
        self.clients.append(client)
        return client

    async def restart(self, losing: Random | None = None) -> None:
        await self.listener.close(grace_ms=1)
        await super().restart(losing)

    async def stop(self) -> None:
        for client in self.clients:
            client.close()
        await self.listener.close(grace_ms=1_000)
        await super().stop()

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"magnetar_kafka_{name}", labels) or 0.0


def run(
    scenario: Callable[[KafkaWorld], Awaitable[None]],
    kafka: dict[str, Any] | None = None,
    listen: ListenConfig | None = None,
    access: AccessConfig | None = None,
    **settings: Any,
) -> None:
    async def within() -> None:
        world = KafkaWorld(kafka, **settings)
        world.listen, world.access = listen or world.listen, access or world.access
        await world.start()
        await scenario(world)
        await world.stop()

    # As servers do.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(within())


def records(*values: bytes, base: int = 0, timestamp_ms: int = NO_TIMESTAMP) -> list[Record]:
    return [Record(timestamp_ms, b"k", value, ((b"h", b"\xff"),)) for value in values]


def batch(
    *values: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    timestamp_ms: int = NO_TIMESTAMP,
    of: Sequence[Record] | None = None,
) -> bytes:
    """A RecordBatch as a client's, with a right checksum."""
    some = of or records(*values, timestamp_ms=timestamp_ms)
    made = bytearray(
        write_records(
            [one.value for one in some],
            [one.key for one in some],
            [one.timestamp_ms for one in some],
            {place: list(one.headers) for place, one in enumerate(some) if one.headers},
            base_offset=0,
        )
    )
    made[12:16] = bytes(4)
    made[21:23] = attributes.to_bytes(2, "big")
    made[43:51] = producer_id.to_bytes(8, "big", signed=True)
    made[51:53] = epoch.to_bytes(2, "big", signed=True)
    made[53:57] = sequence.to_bytes(4, "big", signed=True)
    return sealed(made)


def sealed(made: bytearray) -> bytes:
    made[17:21] = int(google_crc32c.value(bytes(made[21:]))).to_bytes(4, "big")
    return bytes(made)


def produce(*batches: bytes | None, acks: int = -1, topic: str = "t", number: int = 0) -> Any:
    rows = [{"index": number, "records": None if one is None else (one,)} for one in batches]
    return {
        "acks": acks,
        "timeout": 1_000,
        "topic_data": [{"name": topic, "partition_data": rows}],
    }


def fetch(offset: int = 0, *, number: int = 0, topic: str = "t", **more: Any) -> dict[str, Any]:
    row = {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "max_wait": 0,
        "min_bytes": 0,
        "topics": [{"topic": topic, "partitions": [row]}],
        **more,
    }


def produced(answer: dict[str, Any]) -> list[tuple[ErrorCode, int]]:
    """Code and base offset of each partition of an answer to Produce."""
    return [
        (ErrorCode(part["error_code"]), part["base_offset"])
        for topic in answer["responses"]
        for part in topic["partition_responses"]
    ]


def fetched(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The partitions of an answer to Fetch."""
    return [part for topic in answer["responses"] for part in topic["partitions"]]
