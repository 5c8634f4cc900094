"""The connection: frames of strangers, limits, order, and its end."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from tests.kafka_clients.harness import (
    KafkaWorld,
    batch,
    fetch,
    fetched,
    produce,
    produced,
    run,
)
from tests.waiting import until

from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis
from magnetar_kafka.wire.codec import Input, response_reader

SMALL = {"kafka_request_bytes_max": 65_536, "kafka_fetch_bytes_max": 65_536}
HEAD = b"\x00\x00\x00\x01\x00\x04test"


def request(key: int, version: int, body: bytes) -> bytes:
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + HEAD + body


def test_every_request_of_the_table_has_a_handler() -> None:
    async def scenario(world: KafkaWorld) -> None:
        assert world.listener._handlers.keys() == {api.key for api in apis.APIS}

    run(scenario)


def test_an_unknown_version_of_the_table_is_answered_with_the_oldest() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.send_frame(request(18, 99, b""))
        source = Input(await client.frame())
        assert source.take(4) == b"\x00\x00\x00\x01"
        found = response_reader(apis.API_VERSIONS, 0)(source)
        assert found["error_code"] == ErrorCode.UNSUPPORTED_VERSION
        for version in range(apis.API_VERSIONS.last + 1):
            body = {"client_software_name": "a", "client_software_version": "1"}
            answer = await client.ask(apis.API_VERSIONS, body, version)
            assert {row["api_key"] for row in answer["api_keys"]} == {one.key for one in apis.APIS}

    run(scenario)


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xff" + request(18, 0, b""),
        b"\xff\xff\xff\xff" + request(18, 0, b""),
        b"\x00\x00\x00\x00" + bytes(8),
        b"\x00\x00\x00\x07" + bytes(8),
        # More than any request but Produce may have.
        b"\x00\x20\x00\x00" + request(3, 1, b""),
        # The name of the client is cut short, or its length is negative.
        b"\x00\x00\x00\x0a" + b"\x00\x12\x00\x00\x00\x00\x00\x01\x7f\xff",
        b"\x00\x00\x00\x0a" + b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xf0",
    ],
    ids=itertools.count(),
)
def test_frames_that_are_no_requests_end_the_connection(data: bytes) -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.send_bytes(data)
        assert await client.is_closed()
        assert world.metric("connections_closed_total", reason="malformed") == 1
        assert (
            world.listener._server.budget._free
            == world.listener._server.config.kafka_memory_bytes_max // 2
        )

    run(scenario)


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (99, 0, b""),
        (0, 2, b""),
        (1, 13, b""),
        (3, 1, b"\x7f\xff\xff\xff"),
        (3, 1, b"\xff\xff\xff\xfe"),
        (3, 1, b"\x00\x00\x00\x01\xff\xfe"),
        (3, 1, b"\x00\x00\x00\x01\x00\x02\xff\xff"),
        (3, 1, b"\x00\x00\x00\x00left over"),
        # The lengths that make others ask for gigabytes.
        (3, 12, b"\x00\xff\xff\xff\xff\x0f"),
        (3, 12, b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (3, 12, b"\x00\x02" + bytes(16) + b"\xff\xff\xff\xff\x0f"),
        (3, 12, b"\x00\x01\x01\x00\xff\xff\xff\xff\x0f"),
        (3, 12, b"\xff\xff\xff\xff\x0f"),
        (0, 8, b"\xff\xff\xff\xff\x00\x00\x03\xe8\x7f\xff\xff\xff"),
        (0, 9, b"\x00\x00\xff\xff\x00\x00\x03\xe8\xff\xff\xff\xff\x0f"),
    ],
    ids=itertools.count(),
)
def test_requests_that_cannot_be_read_end_the_connection(
    key: int, version: int, body: bytes
) -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.send_frame(request(key, version, body))
        assert await client.is_closed()
        assert world.metric("connections_closed_total", reason="malformed") == 1
        other = await world.connect()
        assert (await other.ask(apis.API_VERSIONS, {}))["api_keys"]

    run(scenario)


def test_damaged_requests_do_no_harm() -> None:
    async def scenario(world: KafkaWorld) -> None:
        random = Random(5)
        client = await world.connect()
        kept: list[bytes] = []
        client.send_frame = kept.append  # type: ignore[assignment, method-assign]
        for version in range(3, 13):
            client.tell(apis.PRODUCE, produce(batch(b"a"), batch(b"b")), version)
        for version in range(4, 13):
            client.tell(apis.FETCH, fetch(), version)
        for version in range(13):
            client.tell(apis.METADATA, {"topics": [{"name": "t"}]}, version)
        for _ in range(400):
            frame = bytearray(random.choice(kept))
            for _ in range(random.randint(1, 4)):
                frame[random.randrange(4, len(frame))] = random.randrange(256)
            other = await world.connect()
            other.send_frame(bytes(frame[: random.randint(8, len(frame))]))
            other._writer.write_eof()
            await other.is_closed()
        assert not world.metric("connections_closed_total", reason="failed")
        await until(lambda: world.metric("connections") <= 1)
        assert (
            world.listener._server.budget._free
            == world.listener._server.config.kafka_memory_bytes_max // 2
        )

    run(scenario)


def test_a_request_that_does_not_come_to_its_end_ends_the_connection() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.send_bytes(b"\x00\x00\x01\x00" + request(18, 0, b""))
        assert await client.is_closed()
        assert world.metric("connections_closed_total", reason="slow") == 1

    run(scenario, {"kafka_request_timeout_ms": 50})


def test_there_are_no_more_connections_than_allowed() -> None:
    async def scenario(world: KafkaWorld) -> None:
        first = await world.connect()
        assert (await first.ask(apis.API_VERSIONS, {}))["api_keys"]
        second = await world.connect()
        assert await second.is_closed()
        assert world.metric("connections_closed_total", reason="too_many") == 1
        first.close()
        await until(lambda: not world.metric("connections"))
        third = await world.connect()
        assert (await third.ask(apis.API_VERSIONS, {}))["api_keys"]

    run(scenario, {"kafka_connections_max": 1})


def test_large_requests_wait_for_memory() -> None:
    async def scenario(world: KafkaWorld) -> None:
        world.stall()
        clients = [await world.connect() for _ in range(4)]
        for client in clients:
            client.tell(apis.PRODUCE, produce(batch(bytes(60_000))))
        # Two of them take all that there is; the others wait in the network.
        await until(lambda: world.partition().log.end_offset == 2)
        await until(lambda: len(world.listener._server.budget._waiting) == 2)
        assert world.partition().log.end_offset == 2
        await world.go_on()
        found = [produced(await client.answer()) for client in clients]
        assert sorted(offset for ((_, offset),) in found) == [0, 1, 2, 3]

    run(
        scenario,
        {
            "kafka_request_bytes_max": 65_536,
            "kafka_fetch_bytes_max": 65_536,
            "kafka_memory_bytes_max": 262_144,
        },
    )


def test_requests_that_wait_for_answers_do_not_wait_for_each_other() -> None:
    async def scenario(world: KafkaWorld) -> None:
        clients = [await world.connect() for _ in range(6)]
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        # Each takes a third of the memory of requests, and asks for all of that of answers.
        body = {**fetch(), "topics": [{"topic": "t", "partitions": [row] * 600}]}
        for client in clients:
            client.tell(apis.FETCH, body)
        for client in clients:
            assert len(fetched(await client.answer())) == 600

    run(
        scenario,
        {
            "kafka_request_bytes_max": 65_536,
            "kafka_fetch_bytes_max": 65_536,
            "kafka_memory_bytes_max": 131_072,
        },
    )


def test_a_fetch_without_a_place_to_wait_is_answered_and_its_connection_rests() -> None:
    async def scenario(world: KafkaWorld) -> None:
        small, large = await world.connect(), await world.connect()
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        waits = {**fetch(max_wait=50_000, min_bytes=1)}
        small.tell(apis.FETCH, waits)
        await until(lambda: world.metric("parked_fetches") == 1)
        many = {**waits, "topics": [{"topic": "t", "partitions": [row] * 600}]}
        answer = await large.ask(apis.FETCH, many)
        assert answer["throttle_time"] > 0
        assert world.metric("parked_fetches") == 1
        await large.ask(apis.PRODUCE, produce(batch(b"a")))
        assert fetched(await small.answer())[0]["records"]
        assert not world.listener.parking._of_principal

    run(scenario, {"kafka_memory_bytes_max": 1 << 20, **SMALL})


def test_a_client_that_goes_while_its_fetch_waits_leaves_nothing() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.tell(apis.FETCH, fetch(max_wait=50_000, min_bytes=1))
        await until(lambda: world.metric("parked_fetches"))
        client.close()
        await until(lambda: not world.metric("parked_fetches"))
        assert not world.partition().log._waiting
        assert not world.shard._waiting

    run(scenario)


def test_requests_that_have_not_begun_are_dropped_with_the_connection() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.tell(apis.FETCH, fetch(max_wait=50_000, min_bytes=1))
        client.tell(apis.PRODUCE, produce(batch(b"late")))
        await until(lambda: world.metric("parked_fetches"))
        client.close()
        await until(lambda: not world.metric("connections"))
        assert world.partition().log.end_offset == 0

    run(scenario)
