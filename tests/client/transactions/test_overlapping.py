"""Overlapping transactions of a producer, and the order of later messages (rule k)."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.fakes import FakeCluster, run
from tests.playbook import HOLD

from magnetar import Client
from magnetar.messaging.sending.followed_transactions import FOLLOWED_MAX
from magnetar_core.ids import TxnID


def names(cluster: FakeCluster) -> list[set[TxnID]]:
    """The transactions that each send named as coming before it."""
    return [
        {TxnID.from_wire(named) for named in one.follows_txn_ids}
        for one in cluster.play.commands("send")
    ]


def test_what_comes_after_transactions_that_overlapped_follows_all_of_them() -> None:
    """Order (k): it named the one that had ended last, and could pass the messages of the other."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)

        first, second = [await client.begin_transaction() for _ in range(2)]
        for txn in (first, second):
            await producer.send(b"x", txn=txn)
        for txn in (first, second):
            await txn.commit()
        third = await client.begin_transaction()
        await producer.send(b"y", txn=third)
        late = await client.begin_transaction()
        await producer.send(b"y", txn=late)
        await producer.send_many([b"z"])
        await third.commit()
        # The plain send was acknowledged, so nothing earlier is to be named.
        await producer.send(b"z")
        await late.commit()
        both = {first.txn_id, second.txn_id}
        assert names(cluster) == [set(), set(), both, both, both, {third.txn_id}]

    run(test)


def test_those_that_a_broker_has_settled_are_not_named_again() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        ended = [await client.begin_transaction() for _ in range(3)]
        for txn in ended:
            await producer.send(b"x", txn=txn)
        for txn in ended:
            await txn.commit()
        first, second, third = [one.txn_id for one in ended]
        cluster.settled = [first, third]
        for _ in range(2):
            await producer.send(b"y", txn=await client.begin_transaction())
        assert names(cluster)[-2:] == [{first, second, third}, {second}]

    run(test)


@pytest.mark.parametrize("count", [1, 3])
def test_when_all_are_settled_nobody_is_named_again(count: int) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        ended = [await client.begin_transaction() for _ in range(count)]
        for txn in ended:
            await producer.send(b"x", txn=txn)
        for txn in ended:
            await txn.commit()
        cluster.settled = [one.txn_id for one in ended]
        later = await client.begin_transaction()
        await producer.send(b"y", txn=later)
        await producer.send(b"y", txn=await client.begin_transaction())
        # The same as with its first send: it still waits for whatever that named.
        await producer.send(b"y", txn=later)
        named = set(cluster.settled)
        assert names(cluster)[count:] == [named, set(), named]

    run(test)


@pytest.mark.parametrize("all_settled", [True, False])
def test_an_answer_settles_nobody_who_ended_after_its_send(all_settled: bool) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        first, second, third = [await client.begin_transaction() for _ in range(3)]
        for txn in (first, second, third):
            await producer.send(b"x", txn=txn)
        for txn in (first, second):
            await txn.commit()
        cluster.settled = [first.txn_id, *([second.txn_id] if all_settled else [])]
        cluster.play.received.clear()
        cluster.play.when("send").always(HOLD)
        send = asyncio.ensure_future(producer.send(b"y", txn=await client.begin_transaction()))
        await cluster.play.holds(1)
        cluster.play.forget()
        await third.commit()
        cluster.play.release()
        await send
        await producer.send(b"y", txn=await client.begin_transaction())
        left = {third.txn_id} if all_settled else {second.txn_id, third.txn_id}
        assert names(cluster) == [{first.txn_id, second.txn_id}, left]

    run(test)


def test_a_send_names_no_more_than_a_broker_takes() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        overlapping = [await client.begin_transaction() for _ in range(FOLLOWED_MAX + 1)]
        for txn in overlapping:
            await producer.send(b"x", txn=txn)
        for txn in overlapping:
            await txn.commit()
        await producer.send(b"plain")
        last = cluster.play.commands("send")[-1]
        assert [TxnID.from_wire(one) for one in last.follows_txn_ids] == [
            one.txn_id for one in overlapping[-FOLLOWED_MAX:]
        ]

    run(test)


def test_a_transaction_comes_after_those_that_had_ended_when_it_began() -> None:
    """Its first message was there before: what is settled since then need not be named."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        first, second, third, other = [await client.begin_transaction() for _ in range(4)]
        for txn in (first, second, third):
            await producer.send(b"x", txn=txn)
        for txn in (first, second):
            await txn.commit()
        cluster.play.received.clear()
        cluster.play.when("new_txn").always(HOLD)
        late = await client.begin_transaction(lazy=True)
        send = asyncio.ensure_future(producer.send(b"y", txn=late))
        await cluster.play.holds(1)
        cluster.play.forget()
        cluster.settled = [first.txn_id]
        await producer.send(b"z", txn=other)
        await third.commit()
        cluster.play.release()
        await send
        assert names(cluster) == [
            {first.txn_id, second.txn_id},
            {second.txn_id, third.txn_id},
        ]

    run(test)


def test_a_plain_send_that_is_repeated_names_whom_it_follows_by_then() -> None:
    """What has ended since the first attempt comes before it too; a transaction's names stay."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        first, second, third = [await client.begin_transaction() for _ in range(3)]
        for txn in (first, second):
            await producer.send(b"x", txn=txn)
        await first.commit()
        cluster.play.received.clear()
        cluster.play.when("end_txn", "send").always(HOLD)
        commit = asyncio.ensure_future(second.commit())
        await cluster.play.holds(1)
        sends = [asyncio.ensure_future(producer.send(b"y", txn=txn)) for txn in (None, third)]
        await cluster.play.holds(3)
        cluster.play.forget()
        del cluster.play.held[1:]
        cluster.play.release()
        await commit
        cluster.net.break_links()
        await asyncio.gather(*sends)
        one, both = {first.txn_id}, {first.txn_id, second.txn_id}
        assert sorted(names(cluster), key=len) == [one, one, one, both]

    run(test)


def test_after_an_abort_whatever_came_before_it_still_does() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        alone, first, second = [await client.begin_transaction() for _ in range(3)]
        await producer.send(b"x", txn=alone)
        await alone.abort()
        await producer.send(b"plain")
        for txn in (first, second):
            await producer.send(b"x", txn=txn)
        for txn in (first, second):
            await txn.commit()
        third = await client.begin_transaction()
        await producer.send(b"y", txn=third)
        # The first of these is acknowledged: nobody is named in the second.
        for _ in range(2):
            await producer.send(b"plain")
        await third.abort()
        await producer.send(b"plain")
        both = {first.txn_id, second.txn_id}
        assert names(cluster) == [set(), {alone.txn_id}, set(), set(), both, both, set(), both]

    run(test)
