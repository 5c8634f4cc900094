"""Consumers whose messages are received and acknowledged one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.fakes import FakeCluster, run
from tests.playbook import HOLD
from tests.virtual_time import time_passes
from tests.waiting import until

from magnetar import Client, ClientClosed, DataLoss, Gone, Message
from magnetar_core.errors import LogUnavailable


async def consumer_of(cluster: FakeCluster, client: Client, count: int, **options: Any) -> Any:
    """A consumer of a partition whose first batch has so many messages."""
    cluster.topic("flights")
    cluster.publish("flights", [b"%d" % n for n in range(count)])
    return await client.subscribe("flights", "s", initial_position="earliest", **options)


async def some(consumer: Any, count: int) -> list[Message]:
    return [await consumer.receive(timeout_s=1) for _ in range(count)]


def test_a_loop_gets_each_message_once_in_order_and_its_acks_are_one_range() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 300)
        offsets = []
        async for message in consumer:
            assert message.value == b"%d" % message.offset
            offsets.append(message.offset)
            consumer.ack_nowait(message)
            if len(offsets) == 300:
                break
        assert offsets == list(range(300))
        # Nobody flushes: the acks leave by themselves.
        await until(lambda: cluster.cursors["flights", "s", 0].acked == set(range(300)))
        ranges = [
            (one.first, one.last) for ack in cluster.play.commands("ack") for one in ack.ranges
        ]
        assert ranges == [(0, 299)]

    run(test)


def test_acks_without_linger_leave_with_the_turn_of_the_event_loop() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 6, ack_linger_ms=0)
        for message in await some(consumer, 3):
            consumer.ack_nowait(message)
        await cluster.play.came("ack", 1)
        for message in await some(consumer, 3):
            consumer.ack_nowait(message)
        await until(lambda: cluster.cursors["flights", "s", 0].acked == set(range(6)))
        assert len(cluster.play.commands("ack")) == 2

    run(test)


def test_acks_while_others_are_under_way_follow_them() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 9, ack_linger_ms=0)
        cluster.play.when("ack").once(HOLD)
        messages = await some(consumer, 9)
        consumer.ack_nowait(messages[0])
        await cluster.play.holds(1)
        for message in messages[1:]:
            consumer.ack_nowait(message)
        cluster.play.release()
        await consumer.flush_acks()
        assert cluster.cursors["flights", "s", 0].acked == set(range(9))
        assert len(cluster.play.commands("ack")) == 2

    run(test)


def test_acks_out_of_order_count_as_well() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 8)
        messages = await some(consumer, 8)
        for place in (3, 4, 5, 4, 0, 1, 7):
            consumer.ack_nowait(messages[place])
        await consumer.flush_acks()
        assert cluster.cursors["flights", "s", 0].acked == {0, 1, 3, 4, 5, 7}

    run(test)


def test_after_a_break_what_was_received_comes_no_more_and_the_rest_does() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 10)
        messages = await some(consumer, 4)
        cluster.net.break_links()
        await until(lambda: len(cluster.play.commands("subscribe")) == 2)
        messages += await some(consumer, 6)
        assert [one.offset for one in messages] == list(range(10))
        with pytest.raises(TimeoutError):
            await consumer.receive(timeout_s=0.01)
        for message in messages:
            consumer.ack_nowait(message)
        await consumer.flush_acks()
        assert cluster.cursors["flights", "s", 0].acked == set(range(10))

    run(test)


def test_a_seek_takes_back_what_would_have_come_next() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 10)
        messages = await some(consumer, 3)
        consumer.ack_nowait(messages[0])
        await consumer.flush_acks()
        await consumer.seek(offset=1)
        again = await some(consumer, 9)
        assert [one.offset for one in again] == list(range(1, 10))

    run(test)


def test_what_is_given_back_in_the_middle_comes_again() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 6, nack_delay_ms=0)
        messages = await some(consumer, 4)
        consumer.ack_nowait(messages[0])
        consumer.ack_nowait(messages[1])
        consumer.nack_many(messages)
        await time_passes(0.05)
        offsets = [one.offset for one in await some(consumer, 4)]
        assert sorted(offsets) == [2, 3, 4, 5]
        # It has been acknowledged since, and before that it was given back.
        await consumer.flush_acks()
        assert cluster.cursors["flights", "s", 0].acked == {0, 1}

    run(test)


def test_an_ack_of_an_old_copy_takes_the_new_one_out_of_the_queue() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 3, nack_delay_ms=0)
        old = await some(consumer, 3)
        consumer.nack_many(old[1:])
        await until(lambda: cluster.play.commands("nack") != [])
        await time_passes(0.05)
        for message in old:
            consumer.ack_nowait(message)
        with pytest.raises(TimeoutError):
            await consumer.receive(timeout_s=0.01)
        await consumer.flush_acks()
        assert cluster.cursors["flights", "s", 0].acked == {0, 1, 2}

    run(test)


def test_a_cumulative_ack_covers_what_was_received_the_short_way() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 10)
        messages = await some(consumer, 7)
        async with client.transaction() as txn:
            await consumer.ack_cumulative(messages[4], txn=txn)
        assert cluster.cursors["flights", "s", 0].acked == set(range(5))
        await consumer.ack_cumulative(messages[6])
        assert cluster.cursors["flights", "s", 0].acked == set(range(7))

    run(test)


def test_an_ack_that_fails_is_told_by_flush_acks() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 5)
        cluster.play.when("ack").once(DataLoss("the cursor is damaged"))
        for message in await some(consumer, 5):
            consumer.ack_nowait(message)
        with pytest.raises(DataLoss):
            await consumer.flush_acks()
        await consumer.flush_acks()

    run(test)


def test_a_closed_consumer_has_no_more_messages_and_takes_no_more_acks() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 10)
        messages = await some(consumer, 4)
        consumer.ack_nowait(messages[0])
        consumer.ack_nowait(messages[1])
        closing = asyncio.create_task(consumer.close())
        await until(lambda: consumer.work._closed)
        with pytest.raises(ClientClosed):
            await consumer.receive()
        with pytest.raises(ClientClosed):
            consumer.ack_nowait(messages[2])
        await closing
        assert [message async for message in consumer] == []
        # What was acknowledged before is confirmed.
        assert cluster.cursors["flights", "s", 0].acked == {0, 1}

    run(test)


def test_what_arrives_comes_behind_the_rest_of_the_batch() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 5)
        messages = await some(consumer, 2)
        cluster.publish("flights", [b"more"])
        cluster.dispatch()
        await time_passes(0.01)
        messages += await some(consumer, 4)
        assert [message.offset for message in messages] == list(range(6))

    run(test)


def test_a_batch_that_is_received_in_both_ways() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 12)
        offsets = [one.offset for one in await some(consumer, 3)]
        (piece,) = await consumer.receive_columns(4)
        offsets += [one.offset for one in piece]
        offsets += [one.offset for one in await some(consumer, 2)]
        offsets += [one.offset for one in await consumer.receive_batch()]
        assert offsets == list(range(12))

    run(test)


def test_what_ends_a_subscription_is_raised_by_the_next_receive() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 4)
        await some(consumer, 2)
        cluster.close_consumers(Gone("deleted"))
        await until(lambda: consumer.work._order[0].failure is not None)
        with pytest.raises(Gone):
            await consumer.receive()

    run(test)


def test_others_have_their_turn_while_a_loop_finds_messages() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 2_000, receiver_queue_messages=4_000)
        turned = asyncio.Event()
        first = await consumer.receive()
        asyncio.get_running_loop().call_soon(turned.set)
        offset = first.offset
        while not turned.is_set():
            offset = (await consumer.receive()).offset
        assert offset < 1_999

    run(test)


def test_a_retriable_refusal_of_acks_leaves_none_behind() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await consumer_of(cluster, client, 20)
        cluster.play.when("ack").once(LogUnavailable("later"))
        for message in await some(consumer, 20):
            consumer.ack_nowait(message)
        await consumer.flush_acks()
        assert cluster.cursors["flights", "s", 0].acked == set(range(20))

    run(test)
