"""An open transaction delays nobody: its messages take their place when it commits."""

from __future__ import annotations

import asyncio

import pytest
from tests.system.processes import Servers
from tests.system.programs import run, values

import magnetar

# Less than the transaction's timeout: whoever waited for its end would be late.
PATIENCE_S = 30.0
# In which nothing more comes.
QUIET_S = 0.5


@pytest.mark.parametrize("commits", [True, False])
def test_messages_around_an_open_transaction_are_delivered_at_once(
    servers: Servers, commits: bool
) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("orders")
            producer = await client.create_producer("orders")
            consumer = await client.subscribe("orders", "reader", initial_position="earliest")
            txn = await client.begin_transaction()
            async with asyncio.timeout(PATIENCE_S):
                await producer.send(b"m1")
                await producer.send(b"m2", txn=txn)
                await producer.send(b"m3")
                assert (await consumer.receive()).value == b"m1"
                assert (await consumer.receive()).value == b"m3"
            if commits:
                await txn.commit(wait_finished=True)
                message = await consumer.receive(PATIENCE_S)
                assert (message.value, message.message_id.offset) == (b"m2", 2)
                assert message.txn_id == txn.txn_id
            else:
                await txn.abort()
            assert await consumer.receive_batch(timeout_s=QUIET_S) == []
            expected = [b"m1", b"m3", b"m2"] if commits else [b"m1", b"m3"]
            assert await values(client, "orders") == expected

    run(program())
