"""DeleteRecords: a log may begin inside a batch, or inside a transaction, for every reader."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.harness import end, flow, messages_of, send, subscribe, txn
from tests.kafka_clients.harness import (
    KafkaClient,
    KafkaWorld,
    batch,
    fetch,
    fetched,
    produce,
    run,
)

from magnetar_broker.offline.check import check_broker
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2, topic_pb2
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis
from magnetar_storage.offline.findings import Findings


def deletion(offset: int, *, number: int = 0, topic: str = "t", timeout: int = 5_000) -> Any:
    row = {"partition_index": number, "offset": offset}
    return {"topics": [{"name": topic, "partitions": [row]}], "timeout": timeout}


async def deleted(client: KafkaClient, offset: int, **more: Any) -> tuple[ErrorCode, int]:
    answer = await client.ask(apis.DELETE_RECORDS, deletion(offset, **more))
    ((part,),) = (one["partitions"] for one in answer["topics"])
    return ErrorCode(part["error_code"]), part["low_watermark"]


async def bounds(client: KafkaClient, **more: Any) -> list[int]:
    """First offset, end, and the first offset at or after a time."""
    found = []
    for timestamp in (-2, -1, more.get("time_ms", 0)):
        row = {"partition_index": 0, "timestamp": timestamp}
        body = {"topics": [{"name": "t", "partitions": [row]}]}
        (topic,) = (await client.ask(apis.LIST_OFFSETS, body))["topics"]
        found.append(topic["partitions"][0]["offset"])
    return found


async def filled(world: KafkaWorld) -> KafkaClient:
    """Three batches of three messages each, by a client of Kafka."""
    client = await world.connect()
    for at in range(3):
        values = [b"%d" % (3 * at + place) for place in range(3)]
        await client.ask(apis.PRODUCE, produce(batch(*values, timestamp_ms=1_000 + at)))
    return client


def test_a_log_that_begins_inside_a_batch() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await filled(world)
        partition = world.broker.topics.get("t").hosted[0]
        for version in range(apis.DELETE_RECORDS.last + 1):
            answer = await client.ask(apis.DELETE_RECORDS, deletion(4), version)
            assert answer["topics"][0]["partitions"][0]["low_watermark"] == 4
        assert await bounds(client) == [4, 9, 4]
        (part,) = fetched(await client.ask(apis.FETCH, fetch(3)))
        assert part["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert part["log_start_offset"] == 4
        (part,) = fetched(await client.ask(apis.FETCH, fetch(4)))
        assert (part["error_code"], part["log_start_offset"]) == (ErrorCode.NONE, 4)
        assert part["records"]
        # Of the batch in which it begins, all bytes are still there, and no other row before it.
        assert partition.log.retained_bytes > 0
        await world.restart()
        client = await world.connect()
        assert await bounds(client) == [4, 9, 4]
        # A deletion that moves nothing, and one that goes on from inside.
        assert await deleted(client, 2) == (ErrorCode.NONE, 4)
        assert await deleted(client, 5) == (ErrorCode.NONE, 5)
        assert await deleted(client, 6) == (ErrorCode.NONE, 6)
        assert await deleted(client, -1) == (ErrorCode.NONE, 9)
        assert world.broker.topics.get("t").hosted[0].log.retained_bytes == 0
        assert await bounds(client) == [9, 9, -1]
        await client.ask(apis.PRODUCE, produce(batch(b"more", timestamp_ms=5)))
        assert await bounds(client) == [9, 10, 9]

    run(scenario)


def test_offsets_that_cannot_be_begun_with() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await filled(world)
        assert await deleted(client, 10) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await deleted(client, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await deleted(client, 1, number=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        unknown = await deleted(client, 1, topic="none")
        assert unknown == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await bounds(client) == [0, 9, 0]

    run(scenario)


def test_a_late_copy_deletes_nothing_more() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await filled(world)
        assert await deleted(client, 4) == (ErrorCode.NONE, 4)
        assert await deleted(client, 7) == (ErrorCode.NONE, 7)
        assert await deleted(client, 4) == (ErrorCode.NONE, 7)
        assert await bounds(client) == [7, 9, 7]

    run(scenario)


def test_what_is_being_read_stays_until_it_was_read() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await filled(world)
        log = world.broker.topics.get("t").hosted[0].log
        pin = log.pin(1)
        assert await deleted(client, 7, timeout=50) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert log.first_offset == 0
        log.unpin(pin)
        assert await deleted(client, 7) == (ErrorCode.NONE, 7)

    run(scenario)


def test_retention_goes_on_from_inside_a_batch() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await filled(world)
        await deleted(client, 4)
        await world.client.ask(topic_pb2.CommandAlterTopic(topic="t", retention_ms=1_000))
        await world.client.ask(
            topic_pb2.CommandAlterTopic(topic="t", retain_unconsumed=topic_pb2.NO)
        )
        world.clock.advance(10_000)
        await world.broker._retain()
        log = world.broker.topics.get("t").hosted[0].log
        assert (log.first_offset, log.retained_bytes) == (9, 0)

    run(scenario)


@pytest.mark.parametrize("first", [1, 2, 3, 5])
def test_our_readers_and_subscriptions_begin_there(first: int) -> None:
    async def scenario(world: KafkaWorld) -> None:
        await world.client.ask(subscribe(consumer=1))
        client = await filled(world)
        await deleted(client, first)
        expected = [(offset, b"%d" % offset) for offset in range(first, 9)]
        name = common_pb2.Partition(topic="t", partition=0)
        answer = await world.client.ask(wire.CommandRead(partition=name, start_offset=first))
        assert [one for each in answer.batches for one in messages_of(each)] == expected
        world.client.tell(flow())
        await world.settle()
        assert world.client.messages() == expected
        offsets = await world.client.ask(wire.CommandListOffsets(topic="t"))
        assert offsets.partitions[0].first_offset == first

    run(scenario)


def test_a_log_that_begins_inside_a_transaction() -> None:
    async def scenario(world: KafkaWorld) -> None:
        for number in range(3):
            await world.client.ask(send(b"%d" % number, sequence=number, in_txn=txn(1)))
        await world.client.ask(end(txn(1), counts={1: 3}))
        client = await world.connect()
        assert (await bounds(client))[:2] == [0, 3]
        assert await deleted(client, 2) == (ErrorCode.NONE, 2)
        name = common_pb2.Partition(topic="t", partition=0)
        answer = await world.client.ask(wire.CommandRead(partition=name, start_offset=2))
        assert [one for each in answer.batches for one in messages_of(each)] == [(2, b"2")]
        await world.restart()
        client = await world.connect()
        assert (await bounds(client))[:2] == [2, 3]
        await checked(world)
        assert await deleted(client, -1) == (ErrorCode.NONE, 3)
        await checked(world)

    run(scenario)


async def checked(world: KafkaWorld) -> None:
    """Nothing is wrong with the store, as `magnetar storage check` sees it."""
    findings = Findings()
    await world.settle()
    await check_broker(world.broker._store, findings, lambda *_: None)
    assert findings.kept == []


@pytest.mark.parametrize("first", range(10))
def test_the_store_is_whole_with_any_beginning(first: int) -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await filled(world)
        await deleted(client, first)
        await checked(world)

    run(scenario)
