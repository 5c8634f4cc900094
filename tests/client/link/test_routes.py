"""What concerns a partition goes to its broker, and follows it when it moves."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from tests.client.fakes import FAST, Partition
from tests.client.several_brokers import FIRST, SECOND, THIRD, SeveralBrokers, run_with
from tests.playbook import BREAK, HOLD
from tests.waiting import until

from magnetar import Client
from magnetar_core.errors import (
    ClusterMismatch,
    InvalidArgument,
    LogUnavailable,
    MagnetarError,
    OutcomeUnknown,
    PartitionMoved,
    TopicNotFound,
)

FOURTH = "four:1"
PATIENT = dataclasses.replace(FAST, operation_timeout_ms=20_000, send_timeout_ms=20_000)


def move(cluster: SeveralBrokers, topic: str, partition: int, address: str) -> None:
    cluster.keepers[topic, partition] = address


def restart_elsewhere(cluster: SeveralBrokers, before: str, after: str) -> None:
    """A broker comes up at another address with all that it kept."""
    cluster.brokers[cluster.brokers.index(before)] = after
    cluster.net.dead.add(before)
    for link in [one for one in cluster.net.links if one.address == before]:
        link.break_now()


async def read(client: Client, topic: str, partition: int = 0) -> list[bytes]:
    return [one.value async for one in client.read(topic, partition)]


def test_each_partition_is_written_and_read_at_its_broker() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t", 3)
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        for number in range(3):
            await producer.send(b"%d" % number, partition=number)
        got = [await consumer.receive() for _ in range(3)]
        for one in got:
            await consumer.ack(one)
        assert sorted(one.value for one in got) == [b"0", b"1", b"2"]
        for number in range(3):
            assert await read(client, "t", number) == [b"%d" % number]
        for name in ("send", "subscribe", "flow", "ack", "read"):
            assert set(cluster.asked(name)) == {FIRST, SECOND, THIRD}, name

    run_with(test)


def test_batches_under_way_follow_a_partition_that_moves() -> None:
    """The first is stored by the broker before, and not answered: its repeat is recognised."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", linger_ms=0)
        cluster.play.when("send").once(BREAK)
        sending = [asyncio.create_task(producer.send(b"%d" % one)) for one in range(3)]
        await cluster.play.came("send")
        move(cluster, "t", 0, SECOND)
        await asyncio.gather(*sending)
        assert partition.messages == [b"0", b"1", b"2"]
        assert cluster.asked("send")[-1] == SECOND
        await producer.send(b"3")
        assert cluster.asked("send")[-1] == SECOND

    run_with(test)


def test_who_waits_for_a_broker_that_is_away_finds_it_at_another_address() -> None:
    """Producer, consumer, ack and reader wait for links to the dead address when it moves."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        partitions = cluster.topic("t", 3)
        cluster.publish("t", [b"old"], 1)
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        old = await consumer.receive()
        restart_elsewhere(cluster, SECOND, FOURTH)
        results = await asyncio.gather(
            producer.send(b"new", partition=1),
            consumer.ack(old),
            read(client, "t", 1),
        )
        assert results[2][0] == b"old"
        assert (await consumer.receive()).value == b"new"
        assert partitions[1].messages == [b"old", b"new"]
        assert cluster.cursors["t", "s", 1].acked == {0}

    run_with(test, config=PATIENT)


def test_participants_of_a_transaction_move_with_their_partitions() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        (partition,) = cluster.topic("out")
        cluster.topic("in", 2)
        cluster.publish("in", [b"1"], 1)
        producer = await client.create_producer("out")
        consumer = await client.subscribe("in", "s", initial_position="earliest")
        message = await consumer.receive()
        async with client.transaction() as txn:
            cluster.play.when("send").once(HOLD)
            sending = asyncio.ensure_future(producer.send(b"a", txn=txn))
            await cluster.play.holds(1)
            move(cluster, "out", 0, THIRD)
            move(cluster, "in", 1, FIRST)
            cluster.play.release()
            await consumer.ack(message, txn=txn)
            await sending
        assert partition.messages == [b"a"]
        assert cluster.cursors["in", "s", 1].acked == {0}
        assert cluster.asked("send")[-1] == THIRD
        assert cluster.asked("ack")[-1] == FIRST

    run_with(test)


def test_a_consumer_that_its_broker_sends_away_attaches_where_the_partition_is() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t")
        consumer = await client.subscribe("t", "s")
        move(cluster, "t", 0, THIRD)
        cluster.close_consumers(PartitionMoved())
        await until(lambda: cluster.asked("subscribe")[-1] == THIRD)
        cluster.publish("t", [b"1"])
        assert (await consumer.receive()).value == b"1"

    run_with(test)


def test_a_look_up_goes_to_any_live_broker() -> None:
    """The client's only address is that of the broker which has died."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        partitions = cluster.topic("t", 3)
        producer = await client.create_producer("t")
        restart_elsewhere(cluster, FIRST, FOURTH)
        await producer.send(b"1", partition=0)
        assert partitions[0].messages == [b"1"]
        assert cluster.asked("lookup")[-1] == SECOND

    run_with(test, config=PATIENT)


