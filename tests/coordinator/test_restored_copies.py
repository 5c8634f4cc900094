"""A coordinator goes on with an older copy of its store, beside brokers that went on (rule n)."""

from __future__ import annotations

from random import Random

import pytest
from tests.client.cuts.cluster import BROKERS, COORDINATORS, Cluster, at_each_broker, run
from tests.coordinator.test_past_ends import put_back
from tests.simulation.nodes import ServerNode
from tests.virtual_time import time_passes

from magnetar import Client, Transaction, TransactionAction
from magnetar_coordinator.metadata.records import FAMILIES
from magnetar_core.errors import TxnForgotten
from magnetar_storage.memory.engine import MemoryStore

TXN_COUNT = 12
# A watermark covers what has ended, a second later.
COVERED_S = 3.0


async def copy_of(node: ServerNode) -> dict[str, dict[bytes, bytes]]:
    store: MemoryStore = node.server._store
    return {
        family: dict(await store.scan(family, b"", b"\xff" * 64, rows_max=10_000))
        for family in FAMILIES
    }


async def begun_at_the_first(client: Client) -> Transaction:
    while True:
        txn = await client.begin_transaction()
        if txn.txn_id.tcid == 0:
            return txn
        await txn.abort()


@pytest.mark.parametrize("seed", range(12))
def test_no_transaction_is_torn_between_participants_that_the_copy_knows(seed: int) -> None:
    """Whatever was over, forgotten, decided or carried out at one broker since the copy."""
    random = Random(seed)

    async def scenario(cluster: Cluster, client: Client) -> None:
        places = await at_each_broker(client, "t")
        producer = await client.create_producer("t")
        node = cluster.coordinators[0]
        txns = [await begun_at_the_first(client) for _ in range(TXN_COUNT)]
        for number, txn in enumerate(txns):
            for place in places:
                await producer.send(b"%d" % number, partition=place, txn=txn)
        await time_passes(0.5)
        copy = await copy_of(node)

        committed: set[int] = set()
        aborted: set[int] = set()
        is_open: set[int] = set()
        for number, txn in enumerate(txns):
            part = random.choice([committed, committed, aborted, is_open])
            part.add(number)
            if part is not is_open:
                if random.random() < 0.3:
                    cluster.network.hold_up(COORDINATORS[0], random.choice(BROKERS), 30.0)
                await (txn.commit() if part is committed else txn.abort())
        await time_passes(random.choice([0.0, 0.01, COVERED_S]))
        node.crash(power_loss=False)

        await put_back(node, copy)
        await cluster.start(node)
        for number in is_open:
            await txns[number].commit()
        live = node.server._runtime.shard.live
        await cluster.until(lambda: all(not one.unfinished for one in live.values()))
        for txn_id in list(live):
            await client.admin.transactions.end(txn_id, TransactionAction.ABORT)
        await cluster.until(lambda: not live)

        first, second = [
            {int(one.value) async for one in client.read("t", place)} for place in places
        ]
        assert first == second
        assert not first & aborted
        assert is_open <= first
        for number, txn in enumerate(txns):
            try:
                described = await client.admin.transactions.describe(txn.txn_id)
            except TxnForgotten:
                continue
            assert (described.status.name == "COMMITTED") is (number in first), number

    run(scenario, f"restored/{seed}")
