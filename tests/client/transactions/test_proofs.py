"""What a coordinator gives with a TxnID goes to brokers as it is, whoever began, and how."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.fakes import FakeCluster, run

from magnetar import Client, Transaction
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2


async def _eager(client: Client) -> Transaction:
    return await client.begin_transaction()


async def _lazy(client: Client) -> Transaction:
    return await client.begin_transaction(lazy=True)


async def _named(client: Client) -> Transaction:
    return await client.begin_named_transaction("name", 0, "run")


@pytest.mark.parametrize("gives_proofs", [True, False])
@pytest.mark.parametrize("begin", [_eager, _lazy, _named])
def test_sends_and_acks_carry_the_proof_over_a_broken_link(
    begin: Callable[[Client], Awaitable[Transaction]], gives_proofs: bool
) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.gives_proofs = gives_proofs
        cluster.topic("flights")
        cluster.publish("flights", [b"a", b"b"])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        messages = [await consumer.receive() for _ in range(2)]
        producer = await client.create_producer("flights", batch_messages_max=1)
        txn = await begin(client)
        for message in messages:
            await producer.send(b"x", txn=txn)
            await consumer.ack(message, txn=txn)
            cluster.net.break_links()
        await producer.send(b"plain")
        await txn.commit()

        def carried(commands: list[Any]) -> list[bytes]:
            return [command.txn_proof for command in commands if command.HasField("txn_id")]

        sends, acks = cluster.play.commands("send"), cluster.play.commands("ack")
        assert len(carried(sends)) >= 2
        assert len(carried(acks)) >= 2
        assert {*carried(sends), *carried(acks)} == {cluster.proof_of(txn.txn_id)}
        # Plain ones have nothing to prove.
        assert all(one.HasField("txn_id") or not one.txn_proof for one in (*sends, *acks))

    run(test)


def test_a_transactional_producer_carries_the_proof_of_each_transaction() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = client.transactional_producer("id")
        await producer.init()
        for _ in range(2):
            await producer.begin()
            await producer.send("flights", b"x")
            await producer.commit()
        sends = cluster.play.commands("send")
        assert len({one.txn_proof for one in sends}) == 2
        for one in sends:
            assert one.txn_proof == cluster.proof_of(TxnID.from_wire(one.txn_id))

    run(test)


def test_without_proofs_nothing_more_is_on_the_wire() -> None:
    plain = broker_pb2.CommandSend(producer_id=1, txn_proof=b"")
    assert plain.SerializeToString() == broker_pb2.CommandSend(producer_id=1).SerializeToString()
