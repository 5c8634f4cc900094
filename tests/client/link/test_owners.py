"""Shards that change their owner: every user of a client follows, and nothing counts twice."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from tests.client.owners import BROKER, COORDINATOR, PATIENT, A, B, C, D, Owners, run_owners
from tests.playbook import BREAK, DROP, HOLD
from tests.virtual_time import time_passes
from tests.waiting import until

from magnetar import Client

Mover = Callable[[Owners, str, int, str], None]


def crash(cluster: Owners, kind: str, number: int, server: str) -> None:
    """The owner is gone with its links, and another server has the shard at once."""
    cluster.pass_on(kind, number, server)


def freeze(cluster: Owners, kind: str, number: int, server: str) -> None:
    """The owner sleeps; its links stay open and say nothing."""
    cluster.pass_on(kind, number, server, breaks=False)


def freeze_unheard(cluster: Owners, kind: str, number: int, server: str) -> None:
    """The same, and nobody tells of it."""
    cluster.unhurried = True
    freeze(cluster, kind, number, server)


every_way = pytest.mark.parametrize("move", [crash, freeze, freeze_unheard])


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def read(client: Client, topic: str, partition: int = 0) -> list[bytes]:
    return [one.value async for one in client.read(topic, partition)]


# Each user


@every_way
def test_batches_in_flight_go_again_in_order_to_the_new_owner(move: Mover) -> None:
    """The owner before has stored the first two, and answered none."""

    async def test(cluster: Owners, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", linger_ms=0)
        await producer.send(b"first")
        cluster.play.when("send").in_turn(DROP, DROP, HOLD, HOLD)
        sending = []
        for number in range(4):
            sending.append(asyncio.create_task(producer.send(b"%d" % number)))
            await cluster.play.came("send", number + 2)
        move(cluster, BROKER, 0, B)
        await asyncio.gather(*sending)
        # What the former owner had before it went comes late, and from nowhere.
        cluster.play.held.clear()
        await producer.send(b"last")
        assert partition.messages == [b"first", b"0", b"1", b"2", b"3", b"last"]
        assert [one.address for one in cluster.links_to(BROKER, 0)] == [cluster.brokers[0]]

    run_owners(test, config=PATIENT)


@every_way
def test_a_consumer_attaches_once_at_the_new_owner_and_gets_the_rest(move: Mover) -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t")
        cluster.publish("t", [b"1", b"2"])
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        first = await consumer.receive()
        await consumer.ack(first)
        cluster.play.received.clear()
        move(cluster, BROKER, 0, C)
        cluster.publish("t", [b"3"])
        # Nothing of the former attachment counts: what it had delivered comes again.
        values = [(await consumer.receive()).value for _ in range(2)]
        assert values == [b"2", b"3"]
        subscribes = cluster.play.commands("subscribe")
        assert len(subscribes) == 1
        assert len(cluster.cursors["t", "s", 0].attached) == 1
        assert [one.address for one in cluster.links_to(BROKER, 0)] == [cluster.brokers[0]]

    run_owners(test, config=PATIENT)


@every_way
def test_acks_and_reads_under_way_are_answered_by_the_new_owner(move: Mover) -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t")
        cluster.publish("t", [b"1"])
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        message = await consumer.receive()
        cluster.play.when("ack", "read", "describe_topic").in_turn(HOLD, HOLD, HOLD)
        asking = [
            asyncio.ensure_future(one)
            for one in (
                consumer.ack(message),
                read(client, "t"),
                client.admin.topics.describe("t"),
            )
        ]
        await cluster.play.holds(3)
        move(cluster, BROKER, 0, B)
        _, values, _ = await asyncio.gather(*asking)
        assert values == [b"1"]
        assert cluster.cursors["t", "s", 0].acked == {0}

    run_owners(test, config=PATIENT)


@every_way
def test_a_member_of_a_group_goes_on_as_the_same_member(move: Mover) -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 3)
        consumer = await client.consumer_group("g", "t", initial_position="earliest")
        generations = [cluster.at(broker).groups["g"].generation for broker in cluster.brokers]
        cluster.play.received.clear()
        move(cluster, BROKER, 1, C)
        for partition in range(3):
            cluster.publish("t", [b"%d" % partition], partition)
        messages = [await consumer.receive() for _ in range(3)]
        assert sorted(message.value for message in messages) == [b"0", b"1", b"2"]
        await consumer.ack_many(messages)
        assert cluster.cursors["t", "g", 1].acked == {0}
        await until(
            lambda: (cluster.brokers[1], "group_heartbeat") in cluster.play.asked,
        )
        assert not cluster.play.commands("join_group")
        assert [
            cluster.at(broker).groups["g"].generation for broker in cluster.brokers
        ] == generations

    run_owners(test, config=PATIENT)


@every_way
@pytest.mark.parametrize("under_way", ["nothing", "end_txn", "add_partition_to_txn"])
def test_a_transaction_survives_its_coordinator(move: Mover, under_way: str) -> None:
    async def test(cluster: Owners, client: Client) -> None:
        (partition,) = cluster.topic("out")
        producer = await client.create_producer("out")
        txn = await client.begin_transaction()
        tcid = txn.txn_id.tcid
        if under_way == "add_partition_to_txn":
            cluster.play.when(under_way).once(HOLD)
        await producer.enqueue(b"a", txn=txn)
        if under_way == "end_txn":
            cluster.play.when(under_way).once(DROP)
        committing = asyncio.ensure_future(txn.commit())
        if under_way != "nothing":
            await cluster.play.came(under_way)
        server, _ = cluster.owner[COORDINATOR, tcid]
        move(cluster, COORDINATOR, tcid, B if server != B else C)
        await committing
        assert partition.messages == [b"a"]
        assert [one.address for one in cluster.links_to(COORDINATOR, tcid)] == [
            cluster.address(COORDINATOR, tcid)
        ]

    run_owners(test, config=PATIENT)


@every_way
def test_a_transaction_is_begun_elsewhere_while_a_coordinator_is_away(move: Mover) -> None:
    async def test(cluster: Owners, client: Client) -> None:
        for tcid in range(3):
            began_s = seconds()
            move(cluster, COORDINATOR, tcid, D)
            for _ in range(3):
                async with client.transaction():
                    pass
            assert seconds() - began_s < 1.0

    run_owners(test, config=dataclasses.replace(PATIENT, coordinator_patience_ms=100))


@every_way
def test_a_transactional_producer_goes_on_at_the_new_owner_of_its_coordinator(
    move: Mover,
) -> None:
    async def test(cluster: Owners, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = client.transactional_producer("billing")
        await producer.init()
        tcid = cluster.tcid_asked("init_producer")
        for number, server in enumerate((B, C, A, B)):
            await producer.begin()
            await producer.send("t", b"%d" % number)
            if cluster.owner[COORDINATOR, tcid][0] != server:
                move(cluster, COORDINATOR, tcid, server)
            await producer.commit()
        assert partition.messages == [b"0", b"1", b"2", b"3"]
        assert cluster.epochs["billing"] == 0
        await producer.close()

    run_owners(test, config=PATIENT)


@every_way
def test_a_named_sequence_goes_on_at_the_new_owner_of_its_coordinator(move: Mover) -> None:
    async def test(cluster: Owners, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        for number in range(4):
            cluster.play.when("new_txn").once(None if number else HOLD)
            beginning = asyncio.ensure_future(client.begin_named_transaction("load", number, "run"))
            if number == 0:
                await cluster.play.holds(1)
                tcid = cluster.tcid_asked("new_txn")
                move(cluster, COORDINATOR, tcid, D)
            txn = await beginning
            await producer.send(b"%d" % number, txn=txn)
            move(cluster, COORDINATOR, tcid, (B, C, A, D)[number])
            await txn.commit()
        assert partition.messages == [b"0", b"1", b"2", b"3"]
        tokens = [one.call_token for one in cluster.play.commands("new_txn")]
        assert tokens[0] == tokens[1]

    run_owners(test, config=PATIENT)


@every_way
def test_an_administrator_asks_the_owners_of_now(move: Mover) -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 3)
        txn = await client.begin_transaction()
        tcid = txn.txn_id.tcid
        for number in range(3):
            move(cluster, BROKER, number, D)
        move(cluster, COORDINATOR, tcid, D)
        admin = client.admin
        assert (await admin.transactions.describe(txn.txn_id)).txn_id == txn.txn_id
        assert [one.txn_id for one in await admin.transactions.list()] == [txn.txn_id]
        assert len((await admin.topics.describe("t")).partitions) == 3
        assert await admin.groups.list() == []
        assert len((await admin.topics.list_offsets("t")).partitions) == 3
        info = await admin.cluster_info()
        assert [broker.address for broker in info.brokers] == cluster.brokers
        await txn.abort()

    run_owners(test, config=PATIENT)


# All together


def test_nothing_is_kept_of_owners_of_long_ago() -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 3)
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        group = await client.consumer_group("g", "t")
        for number in range(60):
            for shard in range(3):
                server = f"s{number % 7}:1"
                cluster.pass_on(BROKER, shard, server, breaks=number % 2 == 0)
                cluster.pass_on(COORDINATOR, shard, server, breaks=number % 2 == 0)
            async with client.transaction() as txn:
                await producer.send(b"%d" % number, txn=txn)
            await consumer.ack(await consumer.receive())
        await time_passes(5)
        # A link to each shard, and a few to servers alone.
        assert len(cluster.net.links) <= 6 + 2
        servers = client._cluster._servers
        assert len(servers._connections) <= 6 + 2
        for one in servers._following.values():
            assert all(len(told) <= 2 for _, told in one._addressees.values())
            assert len(one._watchers) <= 2
        await group.close()

    run_owners(test, config=PATIENT)


@every_way
def test_a_producer_has_one_link_at_a_time_and_keeps_its_order_over_many_moves(
    move: Mover,
) -> None:
    async def test(cluster: Owners, client: Client) -> None:
        partitions = cluster.topic("t", 3)
        producer = await client.create_producer("t", linger_ms=0)
        moving = True

        async def keep_moving() -> None:
            number = 0
            while moving:
                number += 1
                if number % 5 == 0:
                    cluster.play.when("send").once((HOLD, DROP, BREAK)[number % 3])
                await time_passes(0.5)
                move(cluster, BROKER, number % 3, f"s{number}:1")
                assert all(
                    len([x for x in cluster.links_to(BROKER, one) if not x.half_open]) <= 1
                    for one in range(3)
                )

        async def send(partition: int) -> None:
            pending: list[Awaitable[object]] = []
            for number in range(300):
                pending.append(
                    asyncio.ensure_future(producer.send(b"%d" % number, partition=partition))
                )
                await time_passes(0.02)
            await asyncio.gather(*pending)

        mover = asyncio.ensure_future(keep_moving())
        await asyncio.gather(*(send(one) for one in range(3)))
        moving = False
        cluster.play.when("send").always(None)
        await mover
        cluster.play._cues.clear()
        for one in partitions:
            assert one.messages == [b"%d" % number for number in range(300)]

    run_owners(test, config=PATIENT)


def test_who_watches_a_shard_hears_that_its_new_owner_is_away() -> None:
    """A member that begins at the new owner does not wait for it."""

    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 3)
        shard = client._cluster.shard_at(cluster.brokers[1])
        assert shard is not None
        told: list[str] = []
        stop = shard.when_unreachable(lambda: told.append(shard.address))
        await shard.session()
        cluster.net.dead.add(D)
        cluster.pass_on(BROKER, 1, D)
        waiting = asyncio.ensure_future(shard.session())
        await until(lambda: cluster.brokers[1] in told)
        stop()
        cluster.pass_on(BROKER, 1, C)
        assert (await waiting) is shard.live_session

    run_owners(test, config=PATIENT)
