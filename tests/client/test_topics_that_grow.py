"""The client while its topics get partitions, against three real brokers, in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.cluster import Cluster
from tests.client.fakes import FAST, FakeCluster, Partition
from tests.client.fakes import run as run_faked
from tests.client.test_real_brokers import NAMES, PATIENT, connect, run
from tests.virtual_time import time_passes

from magnetar import Client
from magnetar.messaging.sending.batching import partition_of_key
from magnetar_core.errors import (
    GroupNotFound,
    InvalidArgument,
    LogUnavailable,
    SubscriptionNotFound,
)
from magnetar_core.membership.placement import shard_of

REFRESH_S = 2.0
CONFIG = dataclasses.replace(PATIENT, topic_refresh_ms=REFRESH_S * 1000)
# More than the longest period, which differs by a quarter.
NOTICED_S = 1.25 * REFRESH_S + 0.5
KEYS = [b"key-%d" % number for number in range(40)]


def each(test: Callable[[Cluster, Client], Awaitable[None]]) -> None:
    run(test, config=CONFIG)


async def grow(client: Client, partitions: int) -> None:
    await client.admin.topics.alter("t", partitions=partitions, keys_move=True)


def test_a_topic_is_altered_as_it_is_asked() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        topic_id = await client.admin.topics.create("t", partitions=2, retention_ms=5)
        alter = client.admin.topics.alter
        for changes, complaint in (
            ({"partitions": 1}, "cannot have fewer"),
            ({"partitions": 3}, "keys_move"),
            ({"partitions": 0}, "partitions"),
        ):
            with pytest.raises(InvalidArgument, match=complaint):
                await alter("t", **changes)  # type: ignore[arg-type]
        assert await alter("t", partitions=5, keys_move=True, dry_run=True) == topic_id
        assert len((await client.admin.topics.describe("t")).partitions) == 2
        assert await alter("t", partitions=5, keys_move=True, retain_unconsumed=False) == topic_id
        found = await client.admin.topics.describe("t")
        assert len(found.partitions) == 5
        assert found.retention_ms == 5
        assert not found.retain_unconsumed

    each(test)


def test_keys_and_messages_without_keys_use_new_partitions_soon() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        await client.admin.topics.create("t", partitions=1)
        keyed, plain = await client.create_producer("t"), await client.create_producer("t")
        await keyed.send(b"before", KEYS[0])
        await grow(client, 6)
        assert keyed.partition_count == 1
        await time_passes(NOTICED_S)
        assert keyed.partition_count == plain.partition_count == 6
        places = [(await keyed.send(key, key)).partition for key in KEYS]
        assert places == [partition_of_key(key, 6) for key in KEYS]
        assert {(await plain.send(b"x")).partition for _ in range(12)} == set(range(6))

    each(test)


def test_in_a_transaction_a_key_stays_where_it_is() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        partitions = cluster.topic("t", partitions=2)
        producer = await client.create_producer("t")
        key = next(one for one in KEYS if partition_of_key(one, 2) != partition_of_key(one, 5))
        before, after = partition_of_key(key, 2), partition_of_key(key, 5)
        other = await client.begin_transaction()
        async with client.transaction() as txn:
            await producer.send(b"1", key, txn=txn)
            partitions += [Partition() for _ in range(3)]
            await time_passes(NOTICED_S)
            await producer.send(b"2", key, txn=txn)
            await producer.send_many([b"3"], [key], txn=txn)
            # One that has sent nothing yet uses the new partitions, and so does what is plain.
            await producer.send(b"4", key, txn=other)
        await producer.send(b"5", key)
        await other.commit()
        async with client.transaction() as later:
            await producer.send(b"6", key, txn=later)
        assert values_at(partitions, before) == [b"1", b"2", b"3"]
        assert values_at(partitions, after) == [b"4", b"5", b"6"]
        assert not producer.work._counts_before

    run_faked(test, config=dataclasses.replace(FAST, topic_refresh_ms=REFRESH_S * 1000))


def values_at(partitions: list[Partition], number: int) -> list[bytes]:
    """Everything that was committed to a partition."""
    return sorted(partitions[number].messages)


def test_consumers_of_a_whole_topic_get_new_partitions_from_their_first_message() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        await client.admin.topics.create("t", partitions=1)
        await (await client.create_producer("t")).send(b"too early")
        consumer = await client.subscribe("t", "s")
        fixed = await client.subscribe("t", "fixed", partitions=[0])
        async with await connect(cluster, "b-1", config=CONFIG) as other:
            await grow(other, 7)
            sender = await other.create_producer("t")
            for number in range(7):
                await sender.send(b"%d" % number, partition=number)
        got = [await consumer.receive() for _ in range(7)]
        for one in got:
            await consumer.ack(one)
        assert sorted(one.value for one in got) == [b"%d" % number for number in range(7)]
        assert consumer.partitions == tuple(range(7))
        assert fixed.partitions == (0,)
        found = await client.admin.topics.describe("t")
        for described in found.partitions:
            # A topic of a single partition has no subscription of some partitions only.
            assert [each.subscription for each in described.subscriptions] == ["fixed", "s"]
        await consumer.close()
        await fixed.close()

    each(test)


def test_a_follower_reads_new_partitions_and_a_cut_has_those_of_its_moment() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        await client.admin.topics.create("t", partitions=1)
        producer = await client.create_producer("t")
        await producer.send(b"0")
        seen: list[bytes] = []

        async def follow() -> None:
            async for one in client.read("t", follow_period_s=0.1):
                seen.append(one.value)

        following = asyncio.ensure_future(follow())
        await grow(client, 4)
        await time_passes(NOTICED_S)
        for number in range(4):
            await producer.send(b"%d" % (number + 1), partition=number)
        while len(seen) < 5:
            await time_passes(0.1)
        assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4"]
        following.cancel()

    each(test)


def test_members_of_a_group_share_new_partitions() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        await client.admin.topics.create("t", partitions=1)
        a = await client.consumer_group("g", ["t"])
        await a.joined()
        async with await connect(cluster, "b-2", config=CONFIG) as other:
            await grow(other, 6)
            sender = await other.create_producer("t")
            for number in range(6):
                await sender.send(b"%d" % number, partition=number)
            b = await other.consumer_group("g", ["t"])
            got: list[bytes] = []

            async def consume(member: object) -> None:
                while True:
                    message = await member.receive()  # type: ignore[attr-defined]
                    await member.ack(message)  # type: ignore[attr-defined]
                    got.append(message.value)

            both = [asyncio.ensure_future(consume(one)) for one in (a, b)]
            while len(set(got)) < 6:
                await time_passes(0.5)
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            await b.close()
        await a.close()
        # Without members, too; and deleting it leaves no cursor behind.
        await grow(client, 9)
        described = await client.admin.groups.describe("g")
        assert described.summary.partitions == 9
        await client.admin.groups.delete("g")
        with pytest.raises(GroupNotFound):
            await client.admin.groups.describe("g")

    each(test)


def test_subscriptions_come_and_go_on_all_partitions_though_the_topic_grows() -> None:
    """A look-up from before the change misses the new partitions."""

    async def test(cluster: Cluster, client: Client) -> None:
        await client.admin.topics.create("t", partitions=2)
        admin = client.admin.subscriptions
        cluster_of_client = admin._cluster
        look_up, stale = cluster_of_client.route, await cluster_of_client.route("t")

        async def old_route(topic: str) -> object:
            return stale

        await grow(client, 5)
        cluster_of_client.route = old_route  # type: ignore[method-assign, assignment]
        await admin.create("t", "s")
        cluster_of_client.route = look_up  # type: ignore[method-assign]
        found = await client.admin.topics.describe("t")
        assert all(len(one.subscriptions) == 1 for one in found.partitions)
        stale = type(stale)(cluster_of_client, "t", stale.topic_id, stale._addresses[:2])
        cluster_of_client.route = old_route  # type: ignore[method-assign, assignment]
        await admin.delete("t", "s")
        cluster_of_client.route = look_up  # type: ignore[method-assign]
        found = await client.admin.topics.describe("t")
        assert not any(one.subscriptions for one in found.partitions)
        with pytest.raises(SubscriptionNotFound):
            await admin.delete("t", "s")

    each(test)


def test_all_partitions_are_asked_though_the_look_up_is_outdated() -> None:
    """A cut that misses a partition would tear a transaction."""

    async def test(cluster: Cluster, client: Client) -> None:
        topic_id = await client.admin.topics.create("t", partitions=3)
        lagging = next(number for number in (1, 2) if NAMES[number] != NAMES[shard_of(topic_id, 0)])
        follower = cluster.broker(lagging).topic_directory
        async with await connect(cluster, NAMES[lagging], config=CONFIG) as other:
            assert len((await other.admin.topics.list_offsets("t")).partitions) == 3
            # Whatever that broker hears of the directory comes three seconds late.
            hear = follower._on_told  # type: ignore[union-attr]
            announced: list[str] = []

            def late(name: str, body: object) -> None:
                kept = type(body).FromString(body.SerializeToString())  # type: ignore[attr-defined]
                if kept.topics and not kept.topics[0].growing_to:
                    announced.append(name)
                    asyncio.get_running_loop().call_later(3.0, hear, name, kept)
                else:
                    hear(name, kept)

            follower._on_told = late  # type: ignore[method-assign, union-attr]
            follower._follow()  # type: ignore[union-attr]
            await grow(client, 4)
            assert announced
            assert cluster.broker(lagging).topics.get("t").record.partitions == 3
            assert len((await other.admin.topics.list_offsets("t")).partitions) == 4

    each(test)


def test_a_broker_that_is_away_is_named() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        await client.admin.topics.create("t", partitions=3)
        cluster.crash(2)
        await time_passes(1)
        with pytest.raises(LogUnavailable, match="b-2"):
            await grow(client, 4)

    run(test, config=dataclasses.replace(CONFIG, operation_timeout_ms=3_000))
