"""Cuts of real servers: what is in them, and what becomes of them when servers fail.

Source: docs/design/0015-cuts.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.cuts.cluster import BROKERS, COORDINATORS, HASTY, Cluster, at_each_broker, run
from tests.virtual_time import time_passes

from magnetar import (
    Client,
    Cut,
    CutUnfinished,
    PreparedTxnState,
    Producer,
    Transaction,
    TransactionStatus,
)
from magnetar.cuts.taking import CutTaker
from magnetar_coordinator.ending import cut_closings
from magnetar_core.errors import (
    Gone,
    InvalidArgument,
    LogUnavailable,
    OutOfRange,
    QuotaExceeded,
    TopicNotFound,
)

Taking = Callable[[Cluster], Coroutine[Any, Any, None]]


async def read(client: Client, partition: int, topic: str = "t", **how: Any) -> list[bytes]:
    return [one.value async for one in client.read(topic, partition, **how)]


async def read_all(client: Client, at: Cut | str, topic: str = "t", **how: Any) -> list[bytes]:
    """Everything that a cut has of a topic."""
    return sorted(
        [value for number in range(8) for value in await read(client, number, topic, at=at, **how)]
    )


async def sent(
    client: Client, producer: Producer, places: tuple[int, ...], value: bytes
) -> Transaction:
    """Begin a transaction with a message in each of these partitions."""
    txn = await client.begin_transaction()
    for place in places:
        await producer.send(value, partition=place, txn=txn)
    return txn


async def commit(
    client: Client,
    producer: Producer,
    places: tuple[int, ...],
    value: bytes,
    *,
    finished: bool = False,
) -> None:
    """Write a message to each of these partitions in a transaction."""
    txn = await sent(client, producer, places, value)
    await txn.commit(wait_finished=finished)


def hold_up_ends(cluster: Cluster, seconds: float) -> None:
    """The second broker hears of no decision for a while."""
    for name in COORDINATORS:
        cluster.network.hold_up(name, BROKERS[1], seconds)


def test_a_cut_waits_until_what_was_answered_is_whole() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        txn = await sent(client, producer, places, b"x")
        hold_up_ends(cluster, 3.0)
        await txn.commit()
        described = await client.admin.transactions.describe(txn.txn_id)
        assert described.stamp == client._runtime.seen_stamp > 0
        await time_passes(0.5)
        # Without a cut, it is torn.
        assert [await read(client, place) for place in places] == [[b"x"], []]
        began_s = cluster.loop.time()
        cut = await client.cut("t")
        assert cluster.loop.time() - began_s > 2
        assert [await read(client, place, at=cut) for place in places] == [[b"x"], [b"x"]]

    run(scenario)


def test_what_comes_later_is_left_out_and_read_between_the_cuts() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        await producer.send(b"plain 1", partition=places[0])
        await commit(client, producer, places, b"1")
        first = await client.cut(["t"])
        token = str(first)
        await producer.send(b"plain 2", partition=places[0])
        await commit(client, producer, places, b"2")
        second = await client.cut("t")
        await commit(client, producer, places, b"3")
        for cut in (first, token, Cut.parse(token)):
            assert await read_all(client, cut) == [b"1", b"1", b"plain 1"]
        assert await read_all(client, second, since=token) == [b"2", b"2", b"plain 2"]
        assert await read_all(client, second, since=second) == []
        assert await read(client, places[0], at=first, start=1) == [b"1"]
        assert await read(client, places[0], at=first, end=1) == [b"plain 1"]
        assert first.topics == ("t",)
        assert first.partition_count("t") == 8
        assert first.time_ms <= second.time_ms

    run(scenario)


def test_a_cut_has_the_partitions_of_its_moment() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        await commit(client, producer, places, b"1")
        before = await client.cut("t")
        await client.admin.topics.alter("t", partitions=10, keys_move=True)
        grown = await client.create_producer("t")
        await commit(client, grown, (places[0], 8, 9), b"2")
        await grown.send(b"plain", partition=9)
        after = await client.cut("t")
        assert (before.partition_count("t"), after.partition_count("t")) == (8, 10)

        async def all_of(at: Cut, **how: Any) -> list[bytes]:
            return sorted([one.value async for one in client.read("t", at=at, **how)])

        assert await all_of(before) == [b"1", b"1"]
        assert await all_of(after) == [b"1", b"1", b"2", b"2", b"2", b"plain"]
        assert await all_of(after, since=before) == [b"2", b"2", b"2", b"plain"]
        assert await read(client, 9, at=after, since=before) == [b"2", b"plain"]
        with pytest.raises(InvalidArgument, match="no partition 9 in the cut"):
            await read(client, 9, at=before)

    run(scenario)


def test_a_commit_while_the_cut_is_taken_is_left_out_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its markers lie below the end at which the cut looks last; the next cut has them."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")

        async def commit_some(_cluster: Cluster) -> None:
            for _number in range(4):
                await commit(client, producer, places, b"x", finished=True)

        before = await client.cut("t")
        during(monkeypatch, cluster, commit_some)
        cut = await client.cut("t")
        assert await read(client, places[0]) == [b"x"] * 4
        assert await read_all(client, cut) == []
        at = cut.taken.partition("t", places[0])
        assert (at.begun_offset, at.end_offset) == (0, 4)
        monkeypatch.undo()
        later = await client.cut("t")
        assert await read_all(client, later, since=cut) == [b"x"] * 8
        assert await read_all(client, later, since=before) == [b"x"] * 8

    run(scenario)


def test_open_and_prepared_transactions_delay_no_cut() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        txn = await client.begin_transaction()
        await producer.send(b"open", partition=places[0], txn=txn)
        async with client.transactional_producer("app", two_phase_commit=True) as app:
            await app.init()
            await app.begin()
            await app.send("t", b"prepared", partition=places[1])
            await app.prepare()
            began_s = cluster.loop.time()
            cut = await client.cut("t")
            assert cluster.loop.time() - began_s < 1
            assert await read_all(client, cut) == []
            await app.commit()
        await txn.commit()
        assert await read_all(client, await client.cut("t")) == [b"open", b"prepared"]

    run(scenario)


def test_a_broker_that_is_away_holds_the_cut_up() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        txn = await sent(client, producer, places, b"x")
        cluster.brokers[1].crash(power_loss=False)
        await txn.commit()
        async with await cluster.connect(HASTY) as other:
            with pytest.raises(LogUnavailable):
                await other.cut("t", timeout_s=1.0)
        waiting = asyncio.ensure_future(client.cut("t"))
        await time_passes(10)
        assert not waiting.done()
        await cluster.start(cluster.brokers[1])
        assert await read_all(client, await waiting) == [b"x", b"x"]

    run(scenario)


def test_a_coordinator_that_is_away_holds_the_cut_up() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        await at_each_broker(client, "t")
        cluster.coordinators[1].crash(power_loss=False)
        with pytest.raises(LogUnavailable, match=COORDINATORS[1]):
            await client.cut("t", timeout_s=1.0)
        waiting = asyncio.ensure_future(client.cut("t"))
        await time_passes(10)
        assert not waiting.done()
        await cluster.start(cluster.coordinators[1])
        await waiting

    run(scenario)


def test_a_commit_that_does_not_finish_is_named() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        txn = await sent(client, producer, places, b"x")
        hold_up_ends(cluster, 30.0)
        await txn.commit()
        began_s = cluster.loop.time()
        with pytest.raises(CutUnfinished, match=str(txn.txn_id)) as raised:
            await client.cut("t", timeout_s=8.0)
        assert 7 < cluster.loop.time() - began_s < 12
        assert raised.value.details["txn_ids"] == str(txn.txn_id)
        assert raised.value.retriable
        cut = await client.cut("t")
        assert await read_all(client, cut) == [b"x", b"x"]

    run(scenario)


# What follows what, across coordinators.


async def commit_at(
    client: Client, producer: Producer, partition: int, value: bytes, tcid: int
) -> int:
    """Commit at a coordinator; returns the highest stamp that the client knows then."""
    while True:
        txn = await client.begin_transaction()
        await producer.send(value, partition=partition, txn=txn)
        if txn.txn_id.tcid == tcid:
            await txn.commit()
            return client._runtime.seen_stamp
        await txn.abort()


@pytest.mark.parametrize("how", ["own", "read", "consumed", "offsets", "listed", "described"])
def test_what_was_seen_is_stamped_lower_whichever_coordinators_decide(how: str) -> None:
    """The second coordinator's clock is five seconds behind."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        cause = await commit_at(client, producer, places[0], b"cause", 0)
        async with await cluster.connect() as other:
            reactor = client if how == "own" else other
            sender = await reactor.create_producer("t")
            if how == "read":
                await client.cut("t")
                assert await read(other, places[0]) == [b"cause"]
            elif how == "consumed":
                consumer = await other.subscribe("t", "s", initial_position="earliest")
                await consumer.receive()
            elif how == "offsets":
                await client.cut("t")
                await other.admin.topics.list_offsets("t")
            elif how in ("listed", "described"):
                await client.cut("t")
                asker = other if how == "listed" else client
                (found,) = await asker.admin.transactions.list(
                    statuses=[TransactionStatus.COMMITTED]
                )
                if how == "described":
                    await other.admin.transactions.describe(found.txn_id)
            effect = await commit_at(reactor, sender, places[1], b"effect", 1)
            assert effect > cause

    run(scenario)


