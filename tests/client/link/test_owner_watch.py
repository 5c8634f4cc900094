"""Who waits for a shard without an owner, or asks one that sleeps, finds its owner soon."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.owners import BROKER, COORDINATOR, PATIENT, A, B, C, D, Owners, run_owners
from tests.playbook import DROP, HOLD
from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar import Client
from magnetar.link.addresses import title_of
from magnetar.link.members import is_earlier
from magnetar_core.errors import LogUnavailable, OutcomeUnknown


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def read(client: Client, topic: str, partition: int = 0) -> list[bytes]:
    return [one.value async for one in client.read(topic, partition)]


# Waiting for an owner


def test_whoever_waits_for_a_shard_without_an_owner_goes_on_soon_after_it_has_one() -> None:
    async def test(cluster: Owners, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        await producer.send(b"1")
        cluster.unhurried = True
        cluster.play.asked.clear()
        cluster.net.attempts.clear()
        cluster.lose(BROKER, 0)
        sending = asyncio.ensure_future(producer.send(b"2"))
        await time_passes(10)
        # Often enough, and not in a loop.
        assert 30 < len(cluster.asked("get_cluster_info")) < 100
        assert len(cluster.net.attempts) < 100
        cluster.gets(BROKER, 0, C)
        began_s = seconds()
        await sending
        assert seconds() - began_s < 0.3
        assert partition.messages == [b"1", b"2"]

    run_owners(test, config=PATIENT)


def test_a_shard_that_nobody_has_is_an_error_that_says_so_when_the_time_is_up() -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 2)
        cluster.lose(BROKER, 1)
        producer = await client.create_producer("t")
        with pytest.raises(LogUnavailable, match="shard 1"):
            await producer.send(b"1", partition=1)
        with pytest.raises(LogUnavailable, match="no link to shard 1"):
            await read(client, "t", 1)
        with pytest.raises(LogUnavailable, match="shard 1"):
            await client.admin.groups.list()
        assert not any(attempt.startswith("#") for attempt in cluster.net.attempts)

    run_owners(test)


def test_errors_name_the_server_and_the_shard() -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        cluster.play.when("send").always(DROP)
        with pytest.raises(OutcomeUnknown, match=r"no answer from a:1 \(shard 0\) in time"):
            await producer.send(b"1")

    run_owners(test)


def test_a_shard_without_an_owner_delays_its_own_partitions_only() -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 3)
        producer = await client.create_producer("t")
        cluster.lose(BROKER, 1)
        waiting = asyncio.ensure_future(producer.send(b"late", partition=1))
        began_s = seconds()
        for _ in range(10):
            await producer.send(b"0", partition=0)
            await producer.send(b"2", partition=2)
        assert seconds() - began_s < 0.1
        assert not waiting.done()
        cluster.gets(BROKER, 1, A)
        await waiting

    run_owners(test, config=PATIENT)


def test_a_client_that_closes_while_nobody_has_a_shard_leaves_nothing_behind() -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        cluster.lose(BROKER, 0)
        await producer.enqueue(b"1")
        await time_passes(0.2)

    run_owners(test)


# Whom to believe


def test_a_member_that_hears_late_moves_nobody_back() -> None:
    """From some moment on, all answers are those of members that believe in the owner before."""

    async def test(cluster: Owners, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        await producer.send(b"1")
        former, before = cluster.brokers[0], dict(cluster.owner)
        cluster.pass_on(BROKER, 0, C)
        await producer.send(b"2")
        cluster.late_views = dict.fromkeys((A, B, C), before)
        cluster.net.attempts.clear()
        for number in range(20):
            await client.admin.cluster_info()
            await client.create_producer("t")
            cluster.tell()
            await producer.send(b"%d" % number)
            await time_passes(0.1)
        assert former not in cluster.net.attempts
        assert {one.address for one in cluster.links_to(BROKER, 0)} == {cluster.brokers[0]}
        assert len(partition.messages) == 22

    run_owners(test, config=PATIENT)


def test_a_hunt_does_not_end_at_a_member_that_hears_late() -> None:
    """The one that answers first knows nothing new; others do."""

    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        cluster.late_views[A] = dict(cluster.owner)
        cluster.unhurried = True
        cluster.pass_on(BROKER, 0, C)
        began_s = seconds()
        await producer.send(b"1")
        assert seconds() - began_s < 0.5

    run_owners(test, config=PATIENT)


def test_where_nobody_is_at_the_latest_owner_an_earlier_epoch_counts_again() -> None:
    """The directory was restored from a copy: it gives epochs that are lower than before."""

    async def test(cluster: Owners, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        await producer.send(b"1")
        cluster.lose(BROKER, 0)
        cluster.epoch = 3
        cluster.gets(BROKER, 0, B)
        await producer.send(b"2")
        assert partition.messages == [b"1", b"2"]

    run_owners(test, config=PATIENT)


# Silence


def test_a_request_to_a_frozen_owner_goes_to_its_successor() -> None:
    """Nobody tells of the change, and the link stays: only the client's own question helps."""

    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t")
        cluster.unhurried = True
        producer = await client.create_producer("t")
        await producer.send(b"1")
        cluster.freeze(A)
        sending = asyncio.ensure_future(producer.send(b"2"))
        await time_passes(3)
        asked = len(cluster.asked("get_cluster_info"))
        await time_passes(10)
        # It asks often while it waits, and not in a loop; its patience for the link stays.
        assert 10 <= len(cluster.asked("get_cluster_info")) - asked <= 30
        assert not sending.done()
        cluster.take_over(A, B)
        began_s = seconds()
        await sending
        assert seconds() - began_s < 1.0

    run_owners(test, address=f"{A},{B}", config=PATIENT)


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("phase_s", [0.0, 0.17, 0.41, 0.73, 0.93])
def test_a_consumer_that_asks_nothing_notices_that_its_owner_sleeps(
    heard: bool, phase_s: float
) -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 2)
        cluster.unhurried = not heard
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        cluster.freeze(A)
        await time_passes(5 + phase_s)
        cluster.take_over(A, B)
        cluster.publish("t", [b"1"], 0)
        began_s = seconds()
        assert (await consumer.receive()).value == b"1"
        assert seconds() - began_s < (0.1 if heard else 3.5)

    run_owners(test, address=f"{A},{B}", config=PATIENT)


