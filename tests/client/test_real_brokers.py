"""The client against three real brokers, in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from tests.broker.cluster import Cluster
from tests.broker.cluster import run as run_brokers
from tests.client.fakes import FAST
from tests.virtual_loop import VirtualClock
from tests.virtual_time import time_passes

import magnetar
from magnetar import Client
from magnetar_core.errors import LogUnavailable, MagnetarError, TopicNotFound
from magnetar_core.membership.placement import shard_of

NAMES = ("b-0", "b-1", "b-2")
PATIENT = dataclasses.replace(
    FAST, operation_timeout_ms=30_000, send_timeout_ms=30_000, backoff_ms_max=200
)
HASTY = dataclasses.replace(FAST, operation_timeout_ms=3_000)


async def connect(
    cluster: Cluster, *addresses: str, config: magnetar.ClientConfig = PATIENT
) -> Client:
    transport = cluster.network.transport(cluster.loop.incarnate("sdk"))
    # Two clients with the same random numbers would pass for one: their calls have tokens.
    random = Random(f"{addresses} at {cluster.loop.time()}")
    return await magnetar.connect(
        addresses, transport=transport, clock=VirtualClock(), random=random, config=config
    )


def run(
    test: Callable[[Cluster, Client], Awaitable[None]],
    *addresses: str,
    config: magnetar.ClientConfig = PATIENT,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with await connect(cluster, *(addresses or ("b-0",)), config=config) as client:
            await test(cluster, client)

    run_brokers(scenario)


async def make_topic(client: Client, partitions: int = 6) -> list[str]:
    """Create the topic; returns the broker of each partition."""
    topic_id = await client.admin.topics.create("t", partitions=partitions)
    return [NAMES[shard_of(topic_id, number)] for number in range(partitions)]


async def read(client: Client, partition: int) -> list[bytes]:
    return [one.value async for one in client.read("t", partition)]


def test_each_partition_is_where_its_shard_is() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        keepers = await make_topic(client)
        assert set(keepers) == set(NAMES)
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        for number in range(6):
            await producer.send(b"%d" % number, partition=number)
        got = [await consumer.receive() for _ in range(6)]
        for one in got:
            await consumer.ack(one)
        assert sorted(one.value for one in got) == [b"%d" % number for number in range(6)]
        found = await client.admin.topics.describe("t")
        assert [one.broker_name for one in found.partitions] == keepers
        assert [one.end_offset for one in found.partitions] == [1] * 6
        assert all(one.subscriptions[0].backlog == 0 for one in found.partitions)
        offsets = await client.admin.topics.list_offsets("t", append_time_ms=0)
        assert [one.time_offset for one in offsets.partitions] == [0] * 6
        assert [await read(client, number) for number in range(6)] == [
            [b"%d" % number] for number in range(6)
        ]
        assert [broker.name for broker in (await client.admin.cluster_info()).brokers] == list(
            NAMES
        )

    run(test)


def test_what_one_broker_was_told_each_of_them_knows() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        await make_topic(client)
        for name in NAMES:
            async with await connect(cluster, name) as other:
                assert [one.topic for one in await other.admin.topics.list()] == ["t"]
                assert len((await other.admin.topics.describe("t")).partitions) == 6
        async with await connect(cluster, "b-2") as other:
            await other.admin.topics.delete("t")
        with pytest.raises(TopicNotFound):
            await client.admin.topics.describe("t")

    run(test)


def test_a_dead_broker_delays_its_own_partitions_only() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        keepers = await make_topic(client)
        producer = await client.create_producer("t")
        cluster.crash(0)
        waiting = [
            asyncio.ensure_future(producer.send(b"late", partition=number))
            for number, keeper in enumerate(keepers)
            if keeper == "b-0"
        ]
        began_s = cluster.loop.time()
        for number, keeper in enumerate(keepers):
            if keeper != "b-0":
                await producer.send(b"soon", partition=number)
                assert await read(client, number) == [b"soon"]
        # The first broker was also the client's only address: others answer the look-ups.
        another = await client.create_producer("t")
        assert [one.topic for one in await client.admin.topics.list()] == ["t"]
        assert cluster.loop.time() - began_s < 3
        assert not any(one.done() for one in waiting)
        await cluster.start(0)
        await asyncio.gather(*waiting)
        await another.send(b"last", partition=keepers.index("b-0"))
        assert await read(client, keepers.index("b-0")) == [b"late", b"last"]

    run(test)


def test_there_is_no_partial_description_and_the_error_names_who_is_away() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        keepers = await make_topic(client)
        cluster.crash(1)
        theirs = [number for number, keeper in enumerate(keepers) if keeper == "b-1"]
        for question in (client.admin.topics.describe, client.admin.topics.list_offsets):
            with pytest.raises(LogUnavailable, match="broker b-1 at b-1, which has partitions"):
                await question("t")
        others = [number for number in range(6) if number not in theirs]
        found = await client.admin.topics.list_offsets("t", partitions=others)
        assert [one.partition for one in found.partitions] == others
        with pytest.raises(MagnetarError, match="b-1"):
            await client.admin.transactions.find_hanging("t")
        await cluster.start(1)
        assert len((await client.admin.topics.describe("t")).partitions) == 6

    run(test, config=HASTY)


def test_a_broker_that_restarts_in_the_middle_of_a_question_answers_after_all() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        await make_topic(client)
        for delay_ms in range(12):
            asking = asyncio.ensure_future(client.admin.topics.describe("t"))
            await time_passes(delay_ms / 4_000)
            await cluster.restart(2)
            assert [one.partition for one in (await asking).partitions] == list(range(6))

    run(test, "b-2", "b-1")


def test_a_topic_is_created_once_although_the_broker_that_was_asked_dies() -> None:
    """Another one is asked then, and the first of the list knows that it is the same call."""

    async def test(cluster: Cluster, client: Client) -> None:
        for number in range(12):
            async with await connect(cluster, "b-2", "b-1") as other:
                creating = asyncio.ensure_future(other.admin.topics.create(f"t-{number}"))
                await time_passes(number / 2_000)
                await cluster.restart(2)
                await creating
            async with await connect(cluster, "b-1", "b-2") as other:
                deleting = asyncio.ensure_future(other.admin.topics.delete(f"t-{number}"))
                await time_passes(number / 2_000)
                await cluster.restart(1)
                await deleting
        assert await client.admin.topics.list() == []

    run(test)


def test_messages_survive_restarts_of_every_broker_once_and_in_order() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        await make_topic(client, 3)
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", initial_position="earliest")

        async def produce(partition: int) -> None:
            for number in range(60):
                await producer.send(b"%d" % number, partition=partition)

        producing = [asyncio.ensure_future(produce(partition)) for partition in range(3)]
        for number in (0, 2, 1, 0):
            await cluster.restart(number, power_loss=True)
        await asyncio.gather(*producing)
        for partition in range(3):
            assert await read(client, partition) == [b"%d" % number for number in range(60)]
        seen: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        while any(b"59" not in one for one in seen.values()):
            message = await consumer.receive()
            if message.value not in seen[message.message_id.partition]:
                seen[message.message_id.partition].append(message.value)
            await consumer.ack(message)
        assert all(one == [b"%d" % number for number in range(60)] for one in seen.values())

    run(test, "b-1", "b-0")