def test_what_is_read_after_the_beginning_is_a_cause_too() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        async with await cluster.connect() as other:
            sender = await other.create_producer("t")
            while True:
                txn = await other.begin_transaction()
                if txn.txn_id.tcid == 1:
                    break
                await txn.abort()
            cause = await commit_at(client, producer, places[0], b"cause", 0)
            consumer = await other.subscribe("t", "s", initial_position="earliest")
            await consumer.receive()
            await sender.send(b"effect", partition=places[1], txn=txn)
            await txn.commit()
            assert other._runtime.seen_stamp > cause

    run(scenario)


def test_without_any_hint_the_clock_behind_gives_lower_stamps() -> None:
    """So that the test above can fail."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        first = await commit_at(client, producer, places[0], b"1", 0)
        async with await cluster.connect() as other:
            sender = await other.create_producer("t")
            assert await commit_at(other, sender, places[1], b"2", 1) < first

    run(scenario)


def test_who_prepares_tells_what_it_has_seen() -> None:
    """Another process may decide, which has seen nothing."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        cause = await commit_at(client, producer, places[0], b"cause", 0)
        name = await name_at(client, 1)
        async with await cluster.connect() as other:
            app = other.transactional_producer(name, two_phase_commit=True)
            await app.init()
            await app.begin()
            consumer = await other.subscribe("t", "s", initial_position="earliest")
            await consumer.receive()
            await app.send("t", b"effect", partition=places[1])
            state = await app.prepare()
        async with await cluster.connect() as third:
            heir = third.transactional_producer(name, two_phase_commit=True)
            await heir.init(keep_prepared=True)
            await heir.complete(PreparedTxnState.parse(str(state)))
            assert third._runtime.seen_stamp > cause

    run(scenario)


