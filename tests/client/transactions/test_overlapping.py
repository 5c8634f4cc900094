"""Overlapping transactions of a producer, and the order of later messages (rule k)."""

from __future__ import annotations

from tests.client.fakes import FakeCluster, run

from magnetar import Client
from magnetar.messaging.batch_delivery import FOLLOWED_MAX
from magnetar_core.ids import TxnID


def test_what_comes_after_transactions_that_overlapped_follows_all_of_them() -> None:
    """Order (k): it named the one that had ended last, and could pass the messages of the other."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)

        def names() -> list[set[TxnID]]:
            return [
                {
                    TxnID.from_wire(named)
                    for named in (one.follows_txn_id, *one.also_follows_txn_ids)
                    if one.HasField("follows_txn_id")
                }
                for one in cluster.play.commands("send")
            ]

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
        assert names() == [set(), set(), both, both, both, {third.txn_id}]

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
        named = cluster.play.commands("send")[-2:]
        assert [TxnID.from_wire(one.follows_txn_id) for one in named] == [third, second]
        assert [len(one.also_follows_txn_ids) for one in named] == [2, 0]

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
        assert TxnID.from_wire(last.follows_txn_id) == overlapping[-1].txn_id
        assert len(last.also_follows_txn_ids) == FOLLOWED_MAX - 1

    run(test)
