"""Messages without a value, and messages whose key is empty, from a producer to a consumer."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import pytest
from tests.client.fakes import FakeCluster, run
from tests.waiting import until

from magnetar import Batching, Client, DeadLetterPolicy, Message, Output, process
from magnetar.message import ReceivedBatch
from magnetar.messaging.receiving.assembly import Assembly
from magnetar.messaging.sending.batching import partition_of_key
from magnetar_core.batch import Codec, encode, encoded_properties, split
from magnetar_core.errors import InvalidArgument
from magnetar_core.wire import broker_pb2

Content = tuple[bytes | None, bytes | None]

SENT: list[Content] = [
    (b"v", b"k"),
    (None, b"k"),
    (b"", b"k"),
    (None, None),
    (b"v", b""),
    (None, b""),
    (b"v", None),
]


def content(message: Message) -> Content:
    return message.value_or_none, message.key


async def consumed(client: Client, count: int, **settings: Any) -> list[Message]:
    consumer = await client.subscribe("t", "s", initial_position="earliest", **settings)
    found = [await consumer.receive() for _ in range(count)]
    for one in found:
        await consumer.ack(one)
    return found


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("batching", list(Batching))
@pytest.mark.parametrize("together", [False, True])
def test_what_is_absent_is_not_what_is_empty(
    codec: Codec, batching: Batching, together: bool
) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t", codec=codec, batching=batching, linger_ms=20)
        if together:
            await producer.send_many(*map(list, zip(*SENT, strict=True)))
        else:
            for value, key in SENT:
                await producer.enqueue(value, key)
        await producer.flush()
        found = list(map(content, await consumed(client, len(SENT))))
        # By key, those with an empty key and those without one share a batch.
        assert sorted(found, key=repr) == sorted(SENT, key=repr)
        if batching is Batching.MIXED:
            assert found == SENT

    run(test)


@pytest.mark.parametrize("way", ["send", "enqueue", "send_nowait", "in a transaction"])
def test_each_way_to_send_takes_a_message_without_a_value(way: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t", linger_ms=0)
        if way == "send":
            await producer.send(None, b"k")
        elif way == "enqueue":
            await producer.enqueue(b"first")
            await producer.enqueue(None)
        elif way == "send_nowait":
            producer.send_nowait(b"first")
            producer.send_nowait(None)
        else:
            async with client.transaction() as txn:
                await producer.enqueue(b"first", txn=txn)
                await txn.send("t", None)
        await producer.flush()
        expected = [(None, b"k")] if way == "send" else [(b"first", None), (None, None)]
        found = await consumed(client, len(expected))
        assert [content(one) for one in found] == expected

    run(test)


def test_value_refuses_to_stand_for_what_is_absent() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t", linger_ms=20)
        for value in (b"a", None, b"c"):
            producer.send_nowait(value, b"k")
        await producer.flush()
        first, second, third = await consumed(client, 3)
        assert (first.value, third.value) == (b"a", b"c")
        with pytest.raises(InvalidArgument, match=r"offset 1 of partition 0 of t has no value"):
            _ = second.value
        assert repr(second).endswith("no value>")
        assert repr(first).endswith("1 bytes>")
        for copied in (copy.deepcopy(second), pickle.loads(pickle.dumps(second))):
            assert content(copied) == (None, b"k")
        pieces = [one async for one in client.read_columns("t", 0)]
        assert [value for one in pieces for value in one.values_or_none()] == [b"a", None, b"c"]
        assert pieces[0].keys() == [b"k"] * 3
        with pytest.raises(InvalidArgument, match="message 1"):
            pieces[0].values()

    run(test)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_message_without_a_value_in_parts(codec: Codec) -> None:
    key = bytes(1_000)
    whole = encode([None], [key], properties=[encoded_properties({"why": "gone"})], codec=codec)
    assembly = Assembly(2_000)
    for offset, part in enumerate(split(whole, 30)):
        wire = broker_pb2.DeliveredBatch(entry_id=offset, num_messages=1, batch=part)
        found, cut = assembly.add(ReceivedBatch("t", 0, 1, wire))
        assert not cut
    assert found is not None
    message = Message(found, 0)
    assert content(message) == (None, key)
    assert message.properties == {"why": "gone"}


def test_an_empty_key_chooses_its_partition_and_no_key_does_not() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        partitions = cluster.topic("t", 4)
        producer = await client.create_producer("t", batch_messages_max=2)
        await producer.send_many([b"e"] * 8 + [b"n"] * 8, [b""] * 8 + [None] * 8)
        await producer.flush()
        counts = [one.messages.count(b"e") for one in partitions]
        assert counts == [8 * (number == partition_of_key(b"", 4)) for number in range(4)]
        assert sum(one.messages.count(b"n") for one in partitions) == 8

    run(test)


@pytest.mark.parametrize("values", [[b"a", None], [None, None]])
def test_sizes_of_many_are_checked_without_what_is_absent(values: list[bytes | None]) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t", batch_bytes_max=100)
        await producer.send_many(values, [None, b"k" * 150])
        await producer.flush()
        found = await consumed(client, 2)
        assert [content(one) for one in found] == list(zip(values, [None, b"k" * 150], strict=True))

    run(test)


def test_a_dead_letter_without_a_value_stays_without_one() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        await producer.send(None, b"k")
        consumer = await client.subscribe(
            "t",
            "s",
            initial_position="earliest",
            nack_delay_ms=1,
            dead_letter=DeadLetterPolicy(redeliveries_max=1),
        )
        for _ in range(2):
            consumer.nack(await consumer.receive())
        moving = asyncio.create_task(consumer.receive())
        dead = await client.subscribe("t-s-DLQ", "look", initial_position="earliest")
        assert content(await dead.receive()) == (None, b"k")
        moving.cancel()

    run(test)


def test_a_transform_that_does_not_know_of_tombstones_leaves_them_to_dead_letters() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        (out,) = cluster.topic("out")
        cluster.topic("dead")
        producer = await client.create_producer("t")
        await producer.send_many([b"a", None, b"b"], [b"k"] * 3)
        await producer.flush()
        consumer = await client.consumer_group("g", "t", initial_position="earliest")
        stop = asyncio.Event()

        def transform(message: Message) -> list[Output]:
            return [Output("out", message.value), Output("out", message.value_or_none, b"")]

        working = asyncio.create_task(
            process(
                consumer,
                transform,
                client.transactional_producer(),
                attempts_max=1,
                dead_letter="dead",
                stop=stop,
            )
        )
        await until(lambda: len(out.messages) >= 4 or working.done())
        stop.set()
        assert (await working).dead_lettered == 1
        assert out.messages == [b"a", b"a", b"b", b"b"]
        (letter,) = [one async for one in client.read("dead")]
        assert content(letter) == (None, b"k")
        assert "no value" in letter.properties["magnetar-dead-letter-reason"]

    run(test)
