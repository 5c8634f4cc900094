"""A consumer that is a member at several brokers: docs/design/0008-cluster.md, Groups."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from tests.client.fakes import FAST
from tests.client.groups_of_brokers import GroupBrokers, run_groups
from tests.client.several_brokers import FIRST, SECOND, THIRD
from tests.virtual_time import time_passes
from tests.waiting import until

from magnetar import (
    Client,
    FencedInstance,
    GroupConsumer,
    IllegalGeneration,
    Message,
    TopicNotFound,
    TopicPartition,
    TransactionStatus,
    offsets,
)
from magnetar.groups.memberships import REFRESH_PERIOD_MS
from magnetar_core.errors import (
    InvalidArgument,
    LogUnavailable,
    MagnetarError,
    QuotaExceeded,
)

GROUP = "g"
ALL = (FIRST, SECOND, THIRD)


def orders(cluster: GroupBrokers, partitions: int = 3, count: int = 2) -> None:
    """Partition 0 is at the first broker, 1 at the second, and so on."""
    cluster.topic("orders", partitions)
    for partition in range(partitions):
        for n in range(count):
            cluster.publish("orders", [b"%d-%d" % (partition, n)], partition)


def place(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


async def join(client: Client, **options: Any) -> GroupConsumer:
    options.setdefault("topics", "orders")
    options.setdefault("initial_position", "earliest")
    return await client.consumer_group(GROUP, **options)


async def gather(consumer: GroupConsumer, count: int, patience_s: float = 2) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        batch = await consumer.receive_batch(count - len(messages), timeout_s=patience_s)
        assert batch, [message.value for message in messages]
        messages += batch
    return messages


def members_at(cluster: GroupBrokers, address: str) -> list[str]:
    return list(cluster.at(address).groups[GROUP].members)


def test_a_member_joins_every_broker_and_has_the_partitions_of_all() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster, 6)
        told: list[TopicPartition] = []
        consumer = await join(client, instance_id="one", on_assigned=told.extend)
        assert [members_at(cluster, one) for one in ALL] == [[consumer.member_id]] * 3
        messages = await gather(consumer, 12)
        assert sorted(consumer.assignment) == sorted(told) == [place(n) for n in range(6)]
        await consumer.ack_many(messages)
        assert all(cluster.cursors["orders", GROUP, n].acked == {0, 1} for n in range(6))
        joins = cluster.play.commands("join_group")
        assert {(one.member_id, one.instance_id) for one in joins} == {(consumer.member_id, "one")}
        await consumer.close(leave=True)
        assert [members_at(cluster, one) for one in ALL] == [[], [], []]

    run_groups(test)


def test_generations_count_at_each_broker_by_itself() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        consumer = await join(client)
        messages = await gather(consumer, 6)
        assert (consumer.generation, await consumer.joined()) == (1, 1)
        for _ in range(3):
            cluster.at(SECOND).take_away(GROUP, ("orders", 1))
        await until(lambda: consumer.generation == 4)
        again = await gather(consumer, 2)
        assert {one.partition for one in again} == {1}
        # What the other brokers gave stands.
        await consumer.ack_many([message for message in messages if message.partition != 1])
        await consumer.ack_many(again)
        said = {one.subscription.partition: one.member for one in cluster.play.commands("ack")}
        assert {number: one.generation for number, one in said.items()} == {0: 1, 1: 4, 2: 1}

    run_groups(test)


def test_one_transaction_acknowledges_at_several_brokers() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        consumer = await join(client)
        producer = client.transactional_producer()
        await producer.init_transactions(consumer)
        messages = await gather(consumer, 6)
        await producer.begin()
        await producer.send_offsets_to_transaction(offsets(messages))
        await producer.commit()
        assert all(cluster.cursors["orders", GROUP, n].acked == {0, 1} for n in range(3))
        # A partition that was lost at one broker fails all of it.
        for partition in range(3):
            cluster.publish("orders", [b"more"], partition)
        more = await gather(consumer, 3)
        txn = await client.begin_transaction()
        cluster.at(THIRD).take_away(GROUP, ("orders", 2))
        await until(lambda: consumer.generation == 2)
        with pytest.raises(IllegalGeneration):
            await consumer.ack_many(more, txn=txn)
        await txn.abort()
        assert txn.status is TransactionStatus.ABORTED
        assert all(cluster.cursors["orders", GROUP, n].acked == {0, 1} for n in range(3))

    run_groups(test)


def test_two_members_share_at_each_broker_and_release_at_each() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster, 6)
        one = await join(client)
        messages = await gather(one, 12)
        other = await join(client)
        await until(lambda: len(one.assignment) == 3)
        assert not other.assignment
        gone = {place(n) for n in range(6)} - set(one.assignment)
        assert {place.partition % 3 for place in gone} == {0, 1, 2}
        await one.ack_many(messages)
        await until(lambda: set(other.assignment) == gone)
        await other.close()
        await until(lambda: len(one.assignment) == 6)

    run_groups(test)


def test_a_broker_that_is_away_holds_up_nobody_and_is_joined_when_it_comes() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        cluster.net.dead.add(SECOND)
        consumer = await join(client)
        messages = await gather(consumer, 4)
        assert {message.partition for message in messages} == {0, 2}
        await consumer.ack_many(messages)
        assert await consumer.joined(timeout_s=1) == 1
        cluster.net.dead.clear()
        more = await gather(consumer, 2)
        assert {one.partition for one in more} == {1}
        assert members_at(cluster, SECOND) == [consumer.member_id]

    run_groups(test)


def test_a_broker_that_says_nothing_is_waited_for_as_long_as_an_attempt_to_connect() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        loop = asyncio.get_running_loop()
        cluster.play.when("join_group").always(
            lambda _: LogUnavailable() if cluster.play.asked[-1][0] == THIRD else None
        )
        began_s = loop.time()
        consumer = await join(client)
        assert 0.5 <= loop.time() - began_s < 1
        assert {one.partition for one in await gather(consumer, 4)} == {0, 1}
        cluster.play.forget()
        assert {one.partition for one in await gather(consumer, 2)} == {2}

    run_groups(test, dataclasses.replace(FAST, connect_timeout_ms=500))


def test_nobody_answering_is_an_error() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        cluster.play.when("join_group").always(LogUnavailable())
        with pytest.raises(LogUnavailable):
            await join(client)

    run_groups(test, dataclasses.replace(FAST, operation_timeout_ms=300, connect_timeout_ms=100))


def test_who_is_expelled_at_one_broker_keeps_what_the_others_gave() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        lost: list[TopicPartition] = []
        consumer = await join(client, on_lost=lost.extend)
        messages = await gather(consumer, 6)
        cluster.at(SECOND).expel(GROUP, consumer.member_id)
        await until(lambda: lost == [place(1)] and len(consumer.assignment) == 3)
        assert consumer.generation == 3
        with pytest.raises(IllegalGeneration):
            await consumer.ack(next(message for message in messages if message.partition == 1))
        await consumer.ack_many([message for message in messages if message.partition != 1])
        assert {one.partition for one in await gather(consumer, 2)} == {1}
        assert cluster.asked("join_group") == [FIRST, SECOND, THIRD, SECOND]

    run_groups(test)


def test_one_broker_that_starts_anew_costs_no_membership() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        lost: list[TopicPartition] = []
        consumer = await join(client, on_lost=lost.extend)
        messages = await gather(consumer, 6)
        cluster.net.dead.add(SECOND)
        for link in [one for one in cluster.net.links if one.address == SECOND]:
            link.break_now()
        beats = cluster.asked("group_heartbeat").count(FIRST)
        await consumer.ack_many([message for message in messages if message.partition != 1])
        await until(lambda: cluster.asked("group_heartbeat").count(FIRST) > beats)
        cluster.net.dead.clear()
        await consumer.ack_many([message for message in messages if message.partition == 1])
        assert not lost
        assert len(cluster.play.commands("join_group")) == 3

    run_groups(test)


def test_whoever_is_fenced_at_one_broker_is_so_everywhere() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        lost: list[TopicPartition] = []
        one = await join(client, instance_id="worker", on_lost=lost.extend)
        messages = await gather(one, 6)
        # The newer instance has joined one broker, and not yet the others.
        cluster.play.when("group_heartbeat").always(
            lambda _: FencedInstance() if cluster.play.asked[-1][0] == SECOND else None
        )
        await until(lambda: len(lost) == 3)
        assert (one.generation, one.assignment) == (0, ())
        for call in (lambda: one.receive(), lambda: one.ack(messages[0]), lambda: one.joined()):
            with pytest.raises(FencedInstance):
                await call()
        beats = len(cluster.play.commands("group_heartbeat"))
        await time_passes(1)
        assert len(cluster.play.commands("group_heartbeat")) == beats
        await one.close()
        assert not cluster.play.commands("leave_group")

    run_groups(test)


def test_the_next_instance_takes_the_place_at_every_broker() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster, 6)
        one, other = await join(client, instance_id="a"), await join(client, instance_id="b")
        await until(lambda: len(one.assignment) == len(other.assignment) == 3)
        before = set(one.assignment)
        new = await join(client, instance_id="a")
        await until(lambda: set(new.assignment) == before and not one.assignment)
        assert len(other.assignment) == 3
        with pytest.raises(FencedInstance):
            await one.receive()

    run_groups(test)


@pytest.mark.parametrize("refusal", [InvalidArgument("no"), QuotaExceeded("full")])
def test_a_refusal_at_one_broker_ends_it_at_all(refusal: MagnetarError) -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        cluster.play.when("join_group").always(
            lambda _: refusal if cluster.play.asked[-1][0] == SECOND else None
        )
        with pytest.raises(type(refusal)):
            await join(client)
        # It leaves those that had taken it in, so that others need not wait for its timeout.
        assert [members_at(cluster, one) for one in (FIRST, THIRD)] == [[], []]

    run_groups(test)


def test_a_full_broker_is_asked_again_by_whoever_is_a_member() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        consumer = await join(client)
        cluster.play.when("join_group").in_turn(QuotaExceeded(), QuotaExceeded())
        cluster.at(SECOND).expel(GROUP, consumer.member_id)
        await until(lambda: len(cluster.play.commands("join_group")) == 6)
        await until(lambda: len(consumer.assignment) == 3)

    run_groups(test)


def test_a_topic_that_one_broker_has_not_heard_of_is_joined_there_later() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        cluster.unheard_of[THIRD] = {"orders"}
        consumer = await join(client)
        assert {one.partition for one in await gather(consumer, 4)} == {0, 1}
        await time_passes(1)
        cluster.unheard_of.clear()
        assert {one.partition for one in await gather(consumer, 2)} == {2}

    run_groups(test)


def test_a_topic_of_which_no_broker_has_heard_is_an_error() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        cluster.unheard_of = {one: {"orders"} for one in (FIRST, THIRD)}
        cluster.net.dead.add(SECOND)
        with pytest.raises(TopicNotFound):
            await join(client)

    run_groups(test)


def test_an_application_that_does_not_receive_leaves_all_brokers_and_comes_back() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        lost: list[TopicPartition] = []
        consumer = await join(client, max_poll_interval_s=0.03, on_lost=lost.extend)
        await gather(consumer, 6)
        await until(lambda: not any(members_at(cluster, one) for one in ALL))
        await until(lambda: len(lost) == 3)
        assert (consumer.generation, consumer.assignment) == (0, ())
        # It is away at a broker that is added meanwhile, too.
        cluster.brokers.append("four:1")
        cluster.keepers = {("orders", n): cluster.brokers[n] for n in range(3)}
        await time_passes(REFRESH_PERIOD_MS / 1000 + 1)
        assert "four:1" not in cluster.asked("join_group")
        assert len(await gather(consumer, 6)) == 6
        assert all(members_at(cluster, one) for one in ALL)

    run_groups(test)


def test_a_broker_that_is_added_is_joined_in_time() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        options: dict[str, Any] = {"topics": None, "pattern": "*", "initial_position": "latest"}
        consumer = await join(client, max_poll_interval_s=40, **options)
        cluster.keepers = {("orders", n): cluster.brokers[n] for n in range(3)}
        cluster.brokers.append("four:1")
        cluster.topic("wide", 4)
        # It has not heard of the broker, but must not miss what is new there.
        cluster.publish("wide", [b"early"], 3)
        (early,) = await gather(consumer, 1, patience_s=REFRESH_PERIOD_MS / 1000 + 1)
        assert early.value == b"early"
        receiving = asyncio.create_task(consumer.receive())
        assert members_at(cluster, "four:1") == [consumer.member_id]
        # It knows that the application is there, and since when it is not.
        await time_passes(60)
        assert members_at(cluster, "four:1") == [consumer.member_id]
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        await time_passes(41)
        assert members_at(cluster, "four:1") == []

    run_groups(test)


def test_a_broker_that_moves_to_another_address_is_followed() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster)
        lost: list[TopicPartition] = []
        consumer = await join(client, on_lost=lost.extend)
        await gather(consumer, 6)
        elsewhere = "two-moved:1"
        cluster.move(SECOND, elsewhere)
        await time_passes(REFRESH_PERIOD_MS / 1000 + 1)
        assert cluster.asked("group_heartbeat")[-3:].count(elsewhere)
        assert not lost
        assert cluster.asked("join_group") == list(ALL)

    run_groups(test)


def test_each_broker_hears_of_its_own_partitions() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        orders(cluster, 6)
        consumer = await join(client)
        await gather(consumer, 12)
        seen: dict[str, set[int]] = {}
        came = zip(cluster.play.asked, cluster.play.received, strict=True)
        for (address, name), (_, body) in came:
            if name == "group_heartbeat":
                held = seen.setdefault(address, set())
                held.update(one.partition.partition for one in body.held)
        assert seen == {FIRST: {0, 3}, SECOND: {1, 4}, THIRD: {2, 5}}

    run_groups(test)