async def name_at(client: Client, tcid: int) -> str:
    """A transactional id of a coordinator."""
    wanted = (await client._cluster.coordinators(tcid))[0]
    for number in range(1_000):
        name = f"app-{number}"
        if await client._cluster.coordinator_for(name) is wanted:
            return name
    raise AssertionError("every name belongs to the other one")


def test_a_commit_of_parts_is_stamped_above_what_each_client_saw() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        cause = await commit_at(client, producer, places[0], b"cause", 0)
        name = await name_at(client, 1)
        async with await cluster.connect() as worker, await cluster.connect() as driver:
            txn = await worker.begin_named_transaction(name, 1, "run")
            consumer = await worker.subscribe("t", "s", initial_position="earliest")
            await consumer.receive()
            sender = await worker.create_producer("t")
            await sender.send(b"effect", partition=places[1], txn=txn)
            await driver.commit_parts([await txn.leave()])
            assert driver._runtime.seen_stamp > cause

    run(scenario)


# Servers that fail.


def during(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, happen: Taking) -> list[int]:
    """Let something happen once, between the closing of the past and the last look at offsets.

    Returns:
        A list that grows with each attempt to close.
    """
    closings: list[int] = []
    ask_all = CutTaker._ask_all

    async def closing(self: CutTaker, ask: Any) -> Any:
        answers = await ask_all(self, ask)
        if "_close_all_of" in str(ask):
            closings.append(len(closings))
            if len(closings) == 1:
                await happen(cluster)
        return answers

    monkeypatch.setattr(CutTaker, "_ask_all", closing)
    return closings


