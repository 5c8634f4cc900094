"""Messages that are sent in parts: whole or not at all, for every kind of reader."""

from __future__ import annotations

import asyncio
import hashlib
from random import Random
from typing import Any

import pytest
from tests.system.processes import Servers
from tests.system.programs import run
from tests.waiting import until

import magnetar
from magnetar import Client, Consumer, DeadLetterPolicy, Message
from magnetar.enums import SubscriptionTypeName

# Parts of so many bytes, so that a test needs no large ones.
SMALL: dict[str, Any] = {"batch_bytes_max": 500, "whole_bytes_max": 1_000}


def large(number: int, size: int = 8_000) -> bytes:
    return Random(number).randbytes(size)


async def received(consumer: Consumer, count: int) -> list[Message]:
    async with asyncio.timeout(10):
        return [await consumer.receive() for _ in range(count)]


def test_a_message_beyond_every_limit_of_a_batch_arrives(servers: Servers) -> None:
    """PIP-31, Atomic Produce: beyond the 5 MB limit."""
    value = large(1, 24 << 20)

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            consumer = await client.subscribe(
                "t", "s", initial_position="earliest", receiver_queue_bytes=2 << 20
            )
            producer = await client.create_producer("t", codec="zstd")
            await producer.send(b"before")
            sent = await producer.send(value, b"key", properties={"a": "b"}, event_time_ms=7)
            assert isinstance(sent, magnetar.TxnSend)
            await producer.send(b"after")
            before, message, after = await received(consumer, 3)
            assert (before.value, after.value) == (b"before", b"after")
            assert hashlib.sha256(message.value).digest() == hashlib.sha256(value).digest()
            assert (message.key, message.properties) == (b"key", {"a": "b"})
            assert (message.event_time_ms, message.offset) == (7, 1)
            assert after.offset == message.last_offset + 1 > 20
            await consumer.ack(message)
            (found,) = [one async for one in client.read("t", start=1, end=2)]
            assert found.value == value
            assert [one.value async for one in client.read("t", start=2)] == [b"after"]
            described = await client.admin.topics.describe("t")
            assert described.partitions[0].subscriptions[0].backlog == 2

    run(program())


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover"])
def test_each_goes_to_one_consumer_whole(servers: Servers, kind: SubscriptionTypeName) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            producer = await client.create_producer("t", **SMALL)
            consumers = [
                await client.subscribe(
                    "t",
                    "s",
                    type=kind,
                    initial_position="earliest",
                    receiver_queue_messages=3,
                    receiver_queue_bytes=1_500,
                )
                for _ in range(1 if kind == "exclusive" else 3)
            ]
            seen: list[bytes] = []

            async def consume(consumer: Consumer, random: Random) -> None:
                while True:
                    message = await consumer.receive()
                    if random.random() < 0.2:
                        consumer.nack(message, delay_s=0)
                        continue
                    await consumer.ack(message if random.random() < 0.5 else message.message_id)
                    seen.append(message.value)

            tasks = [
                asyncio.create_task(consume(one, Random(number)))
                for number, one in enumerate(consumers)
            ]
            values = [large(number, 3_000 + 700 * (number % 9)) for number in range(40)]
            values += [b"small %d" % number for number in range(40)]
            Random(4).shuffle(values)
            for value in values:
                await producer.enqueue(value)
            await producer.flush()

            def all_are_seen() -> bool:
                for task in tasks:
                    if task.done():
                        task.result()
                return len(seen) >= len(values)

            await until(all_are_seen)
            await settled(client)
            for task in tasks:
                task.cancel()
            assert sorted(seen) == sorted(values)

    run(program())


def test_in_a_transaction_with_its_input(servers: Servers) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("in")
            await client.admin.topics.create("out")
            source = await client.create_producer("in", **SMALL)
            sink = await client.create_producer("out", **SMALL)
            consumer = await client.subscribe("in", "s", initial_position="earliest")
            await source.send_many([large(1), b"x", large(2)])
            for commits in (False, True):
                txn = await client.begin_transaction()
                for message in await received(consumer, 3):
                    await sink.send(message.value, txn=txn)
                    consumer.ack_nowait(message, txn=txn)
                await (txn.commit(wait_finished=True) if commits else txn.abort())
            outputs = [one.value async for one in client.read("out")]
            assert sorted(outputs) == sorted([large(1), b"x", large(2)])
            assert await backlog(client, "in") == 0

    run(program())


def test_a_seek_into_one_skips_the_rest_of_it(servers: Servers) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            producer = await client.create_producer("t", **SMALL)
            consumer = await client.subscribe("t", "s", initial_position="earliest")
            await producer.send_many([large(1), b"x"])
            first, second = await received(consumer, 2)
            await consumer.seek(message_id=first.message_id)
            assert [one.value for one in await received(consumer, 2)] == [large(1), b"x"]
            await consumer.seek(offset=first.offset + 2)
            assert [one.value for one in await received(consumer, 1)] == [b"x"]
            await consumer.ack_cumulative(second)
            await settled(client)

    run(program())


def test_a_dead_letter_moves_whole(servers: Servers) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            producer = await client.create_producer("t", **SMALL)
            consumer = await client.subscribe(
                "t",
                "s",
                initial_position="earliest",
                dead_letter=DeadLetterPolicy(redeliveries_max=1),
            )
            await producer.send(large(1))
            for _ in range(2):
                (message,) = await received(consumer, 1)
                consumer.nack(message, delay_s=0)
            assert await consumer.receive_batch(timeout_s=1) == []
            (moved,) = [one.value async for one in client.read("t-s-DLQ")]
            assert moved == large(1)
            assert await backlog(client) == 0

    run(program())


def test_a_message_that_is_too_large_for_its_reader_says_so(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            producer = await client.create_producer("t", **SMALL)
            await producer.send_many([b"x", large(1, 3_000), large(2, 5_000)])
            # It comes before anything is taken: what is before it must not be lost with it.
            consumer = await client.subscribe(
                "t", "s", initial_position="earliest", message_bytes_max=4_000
            )
            await until(lambda: "message_bytes_max" in caplog.text)
            message, other = await received(consumer, 2)
            assert (message.value, other.value) == (b"x", large(1, 3_000))
            with pytest.raises(magnetar.MessageTooLarge, match="message_bytes_max"):
                await received(consumer, 1)
            await consumer.ack(message)
            await consumer.ack(other)
            described = await client.admin.topics.describe("t")
            (partition,) = described.partitions
            assert (
                partition.subscriptions[0].backlog == partition.end_offset - other.last_offset - 1
            )

    run(program())


async def settled(client: Client) -> None:
    """Wait until everything is acknowledged."""

    async def is_settled() -> bool:
        return not await backlog(client)

    await until(is_settled)


async def backlog(client: Client, topic: str = "t") -> int:
    described = await client.admin.topics.describe(topic)
    return sum(one.backlog for part in described.partitions for one in part.subscriptions)
