"""Losses of a broker between Produce and EndTxn: no client has counted messages and offsets."""

from __future__ import annotations

import pytest
from tests.kafka_clients.coordinated import CoordinatedWorld, run
from tests.kafka_clients.test_offsets_in_transactions import commit, committed, filled
from tests.kafka_clients.test_transactions import NONE, V1, V2, Producer, Protocol, made
from tests.waiting import until

from magnetar_broker import keys
from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_storage import store_identity
from magnetar_storage.store import WriteBatch

BOTH = pytest.mark.parametrize("protocol", [V1, V2], ids=lambda one: one.name)
SIDECARS = (keys.TXNLOG, keys.TXNINDEX, keys.PENDINGACKS)


async def lose(world: CoordinatedWorld) -> None:
    """The broker dies, and loses what was not committed; an administrator accepts that."""
    store = world.broker.environment.store
    batch = WriteBatch()
    for family in SIDECARS:
        for key, _ in await store.scan(family, b"", b"\xff" * 64, rows_max=1_000):
            batch.delete(family, key)
    row = await store.get(keys.META, store_identity.KEY)
    stored = records.StoreIdentity.FromString(row or b"")
    stored.losses += 1
    batch.put(keys.META, store_identity.KEY, stored.SerializeToString(deterministic=True))
    await store.write(batch)
    await store.sync()
    await world.kill_broker()


async def described(world: CoordinatedWorld, producer: Producer) -> pb.TransactionDescription:
    found = await world.coordinators.ask(
        producer.name, pb.CommandDescribeTransactionalId(transactional_id=producer.name)
    )
    answer = await world.coordinators.ask(
        producer.name, pb.CommandDescribeTxn(txn_id=found.description.txn_id)
    )
    description: pb.TransactionDescription = answer.transaction
    return description


async def refused(world: CoordinatedWorld, producer: Producer) -> pb.TransactionDescription:
    """Wait until a participant has refused the commit."""

    async def is_refused() -> bool:
        found = await described(world, producer)
        return any(one.error.code == common.TXN_INCOMPLETE for one in found.unfinished)

    await until(is_refused)
    return await described(world, producer)


async def accept(world: CoordinatedWorld, producer: Producer) -> None:
    found = await described(world, producer)
    await world.coordinators.ask(producer.name, pb.CommandAcceptTxnLoss(txn_id=found.txn_id))

    async def is_done() -> bool:
        return (await described(world, producer)).status == common.COMMITTED

    await until(is_done)


@BOTH
@pytest.mark.parametrize("kills_coordinator", [False, True])
def test_a_commit_of_lost_messages_waits_until_the_loss_is_accepted(
    protocol: Protocol, kills_coordinator: bool
) -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, protocol)
        assert await producer.send(b"lost") == (NONE, -1)
        assert await producer.send(b"lost", number=1) == (NONE, -1)
        await lose(world)
        if kills_coordinator:
            await world.kill_coordinator()
        assert world.partition().ledger_id == 2
        producer.client = await world.connect()
        await world.linked(producer.client)
        # The decision is the coordinator's.
        assert await producer.end() is NONE
        found = await refused(world, producer)
        assert found.status == common.COMMITTING
        await accept(world, producer)
        assert await world.read() == await world.read(1) == []
        # The next transaction begins with what is there now.
        assert await producer.send(b"kept") == (NONE, -1)
        assert await producer.end() is NONE
        await until(world.has_ended_all)
        assert await world.read() == [b"kept"]

    run(scenario)


def test_a_commit_of_lost_offsets_waits_too() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        await filled(world)
        producer = await made(world, V2)
        assert await commit(producer, (0, 3)) == [NONE]
        await lose(world)
        producer.client = await world.connect()
        await world.linked(producer.client)
        assert await producer.end() is NONE
        await refused(world, producer)
        await accept(world, producer)
        assert (committed(world) or CommittedOffset(0)).offset == 0

    run(scenario)


def test_an_abort_waits_for_nothing() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V2)
        assert await producer.send(b"lost") == (NONE, -1)
        await lose(world)
        producer.client = await world.connect()
        await world.linked(producer.client)
        assert await producer.end(commit=False) is NONE

        async def is_done() -> bool:
            return (await described(world, producer)).status == common.ABORTED

        await until(is_done)

    run(scenario)
