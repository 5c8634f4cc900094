"""What is opened and closed again and again leaves nothing behind in its client."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from tests.client.fakes import FakeCluster, connect
from tests.playbook import HOLD
from tests.virtual_loop import VirtualLoop
from tests.virtual_time import run, time_passes
from tests.waiting import turns

from magnetar import Client, DeadLetterPolicy

COUNT = 200
# What the client makes beside its own objects, and might keep.
OTHERS = ("Future", "Task", "Handle", "TimerHandle", "Event", "Lock", "partial", "function", "cell")


async def _producer(client: Client) -> None:
    async with await client.create_producer("t") as producer:
        await producer.send(b"x")


async def _consumer(client: Client) -> None:
    async with await client.subscribe("t", "s", initial_position="earliest") as consumer:
        await consumer.ack(await consumer.receive())


async def _consumer_that_acks_in_a_transaction(client: Client) -> None:
    async with (
        await client.subscribe("t", "s", initial_position="earliest") as consumer,
        client.transaction() as txn,
    ):
        await consumer.ack(await consumer.receive(), txn=txn)


async def _consumer_with_dead_letters(client: Client) -> None:
    policy = DeadLetterPolicy(redeliveries_max=1, topic="dead")
    async with await client.subscribe("t", "s", dead_letter=policy):
        pass


async def _consumer_of_a_group(client: Client) -> None:
    async with await client.consumer_group("g", "t", initial_position="earliest") as consumer:
        await consumer.ack(await consumer.receive())


async def _transaction(client: Client) -> None:
    async with await client.create_producer("t") as producer, client.transaction() as txn:
        await producer.send(b"x", txn=txn)


async def _transaction_that_aborts(client: Client) -> None:
    async with await client.create_producer("t") as producer:
        txn = await client.begin_transaction()
        await producer.send(b"x", txn=txn)
        await txn.abort()


async def _lazy_transaction(client: Client) -> None:
    async with await client.create_producer("t") as producer, client.transaction(lazy=True) as txn:
        await producer.send(b"x", txn=txn)


async def _transactional_producer(client: Client) -> None:
    async with client.transactional_producer("id") as producer:
        await producer.init()
        await producer.begin()
        await producer.send("t", b"x")
        await producer.commit()


async def _reading(client: Client) -> None:
    async for _ in client.read("t", 0):
        pass


async def _reading_that_stops(client: Client) -> None:
    pieces = client.read("t", 0, follow_period_s=1)
    await anext(pieces)
    await pieces.aclose()


async def _administration(client: Client) -> None:
    await client.admin.topics.list()


OBJECTS: dict[str, Callable[[Client], Awaitable[None]]] = {
    one.__name__.strip("_").replace("_", " "): one
    for one in (
        _producer,
        _consumer,
        _consumer_that_acks_in_a_transaction,
        _consumer_with_dead_letters,
        _consumer_of_a_group,
        _transaction,
        _transaction_that_aborts,
        _lazy_transaction,
        _transactional_producer,
        _reading,
        _reading_that_stops,
        _administration,
    )
}


async def live_objects() -> Counter[str]:
    """Count the objects that are alive, by type, when what is cancelled had time to end."""
    await time_passes(60)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    # It knows tasks that have ended until it looks at them.
    loop.check_tasks()
    gc.collect()
    return Counter(
        repr(kind)
        for kind in map(type, gc.get_objects())
        if repr(kind).startswith("<class 'magnetar.") or kind.__name__ in OTHERS
    )


@pytest.mark.parametrize("name", OBJECTS)
def test_a_closed_object_leaves_nothing_behind(name: str) -> None:
    """A consumer left 13 KB on its link, until the link broke."""
    open_and_close = OBJECTS[name]

    async def test(cluster: FakeCluster, client: Client) -> None:
        await client.admin.topics.create("t")
        cluster.publish("t", [b"x"] * (2 * COUNT + 20))
        for _ in range(10):
            await open_and_close(client)
        before = await live_objects()
        for _ in range(COUNT):
            await open_and_close(client)
        after = await live_objects()
        assert after - before == Counter()

    async def scenario() -> None:
        cluster = FakeCluster()
        async with await connect(cluster) as client:
            await test(cluster, client)

    run(scenario())


def test_a_second_close_ends_with_the_first() -> None:
    """It returned at once, and the program ended the event loop on which the first one flushed."""

    async def scenario() -> None:
        cluster = FakeCluster()
        client = await connect(cluster)
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        cluster.play.when("send").always(HOLD)
        producer.send_nowait(b"x")
        closing = [asyncio.create_task(client.close()) for _ in range(2)]
        await cluster.play.holds(1)
        await turns()
        assert not any(one.done() for one in closing)
        cluster.play.release()
        await closing[1]
        assert partition.messages == [b"x"]
        assert not cluster.net.links
        await closing[0]

    run(scenario())