def test_whoever_connects_to_an_owner_that_hangs_finds_its_successor() -> None:
    """The attempt itself would take as long as it may; nothing has failed yet."""

    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 2)
        cluster.unhurried = True
        producer = await client.create_producer("t")
        cluster.freeze(B)
        sending = asyncio.ensure_future(producer.send(b"1", partition=1))
        await time_passes(0.5)
        cluster.take_over(B, C)
        began_s = seconds()
        await sending
        assert seconds() - began_s < 0.45

    run_owners(test, config=PATIENT)


def test_a_client_at_rest_looks_seldom() -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 3)
        await client.subscribe("t", "s")
        cluster.play.asked.clear()
        await time_passes(100)
        assert 30 <= len(cluster.asked("get_cluster_info")) <= 70

    run_owners(test, config=PATIENT)


def test_a_change_that_is_told_on_every_link_is_looked_up_once_or_twice() -> None:
    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 3)
        await client.subscribe("t", "s")
        cluster.play.asked.clear()
        for _ in range(20):
            cluster.tell()
        await time_passes(0.5)
        assert 1 <= len(cluster.asked("get_cluster_info")) <= 2

    run_owners(test, config=PATIENT)


def test_a_change_that_is_told_while_the_client_asks_is_looked_up_after_that() -> None:
    """The answer that comes is of before the change."""

    async def test(cluster: Owners, client: Client) -> None:
        cluster.topic("t", 3)
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        cluster.play.when("get_cluster_info").once(HOLD)
        cluster.tell()
        await cluster.play.holds(1)
        cluster.late_views[A] = dict(cluster.owner)
        cluster.pass_on(BROKER, 1, C, breaks=False)
        await turns(5)
        cluster.play.release()
        cluster.late_views.clear()
        cluster.publish("t", [b"1"], 1)
        began_s = seconds()
        assert (await consumer.receive()).value == b"1"
        assert seconds() - began_s < 0.1

    run_owners(test, config=PATIENT)


# Whom to ask


def test_a_server_without_a_shard_is_enough_to_begin_with() -> None:
    async def test(cluster: Owners, client: Client) -> None:
        await client.admin.topics.create("t", partitions=3)
        producer = await client.create_producer("t")
        began_s = seconds()
        for partition in range(3):
            await producer.send(b"1", partition=partition)
        assert await read(client, "t", 2) == [b"1"]
        assert seconds() - began_s < 0.1
        assert {name for one, name in cluster.play.asked if one == D} == {
            "hello",
            "get_cluster_info",
        }

    run_owners(test, address=D, config=PATIENT)


def test_a_cluster_in_which_nobody_has_anything_yet_is_waited_for() -> None:
    def prepare(cluster: Owners) -> None:
        for number in range(3):
            cluster.lose(BROKER, number)
            cluster.lose(COORDINATOR, number)
        cluster.unhurried = True

    async def test(cluster: Owners, client: Client) -> None:
        creating = asyncio.ensure_future(client.admin.topics.create("t"))
        await time_passes(5)
        assert not creating.done()
        for number in range(3):
            cluster.gets(BROKER, number, A)
        began_s = seconds()
        await creating
        assert seconds() - began_s < 0.5

    run_owners(test, config=PATIENT, prepare=prepare)


def test_servers_that_the_client_was_never_given_are_enough_later() -> None:
    """All servers are replaced, one after the other; the one that was named is long gone."""

    async def test(cluster: Owners, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        for number in range(20):
            cluster.give_all(f"s{number}:1", f"s{number + 1}:1")
            await producer.send(b"%d" % number)
            await time_passes(3)
            cluster.die(f"s{number}:1")
            cluster.net.dead.update((A, B, C))
            await time_passes(0.1)
        assert len(partition.messages) == 20

    run_owners(test, config=PATIENT)


@pytest.mark.parametrize(
    ("address", "than", "earlier"),
    [
        ("a:1#3.99", "b:1#3.100", True),
        ("a:1#3.100", "b:1#3.99", False),
        ("a:1#3.7", "a:1#3.7", False),
        # Nobody has it, says one; somebody had it, says another.
        ("#3.0", "a:1#3.7", True),
        ("a:1#3.7", "#3.0", False),
        ("a:1", "b:1#3.7", False),
        ("a:1#3.7", "b:1", False),
    ],
)
def test_ownerships_are_compared_by_their_epochs(address: str, than: str, earlier: bool) -> None:
    assert is_earlier(address, than) is earlier


@pytest.mark.parametrize(
    ("address", "title"),
    [
        ("a:1", "a:1"),
        ("a:1#3.17", "a:1 (shard 3)"),
        ("#3.0", "shard 3, which no server has at the moment"),
        ("a:1#x", "a:1#x"),
    ],
)
def test_titles_are_for_people(address: str, title: str) -> None:
    assert title_of(address) == title
