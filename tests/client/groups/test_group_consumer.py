"""Consumers of a group: docs/design/0003-groups.md, The client."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from tests.client.fakes import FAST, FakeCluster, connect, run
from tests.virtual_time import time_passes
from tests.waiting import for_ever, until

from magnetar import (
    Client,
    ClientClosed,
    FencedInstance,
    GroupConsumer,
    IllegalGeneration,
    InvalidTxnState,
    Message,
    TopicNotFound,
    TopicPartition,
    TransactionConflict,
    TransactionStatus,
    offsets,
)
from magnetar_core.errors import InvalidArgument, LogUnavailable
from magnetar_core.wire import broker_pb2

GROUP = "g"
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def orders(cluster: FakeCluster, partitions: int = 2, count: int = 3) -> None:
    cluster.topic("orders", partitions)
    for partition in range(partitions):
        for n in range(count):
            cluster.publish("orders", [b"%d-%d" % (partition, n)], partition)


async def join(client: Client, **options: Any) -> GroupConsumer:
    options.setdefault("topics", "orders")
    options.setdefault("initial_position", "earliest")
    return await client.consumer_group(GROUP, **options)


async def gather(consumer: GroupConsumer, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        batch = await consumer.receive_batch(count - len(messages), timeout_s=2)
        assert batch, [message.value for message in messages]
        messages += batch
    return messages


async def all_of_one(cluster: FakeCluster, client: Client) -> None:
    orders(cluster)
    consumer = await join(client)
    assert consumer.generation == 1
    messages = await gather(consumer, 6)
    assert sorted(consumer.assignment) == [P0, P1]
    await consumer.ack_many(messages)
    assert [one.member.generation for one in cluster.play.commands("ack")] == [1, 1]
    assert {one.member.member_id for one in cluster.play.commands("ack")} == {consumer.member_id}
    assert cluster.cursors["orders", GROUP, 0].acked == {0, 1, 2}
    await consumer.close()
    assert len(cluster.play.commands("leave_group")) == 1
    assert not cluster.groups[GROUP].members


def test_a_member_has_all_partitions_and_names_itself_in_its_acks() -> None:
    run(all_of_one)


def test_partitions_are_shared_and_a_departed_members_go_to_the_other() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=4)
        told: list[tuple[str, list[TopicPartition]]] = []
        one = await join(
            client,
            on_assigned=lambda some: told.append(("+", sorted(some))),
            on_revoked=lambda some: told.append(("-", sorted(some))),
        )
        await until(lambda: len(one.assignment) == 4)
        receiving = asyncio.create_task(gather(one, 12))
        await receiving
        await one.ack_many(receiving.result())
        other = await join(client)
        await until(lambda: len(other.assignment) == 2)
        assert len(one.assignment) == 2
        assert not set(one.assignment) & set(other.assignment)
        assert one.generation == other.generation == 2
        await other.close()
        await until(lambda: len(one.assignment) == 4)
        assert told[0] == ("+", [TopicPartition("orders", n) for n in range(4)])
        assert sum(len(some) for sign, some in told if sign == "-") == 2

    run(test)


def test_a_partition_is_released_when_all_of_it_is_acknowledged() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        one = await join(client)
        messages = await gather(one, 6)
        other = await join(client)
        await until(lambda: len(one.assignment) == 1)
        assert not other.assignment
        gone = next(place for place in (P0, P1) if place not in one.assignment)
        mine = [message for message in messages if message.partition == gone.partition]
        await one.ack_many(mine[:2])
        await time_passes(0.02)
        assert not other.assignment
        await one.ack_many(mine[2:])
        await until(lambda: other.assignment == (gone,))
        # What it kept, it can still acknowledge.
        await one.ack_many([message for message in messages if message.partition != gone.partition])

    run(test)


def test_the_next_receive_releases_what_was_not_acknowledged() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        one = await join(client)
        messages = await gather(one, 6)
        other = await join(client)
        await until(lambda: len(one.assignment) == 1)
        assert await one.receive_batch(10, timeout_s=0.001) == []
        await until(lambda: len(other.assignment) == 1)
        (gone,) = other.assignment
        late = [message for message in messages if message.partition == gone.partition]
        with pytest.raises(IllegalGeneration):
            await one.ack(late[0])
        assert not one.has(late[0])
        again = await gather(other, 3)
        assert [one.value for one in again] == [one.value for one in late]
        # Refused here, before anybody was asked.
        assert not cluster.play.commands("ack")

    run(test)


def test_a_transaction_keeps_its_partitions_until_it_has_ended() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        one = await join(client)
        messages = await gather(one, 6)
        txn = await client.begin_transaction()
        await one.ack_many(messages, txn=txn)
        other = await join(client)
        await until(lambda: len(one.assignment) == 1)
        await one.receive_batch(10, timeout_s=0.001)
        await time_passes(0.02)
        assert not other.assignment
        await txn.commit()
        await until(lambda: len(other.assignment) == 1)

    run(test)


def test_a_callback_may_still_acknowledge_what_is_asked_back() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        messages: list[Message] = []

        async def on_revoked(places: list[TopicPartition]) -> None:
            numbers = {place.partition for place in places}
            await one.ack_many([m for m in messages if m.partition in numbers])

        one = await join(client, on_revoked=on_revoked)
        messages += await gather(one, 6)
        other = await join(client)
        receiving = asyncio.create_task(one.receive())
        await until(lambda: len(other.assignment) == 1)
        (gone,) = other.assignment
        assert cluster.cursors["orders", GROUP, gone.partition].acked == {0, 1, 2}
        receiving.cancel()

    run(test)


def test_a_close_that_is_cancelled_in_a_callback_ends_a_waiting_receive() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        revoked = asyncio.Event()

        async def on_revoked(_: list[TopicPartition]) -> None:
            revoked.set()
            await for_ever()

        consumer = await join(client, on_revoked=on_revoked)
        await gather(consumer, 6)
        waiting = asyncio.create_task(consumer.receive())
        closing = asyncio.create_task(consumer.close())
        await revoked.wait()
        assert not waiting.done()
        closing.cancel()
        with pytest.raises(ClientClosed):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await closing

    run(test)


def test_what_a_callback_raises_the_next_receive_raises() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)

        def on_assigned(places: list[TopicPartition]) -> None:
            raise ZeroDivisionError

        consumer = await join(client, on_assigned=on_assigned)
        with pytest.raises(ZeroDivisionError):
            await consumer.receive()
        assert await consumer.receive()

    run(test)


def test_lost_and_got_again_the_messages_of_before_are_void() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        lost: list[TopicPartition] = []
        consumer = await join(client, on_lost=lost.extend)
        before = await gather(consumer, 3)
        said = offsets(before)
        cluster.take_away(GROUP, P0)
        await until(lambda: lost == [P0] and consumer.assignment == (P0,))
        after = await gather(consumer, 3)
        assert [one.value for one in after] == [one.value for one in before]
        with pytest.raises(IllegalGeneration):
            await consumer.ack(before[0])
        with pytest.raises(IllegalGeneration):
            await consumer.ack_offsets(said)
        txn = await client.begin_transaction()
        with pytest.raises(IllegalGeneration):
            await consumer.ack_many(before, txn=txn)
        with pytest.raises(InvalidTxnState):
            await consumer.ack_many(after, txn=txn)
        await txn.abort()
        async with client.transaction() as txn:
            await consumer.ack_offsets(offsets(after), txn=txn)
        assert cluster.play.commands("ack")[-1].member.generation == 2

    run(test)


def test_an_ack_that_the_broker_refuses_means_that_the_partition_is_lost() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        lost: list[TopicPartition] = []
        consumer = await join(client, on_lost=lost.extend)
        messages = await gather(consumer, 3)
        cluster.play.when("ack").always(IllegalGeneration())
        with pytest.raises(IllegalGeneration):
            await consumer.ack(messages[0])
        cluster.play.forget()
        await until(lambda: lost == [P0])
        # The group says that it has it all the same: it begins anew.
        assert len(await gather(consumer, 3)) == 3

    run(test)


def test_one_partitions_refusal_loses_no_other() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        lost: list[TopicPartition] = []
        consumer = await join(client, on_lost=lost.extend)
        messages = await gather(consumer, 6)

        of_the_first = {"subscription": lambda one: one.partition == 0}
        cluster.play.when("ack", **of_the_first).always(IllegalGeneration())
        txn = await client.begin_transaction()
        with pytest.raises(IllegalGeneration):
            await consumer.ack_many(messages, txn=txn)
        await txn.abort()
        await until(lambda: lost)
        assert lost == [P0]

    run(test)


def test_who_is_expelled_joins_again_under_the_same_id() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        lost: list[TopicPartition] = []
        consumer = await join(client, on_lost=lost.extend)
        messages = await gather(consumer, 6)
        cluster.expel(GROUP, consumer.member_id)
        await until(lambda: len(lost) == 2 and len(consumer.assignment) == 2)
        joins = cluster.play.commands("join_group")
        assert len(joins) == 2
        # A late copy of the first one is told from the second by this.
        assert 0 < joins[0].join_epoch < joins[1].join_epoch
        joins[0].join_epoch = joins[1].join_epoch
        assert joins[0] == joins[1]
        with pytest.raises(IllegalGeneration):
            await consumer.ack_many(messages)
        assert len(await gather(consumer, 6)) == 6

    run(test)


def test_a_broker_that_is_away_costs_no_membership() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        lost: list[TopicPartition] = []
        consumer = await join(client, on_lost=lost.extend)
        messages = await gather(consumer, 6)
        cluster.net.is_reachable = False
        cluster.net.break_links()
        await time_passes(0.05)
        cluster.net.is_reachable = True
        await consumer.ack_many(messages)
        beats = len(cluster.play.commands("group_heartbeat"))
        await until(lambda: len(cluster.play.commands("group_heartbeat")) > beats)
        assert not lost
        assert len(cluster.play.commands("join_group")) == 1
        assert cluster.cursors["orders", GROUP, 0].acked == {0, 1, 2}

    run(test)


def test_who_has_the_same_instance_id_takes_its_place() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        one = await join(client, instance_id="worker-1")
        messages = await gather(one, 6)
        other = await join(client, instance_id="worker-1")
        assert len(await gather(other, 6)) == 6
        for call in (
            lambda: one.receive(),
            lambda: one.ack(messages[0]),
            lambda: one.joined(),
        ):
            await until(lambda: one.generation == 0)
            with pytest.raises(FencedInstance):
                await call()
        # A static one stays a member when it closes, unless it says otherwise.
        await other.close()
        assert other.member_id in cluster.groups[GROUP].members
        third = await join(client, instance_id="worker-1")
        await third.close(leave=True)
        assert not cluster.groups[GROUP].members

    run(test)


def test_an_application_that_does_not_receive_leaves_and_comes_back() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        lost: list[TopicPartition] = []
        consumer = await join(client, max_poll_interval_s=0.03, on_lost=lost.extend)
        messages = await gather(consumer, 6)
        await until(lambda: not cluster.groups[GROUP].members)
        await until(lambda: len(lost) == 2)
        assert consumer.assignment == ()
        with pytest.raises(IllegalGeneration):
            await consumer.ack_many(messages)
        joins = len(cluster.play.commands("join_group"))
        assert joins == 1
        again = await gather(consumer, 6)
        await consumer.ack_many(again)
        assert len(cluster.play.commands("join_group")) == 2

    run(test)


def test_an_owner_that_waits_shows_it() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        first = await join(client)
        await first.close()
        cluster.groups[GROUP].waiting.add(P0)
        consumer = await join(client)
        await until(lambda: consumer.waiting_partitions == (P0,))
        assert await consumer.receive_batch(10, timeout_s=0.01) == []
        cluster.tell_waiting(GROUP, P0, waiting=False)
        await until(lambda: consumer.waiting_partitions == ())

    run(test)


def test_several_topics_and_a_pattern() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1, count=1)
        cluster.topic("returns")
        cluster.publish("returns", [b"back"])
        consumer = await join(client, topics=["orders", "returns"], pattern="paid-*")
        messages = await gather(consumer, 2)
        assert {message.topic for message in messages} == {"orders", "returns"}
        with pytest.raises(InvalidArgument, match="names no topic"):
            await consumer.ack(messages[0].message_id)
        await consumer.ack_many(messages)
        assert await consumer.seek(P0, position="earliest") == 0
        assert (await consumer.receive(timeout_s=1)).topic == "orders"
        with pytest.raises(IllegalGeneration):
            await consumer.seek(TopicPartition("orders", 7), offset=0)
        cluster.topic("paid-1")
        cluster.publish("paid-1", [b"new"])
        cluster.rebalance(GROUP)
        assert (await consumer.receive(timeout_s=1)).value == b"new"

    run(test)


def test_a_message_id_is_enough_where_there_is_one_topic() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        consumer = await join(client)
        before = [one.message_id for one in await gather(consumer, 3)]
        await consumer.ack(before[0])
        cluster.take_away(GROUP, P0)
        await until(lambda: consumer.generation == 2)
        with pytest.raises(IllegalGeneration):
            await consumer.ack(before[2])

    run(test)


def test_a_pattern_may_match_nothing() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumer = await join(client, topics=None, pattern="nothing-*")
        assert consumer.generation == 1
        assert await consumer.poll(0.01) == []
        assert consumer.assignment == ()

    run(test)


@pytest.mark.parametrize(
    "options",
    [
        {"topics": None},
        {"topics": []},
        {"topics": ""},
        {"session_timeout_s": 0},
        {"rebalance_timeout_s": -1},
        {"max_poll_interval_s": 0},
        {"initial_position": "middle"},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        with pytest.raises(InvalidArgument):
            await join(client, **options)
        assert not cluster.play.commands("join_group")

    run(test)


def test_unknown_topics_and_silent_brokers_are_told_at_the_beginning() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        with pytest.raises(TopicNotFound):
            await join(client, topics="nowhere")
        orders(cluster)
        cluster.play.when("join_group").always(LogUnavailable())
        with pytest.raises(LogUnavailable):
            await join(client)

    run(test, dataclasses.replace(FAST, operation_timeout_ms=300))


def test_offsets_acknowledge_all_that_was_given_below_them() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1, count=5)
        consumer = await join(client)
        with pytest.raises(IllegalGeneration):
            await consumer.ack_offsets({P0: 1})
        messages = await gather(consumer, 4)
        with pytest.raises(InvalidArgument, match="beyond"):
            await consumer.ack_offsets({P0: 5})
        with pytest.raises(IllegalGeneration):
            await consumer.ack_offsets({P1: 1})
        await consumer.ack(messages[1])
        async with client.transaction() as txn:
            await consumer.ack_offsets({P0: 3}, txn=txn)
            await consumer.ack_offsets({P0: 3}, txn=txn)
        ranges = [(r.first, r.last) for one in cluster.play.commands("ack") for r in one.ranges]
        assert ranges == [(1, 1), (0, 0), (2, 2)]
        # Once more is harmless, unless these very messages are meant.
        async with client.transaction() as txn:
            await consumer.ack_offsets({P0: 3}, txn=txn)
        txn = await client.begin_transaction()
        with pytest.raises(TransactionConflict):
            await consumer.ack_offsets(offsets(messages[:3]), txn=txn)
        await txn.abort()

    run(test)


def test_after_an_abort_the_same_offsets_count_again() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        consumer = await join(client)
        said = offsets(await gather(consumer, 3))
        for plain in (dict(said), said):
            txn = await client.begin_transaction()
            await consumer.ack_offsets(plain, txn=txn)
            await txn.abort()
        async with client.transaction() as txn:
            await consumer.ack_offsets(dict(said), txn=txn)
        assert txn.status is TransactionStatus.COMMITTED
        assert cluster.cursors["orders", GROUP, 0].acked == {0, 1, 2}
        assert await consumer.receive_batch(10, timeout_s=0.01) == []

    run(test)


def test_two_phase_commit_is_told_to_the_broker() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        consumer = await join(client, allow_two_phase_commit=True)
        (message,) = await gather(consumer, 1)
        producer = client.transactional_producer("2pc-x", two_phase_commit=True)
        await producer.init()
        await producer.begin()
        await producer.acknowledge(consumer, [message])
        await producer.commit()
        async with client.transaction() as txn:
            await consumer.ack_many(await gather(consumer, 2), txn=txn)
        assert [one.two_phase_commit for one in cluster.play.commands("ack")] == [True, False]

    run(test)


def test_redelivery_begins_anew_in_order() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1, count=4)
        consumer = await join(client)
        messages = await gather(consumer, 3)
        await consumer.ack(messages[1])
        consumer.redeliver()
        assert [one.offset for one in await gather(consumer, 3)] == [0, 2, 3]

    run(test)


def test_a_member_in_another_process() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        async with await connect(cluster, seed=8) as other_client:
            one, other = await join(client), await join(other_client)
            await until(lambda: len(one.assignment) == len(other.assignment) == 1)
            assert len(await gather(one, 3)) == len(await gather(other, 3)) == 3
            # Subscribed once each, since nothing was given out before.
            kinds = {one.type for one in cluster.play.commands("subscribe")}
            assert kinds == {broker_pb2.EXCLUSIVE}
        await until(lambda: len(one.assignment) == 2)

    run(test)