@pytest.mark.parametrize("tcid", [0, 1])
def test_a_coordinator_that_loses_its_store_makes_the_cut_void(
    monkeypatch: pytest.MonkeyPatch, tcid: int
) -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")

        async def lose(_: Cluster) -> None:
            await cluster.replace_disk(cluster.coordinators[tcid])

        closings = during(monkeypatch, cluster, lose)
        cut = await client.cut("t")
        assert len(closings) == 2
        await commit(client, producer, places, b"later")
        assert await read_all(client, cut) == []

    run(scenario)


@pytest.mark.parametrize("power_loss", [False, True])
def test_servers_that_restart_meanwhile_do_not_harm_it(
    monkeypatch: pytest.MonkeyPatch, power_loss: bool
) -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        await commit(client, producer, places, b"1")

        async def restart(_: Cluster) -> None:
            for node in cluster.nodes:
                node.crash(power_loss=power_loss)
                node.clock.wall_offset_ms -= 60_000
            await cluster.start()
            await commit(client, producer, places, b"2", finished=True)

        closings = during(monkeypatch, cluster, restart)
        cut = await client.cut("t")
        assert len(closings) == 1
        assert await read_all(client, cut) == [b"1", b"1"]

    run(scenario)


def test_a_coordinator_that_lost_its_disk_and_its_clock_hides_no_commit() -> None:
    """It tells a clock below the stamps of its former life: the partitions know better."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        for node in cluster.coordinators:
            node.clock.wall_offset_ms += 3_600_000
        await commit(client, producer, places, b"1", finished=True)
        for node in cluster.coordinators:
            node.clock.wall_offset_ms -= 2 * 3_600_000
            await cluster.replace_disk(node)
        async with await cluster.connect() as other:
            first = await other.cut("t")
            assert await read_all(other, first) == [b"1", b"1"]
            sender = await other.create_producer("t")
            await commit(other, sender, places, b"2")
            second = await other.cut("t")
            assert await read_all(other, second, since=first) == [b"2", b"2"]

    run(scenario)


def test_a_store_that_is_lost_before_the_clocks_are_asked_makes_the_cut_void(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The partitions were looked at before the markers, and the clock knows nothing of its stamps.

    The model of cuts found this: a commit that had been answered was not in the cut.
    """

    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        node = cluster.coordinators[0]
        node.clock.wall_offset_ms += 3_600_000
        txn = await sent(client, producer, places, b"x")
        while txn.txn_id.tcid != 0:
            await txn.abort()
            txn = await sent(client, producer, places, b"x")
        for broker in BROKERS:
            cluster.network.hold_up(COORDINATORS[0], broker, 3.0)
        await txn.commit()

        offsets = CutTaker._offsets
        looks: list[int] = []

        async def look(self: CutTaker) -> Any:
            found = await offsets(self)
            looks.append(len(looks))
            if len(looks) == 1:
                assert all(one.highest_stamp == 0 for _, some in found.values() for one in some)
                await cluster.until(lambda: not cluster.coordinators[0].server._runtime.shard.live)
                node.clock.wall_offset_ms -= 2 * 3_600_000
                await cluster.replace_disk(node)
            return found

        monkeypatch.setattr(CutTaker, "_offsets", look)
        cut = await client.cut("t")
        assert await read_all(client, cut) == [b"x", b"x"]

    run(scenario)