def test_a_broker_that_is_away_delays_its_own_partitions_only() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t", 3)
        producer = await client.create_producer("t")
        cluster.net.dead.add(SECOND)
        waiting = asyncio.ensure_future(producer.send(b"late", partition=1))
        began_s = asyncio.get_running_loop().time()
        for _ in range(10):
            await producer.send(b"0", partition=0)
            await producer.send(b"2", partition=2)
        assert asyncio.get_running_loop().time() - began_s < 0.5
        assert not waiting.done()
        cluster.net.dead.clear()
        await waiting

    run_with(test, config=PATIENT)


def test_where_a_partition_stays_away_the_error_names_its_broker() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t", 3)
        cluster.net.dead.add(THIRD)
        with pytest.raises(LogUnavailable, match=f"no link to {THIRD}"):
            await read(client, "t", 2)
        with pytest.raises((LogUnavailable, OutcomeUnknown), match=THIRD):
            await client.admin.transactions.describe_producers("t", 2)

    run_with(test)


def test_an_address_that_another_cluster_has_taken_is_refused_and_looked_up() -> None:
    """The call that meets the stranger fails, and the next one finds the broker."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        partitions = cluster.topic("t", 3)
        producer = await client.create_producer("t")
        restart_elsewhere(cluster, SECOND, FOURTH)
        cluster.net.dead.clear()
        cluster.hashes[SECOND] = "other"
        with pytest.raises(ClusterMismatch):
            await producer.send(b"1", partition=1)
        await until(lambda: len(cluster.asked("lookup")) == 2)
        await producer.send(b"2", partition=1)
        assert partitions[1].messages == [b"2"]
        assert SECOND not in cluster.asked("send")

    run_with(test)


@pytest.mark.parametrize("name", ["unsubscribe", "create_topic"])
def test_a_request_that_may_have_arrived_is_in_doubt_when_its_server_is_a_stranger_then(
    name: str,
) -> None:
    """The refusal says that nothing happened, which holds for the last attempt only."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t")

        def last_words(body: object) -> object:
            cluster.hashes.update(dict.fromkeys(cluster.brokers, "other"))
            return BREAK

        cluster.play.when(name).once(last_words)
        admin = client.admin
        await admin.subscriptions.create("t", "s")
        asking: dict[str, Callable[[], Awaitable[object]]] = {
            "create_topic": lambda: admin.topics.create("new"),
            "unsubscribe": lambda: admin.subscriptions.delete("t", "s"),
        }
        with pytest.raises(OutcomeUnknown, match="cannot be sent again to know"):
            await asking[name]()

    run_with(test)


def test_sends_and_subscriptions_name_the_broker_that_stays_away() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t", 3)
        producer = await client.create_producer("t")
        cluster.net.dead.add(THIRD)
        with pytest.raises(LogUnavailable, match=f"could not be sent to {THIRD}"):
            await producer.send(b"1", partition=2)
        with pytest.raises(LogUnavailable, match=f"the broker at {THIRD} did not take"):
            await client.subscribe("t", "s")

    run_with(test)


def test_a_partition_that_moves_for_ever_is_given_up() -> None:
    """Each broker says that another has it, as when their lists differ."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        cluster.play.when("send", "read").always(PartitionMoved())
        with pytest.raises(PartitionMoved):
            await read(client, "t")
        with pytest.raises(MagnetarError):
            await producer.send(b"1")
        # With pauses: nobody asks in a loop.
        assert len(cluster.asked("lookup")) < 3_000

    run_with(test)


def test_a_topic_that_is_made_anew_while_it_moves_is_another() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        topic_id = cluster.topics["t"][0]
        cluster.topics["t"] = (topic_id + 100, [Partition()])
        move(cluster, "t", 0, SECOND)
        with pytest.raises(MagnetarError):
            await producer.send(b"1")
        assert set(cluster.asked("send")) == {FIRST}

    run_with(test)


def test_a_refresh_that_comes_late_serves_those_who_ask_then() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        move(cluster, "t", 0, SECOND)
        cluster.play.when("lookup").once(HOLD)
        sending = asyncio.ensure_future(producer.send(b"1"))
        await cluster.play.holds(1)
        move(cluster, "t", 0, THIRD)
        cluster.play.release()
        await sending
        assert partition.messages == [b"1"]

    run_with(test, config=PATIENT)


@pytest.mark.parametrize(("partition", "refusal"), [(-1, InvalidArgument), (3, TopicNotFound)])
def test_a_partition_that_a_topic_does_not_have_is_refused_before_it_is_asked_for(
    partition: int, refusal: type[MagnetarError]
) -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t", 3)
        for asking in (
            client.admin.topics.skip_damaged("t", partition),
            client.admin.topics.peek_uncommitted("t", partition),
            client.admin.topics.stored_transactions("t", partition),
            client.admin.topics.list_offsets("t", partitions=[partition]),
            client.admin.transactions.describe_producers("t", partition),
            client.admin.transactions.find_hanging("t", partition),
            client.admin.subscriptions.seek("t", "s", offset=0, partition=partition),
        ):
            with pytest.raises(refusal, match=f"partitions? .*{partition}"):
                await asking
        with pytest.raises(InvalidArgument):
            await read(client, "t", partition)

    run_with(test)
