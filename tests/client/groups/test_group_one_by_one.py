"""Members of groups that receive and acknowledge message by message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.fakes import FakeCluster, run
from tests.virtual_time import time_passes
from tests.waiting import turns, until

from magnetar import Client, GroupConsumer, IllegalGeneration, Message, TopicPartition

GROUP = "g"
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def orders(cluster: FakeCluster, count: int = 9) -> None:
    """A partition with a single batch of so many messages."""
    cluster.topic("orders")
    cluster.publish("orders", [b"%d" % n for n in range(count)])


async def join(client: Client, **options: Any) -> GroupConsumer:
    return await client.consumer_group(GROUP, "orders", initial_position="earliest", **options)


async def some(consumer: GroupConsumer, count: int) -> list[Message]:
    return [await consumer.receive(timeout_s=1) for _ in range(count)]


async def has_two(cluster: FakeCluster, consumer: GroupConsumer) -> list[Message]:
    """All messages of the partition that is revoked soon, then some of the other one's batch."""
    cluster.publish("orders", [b"x"] * 9, P1.partition)
    cluster.dispatch()
    messages = await some(consumer, 9)
    cluster.publish("orders", [b"x"] * 9, P0.partition)
    cluster.dispatch()
    return messages + await some(consumer, 3)


def test_a_receive_from_one_partition_releases_another_one() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("orders", 2)
        one = await join(client)
        messages = await has_two(cluster, one)
        other = await join(client)
        await until(lambda: one.assignment == (P0,))
        assert not other.assignment
        # It has finished with the messages before, which it has not acknowledged.
        following = await one.receive(timeout_s=1)
        assert (following.partition, following.offset) == (0, 3)
        await until(lambda: other.assignment == (P1,))
        with pytest.raises(IllegalGeneration):
            one.ack_nowait(messages[0])
        one.ack_nowait(following)

    run(test)


def test_a_lost_partition_takes_no_ack_of_the_message_behind_the_last_one() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        lost: list[TopicPartition] = []
        consumer = await join(client, on_lost=lost.extend)
        messages = await some(consumer, 5)
        consumer.ack_nowait(messages[0])
        consumer.ack_nowait(messages[1])
        cluster.take_away(GROUP, P0)
        await until(lambda: lost == [P0])
        with pytest.raises(IllegalGeneration):
            consumer.ack_nowait(messages[2])
        await until(lambda: consumer.assignment == (P0,))
        with pytest.raises(IllegalGeneration):
            consumer.ack_nowait(messages[2])
        again = await some(consumer, 3)
        assert [one.offset for one in again] in ([0, 1, 2], [2, 3, 4])
        with pytest.raises(IllegalGeneration):
            consumer.ack_nowait(messages[2])
        consumer.ack_nowait(again[0])

    run(test)


def test_what_a_callback_raises_comes_before_the_rest_of_a_batch() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("orders", 2)
        cluster.publish("orders", [b"x"] * 9, P0.partition)
        raises, called = asyncio.Event(), asyncio.Event()

        async def on_assigned(places: list[TopicPartition]) -> None:
            if places == [P1]:
                called.set()
                await raises.wait()
                raise ZeroDivisionError

        one = await join(client, on_assigned=on_assigned)
        await until(lambda: len(one.assignment) == 2)
        other = await join(client)
        await until(lambda: other.assignment == (P1,))
        await other.close()
        await called.wait()
        assert [message.offset for message in await some(one, 3)] == [0, 1, 2]
        raises.set()
        await turns()
        with pytest.raises(ZeroDivisionError):
            await one.receive(timeout_s=1)
        assert (await one.receive(timeout_s=1)).offset == 3

    run(test)


def test_who_receives_one_by_one_stays_a_member() -> None:
    """KIP-62: max.poll.interval.ms counts from the last poll, whichever way the SDK took."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, count=200)
        consumer = await join(client, max_poll_interval_s=0.03)
        # Each time less than the interval, in all much more.
        for offset in range(40):
            assert (await consumer.receive(timeout_s=1)).offset == offset
            await time_passes(0.02)
        assert consumer.assignment == (P0,)
        assert len(cluster.play.commands("join_group")) == 1
        await until(lambda: not cluster.groups[GROUP].members)

    run(test)


def test_the_last_of_many_fast_receives_counts() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, count=200)
        consumer = await join(client, max_poll_interval_s=0.1)
        for _ in range(5):
            for _ in range(4):
                await consumer.receive(timeout_s=1)
                await time_passes(0.002)
            await time_passes(0.095)
        assert consumer.assignment == (P0,)
        assert len(cluster.play.commands("join_group")) == 1

    run(test)