def test_a_list_of_members_that_is_not_the_latest_makes_the_cut_void(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server has told of a later list: a coordinator that is not asked may have commits."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        await at_each_broker(client, "t")
        runtime = client._runtime
        known = runtime.cluster

        async def hear_of_a_later_list(_: Cluster) -> None:
            runtime.cluster = known._replace(membership_version=runtime.members_version + 1)
            assert not runtime.has_one_coordinator

        closings = during(monkeypatch, cluster, hear_of_a_later_list)
        waiting = asyncio.ensure_future(client.cut("t"))
        await cluster.until(lambda: len(closings) > 2)
        assert not waiting.done()
        runtime.cluster = known
        await waiting
        runtime.cluster = known._replace(membership_version=runtime.members_version + 1)
        with pytest.raises(LogUnavailable, match="their list"):
            await client.cut("t", timeout_s=0.5)

    run(scenario)


def test_a_cut_waits_for_a_place_among_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        txn = await sent(client, producer, places, b"x")
        hold_up_ends(cluster, 30.0)
        await txn.commit()
        monkeypatch.setattr(cut_closings, "WAITING_MAX", 0)
        with pytest.raises(QuotaExceeded):
            await client.cut("t", timeout_s=1.0)
        waiting = asyncio.ensure_future(client.cut("t"))
        await time_passes(2)
        assert not waiting.done()
        monkeypatch.undo()
        assert await read_all(client, await waiting) == [b"x", b"x"]

    run(scenario)


# Reading what is not there any more.


def test_a_cut_of_which_retention_has_removed_something_is_not_read_in_part() -> None:
    """What has come since the earlier cut is all there, and is read."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t", retention_ms=60_000)
        producer = await client.create_producer("t")
        await commit(client, producer, places, b"1")
        first = await client.cut("t")
        await time_passes(30)
        await commit(client, producer, places, b"2")
        second = await client.cut("t")
        logs = [
            one.log
            for node in cluster.brokers
            for topic in node.server.topics.all()
            for one in topic.partitions
            if topic.record.topic == "t"
        ]
        await cluster.until(lambda: sum(log.first_offset for log in logs) == 2)
        for cut in (first, second):
            for one in places:
                with pytest.raises(OutOfRange):
                    await read(client, one, at=cut)
        assert [await read(client, place, at=second, start=1) for place in places] == [[b"2"]] * 2
        assert await read_all(client, second, since=first) == [b"2", b"2"]
        assert await read_all(client, await client.cut("t")) == [b"2", b"2"]

    run(scenario)


def test_a_topic_that_was_made_again_is_another() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        cut = await client.cut("t")
        await at_each_broker(client, "u")
        with pytest.raises(TopicNotFound, match="'u'"):
            await read(client, 0, "u", at=cut)
        await client.admin.topics.delete("t")
        await at_each_broker(client, "t")
        with pytest.raises(Gone):
            await read(client, places[0], at=cut)

    run(scenario)


def test_a_restored_partition_is_not_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        await commit(client, producer, places, b"1")
        cut = await client.cut("t")

        async def restore(_: Cluster) -> None:
            for topic in cluster.brokers[0].server.topics.all():
                for one in topic.partitions:
                    one.log.ledger_id += 1

        closings = during(monkeypatch, cluster, restore)
        again = await client.cut("t")
        assert len(closings) == 2, "the cut was void"
        assert await read_all(client, again) == [b"1", b"1"]
        with pytest.raises(OutOfRange, match="restored"):
            await read(client, places[0], at=cut)
        assert await read(client, places[1], at=cut) == [b"1"]
        with pytest.raises(InvalidArgument, match="restored between"):
            await read(client, places[0], at=again, since=cut)

    run(scenario)


def test_a_cut_of_another_cluster_is_refused() -> None:
    """By its id, or else because it ends where this one has nothing."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        await commit(client, producer, places, b"1")
        taken = (await client.cut("t")).taken
        topic = taken.topic("t")
        longer = topic._replace(
            partitions=tuple(
                one._replace(end_offset=one.end_offset + 1) for one in topic.partitions
            )
        )
        foreign = Cut(taken._replace(topics={"t": longer}))
        for number in range(8):
            with pytest.raises(OutOfRange, match="another cluster"):
                await read(client, number, at=foreign)
        client._runtime.cluster = client._runtime.cluster._replace(cluster_id="here")
        with pytest.raises(InvalidArgument, match="'there'"):
            await read(client, 0, at=Cut(taken._replace(cluster_id="there")))
        assert await read(client, places[0], at=Cut(taken)) == [b"1"]

    run(scenario)


def test_what_makes_no_sense_is_refused() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        await at_each_broker(client, "t")
        cut = await client.cut("t")
        for wrong in (
            {"since": cut},
            {"at": "cut1-AAAA"},
            {"at": cut, "follow_period_s": 1.0},
        ):
            with pytest.raises(InvalidArgument):
                await read(client, 0, **wrong)
        with pytest.raises(InvalidArgument, match="no partition 8"):
            await read(client, 8, at=cut)
        with pytest.raises(InvalidArgument, match="name one"):
            await client.cut([])
        with pytest.raises(TopicNotFound):
            await client.cut(["t", "absent"])

    run(scenario)
