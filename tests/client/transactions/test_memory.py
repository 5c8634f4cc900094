"""What a transaction leaves behind."""

from __future__ import annotations

import gc
import weakref

import pytest
from tests.client.fakes import FakeCluster, run

from magnetar import Client


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_an_ended_transaction_goes_with_its_last_reference(lazy: bool, commits: bool) -> None:
    """So it costs the garbage collector nothing, whose passes would take a part of all time."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("in")
        cluster.topic("out", 2)
        cluster.publish("in", [b"1"])
        consumer = await client.subscribe("in", "s", initial_position="earliest")
        producer = await client.create_producer("out", linger_ms=0)
        message = await consumer.receive()
        gc.disable()
        try:
            txn = await client.begin_transaction(lazy=lazy)
            for partition in range(2):
                producer.send_nowait(b"x", partition=partition, txn=txn)
            consumer.ack_nowait(message, txn=txn)
            if commits:
                await txn.commit()
            else:
                await txn.abort()
            left = weakref.ref(txn.work)
            del txn
            assert left() is None
        finally:
            gc.enable()

    run(test)
