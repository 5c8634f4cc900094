"""The order of one producer: plain sends and transactions do not overtake each other."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from tests.client.fakes import FAST, FakeCluster, run
from tests.playbook import HOLD
from tests.virtual_time import time_passes

from magnetar import (
    Client,
    InvalidTxnState,
    OutcomeUnknown,
    TxnID,
)


def test_after_its_end_plain_sends_follow_a_transaction_until_one_is_acknowledged() -> None:
    """docs/design/0001-protocol.md, Order (k)."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights", 2)
        producer = await client.create_producer("flights", batch_messages_max=1)
        async with client.transaction() as txn:
            await producer.send(b"x", partition=0, txn=txn)
        cluster.play.received.clear()
        await asyncio.gather(*(producer.send(b"y", partition=0) for _ in range(2)))
        await producer.send(b"y", partition=0)
        await producer.send(b"y", partition=1)
        assert followed(cluster) == [[txn.txn_id], [txn.txn_id], [], []]

    run(test)


def test_the_next_transaction_follows_the_one_before_in_all_its_batches() -> None:
    """docs/design/0001-protocol.md, Order (k)."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        async with client.transaction() as first:
            await producer.send(b"x", txn=first)
        cluster.play.received.clear()
        async with client.transaction() as second:
            await producer.send(b"y", txn=second)
            await producer.send(b"y", txn=second)
        assert followed(cluster) == [[first.txn_id]] * 2
        # One that aborts leaves nothing to follow: what it followed itself still leads.
        third = await client.begin_transaction()
        await producer.send(b"z", txn=third)
        await third.abort()
        await producer.send(b"plain")
        assert followed(cluster)[-1] == [second.txn_id]

    run(test)


def followed(cluster: FakeCluster) -> list[list[TxnID]]:
    """What each send named that it comes after."""
    return [
        [TxnID.from_wire(named) for named in one.follows_txn_ids]
        for one in cluster.play.commands("send")
    ]


@pytest.mark.parametrize("commit", [True, False])
def test_one_whose_outcome_is_learned_late_does_not_lead_again(commit: bool) -> None:
    """Order (k): what came after it leads by then. Plain sends named it, and overtook the rest."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        unknown = await client.begin_transaction()
        await producer.send(b"x", txn=unknown)
        cluster.play.when("end_txn").always(HOLD)
        with pytest.raises(OutcomeUnknown):
            await unknown.commit()
        cluster.play.forget()
        async with client.transaction() as later:
            await producer.send(b"y", txn=later)
        if not commit:
            cluster.end(unknown.txn_id, commit=False)
        cluster.play.received.clear()
        if commit:
            await unknown.commit()
        else:
            with pytest.raises(InvalidTxnState):
                await unknown.commit()
        await producer.send(b"plain")
        async with client.transaction() as last:
            await producer.send(b"z", txn=last)
        assert followed(cluster) == [[later.txn_id], []]

    run(test, dataclasses.replace(FAST, commit_timeout_ms=50))


@pytest.mark.parametrize("earlier", [False, True])
def test_a_plain_send_that_named_another_one_ends_nothing(earlier: bool) -> None:
    """Order (k): sent while the commit was asked for, it says nothing of that transaction's end."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        first: list[TxnID] = []
        if earlier:
            async with client.transaction() as txn:
                await producer.send(b"x", txn=txn)
            first = [txn.txn_id]
        txn = await client.begin_transaction()
        await producer.send(b"y", txn=txn)
        cluster.play.received.clear()
        cluster.play.when("end_txn", "send").always(HOLD)
        commit = asyncio.ensure_future(txn.commit())
        await cluster.play.holds(1)
        plain = asyncio.ensure_future(producer.send(b"plain"))
        await cluster.play.holds(2)
        cluster.play.forget()
        later = [cluster.play.held.pop()]
        cluster.play.release()
        await commit
        cluster.play.held = later
        cluster.play.release()
        await plain
        await producer.send(b"plain")
        await producer.send(b"plain")
        assert followed(cluster) == [first, [txn.txn_id], []]

    run(test)


def test_a_commit_is_asked_for_when_plain_sends_before_it_are_stored() -> None:
    """Their answers are under way: its marker could come before them."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        txn = await client.begin_transaction()
        await producer.send(b"transactional", txn=txn)
        cluster.play.when("send").always(HOLD)
        plain = asyncio.ensure_future(producer.send(b"plain"))
        await cluster.play.holds()
        commit = asyncio.ensure_future(txn.commit())
        await time_passes(0.005)
        assert not cluster.play.commands("end_txn")
        cluster.play.release()
        await plain
        await commit
        assert partition.messages == [b"plain", b"transactional"]

    run(test)


def test_plain_sends_before_a_commit_come_before_its_marker() -> None:
    """docs/protocol/rules.md, order of a producer's plain sends and transactions."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=60_000)
        async with client.transaction() as txn:
            producer.send_nowait(b"plain", txn=None)
            producer.send_nowait(b"transactional", txn=txn)
        assert partition.messages == [b"plain", b"transactional"]

    run(test)


def test_two_transactions_of_one_producer_do_not_wait_for_each_other() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        open_one = await client.begin_transaction()
        await producer.send(b"a", txn=open_one)
        async with client.transaction() as other:
            await producer.send(b"b", txn=other)
        assert partition.messages == [b"b"]
        assert not any(followed(cluster))
        await open_one.commit()
        assert partition.messages == [b"b", b"a"]

    run(test)
