"""Rows of a coordinator that cannot be read: an error for who asks, and everything else goes on."""

from __future__ import annotations

import pytest
from tests.coordinator.fakes import World, end_command, refused
from tests.virtual_time import run

from magnetar_coordinator.metadata.records import (
    FAMILIES,
    IDENTITIES,
    META,
    META_COUNTER,
    METADATA,
    OUTCOMES,
)
from magnetar_core.errors import DataLoss
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage import store_identity
from magnetar_storage.memory.engine import MemoryStore
from magnetar_storage.store import StoreDamaged, WriteBatch


def test_an_outcome_that_cannot_be_read_is_data_loss_for_its_transaction_alone() -> None:
    async def scenario() -> None:
        world = await World().start()
        ended = [await world.client.new() for _ in range(3)]
        for txn_id in ended:
            await world.client.end(txn_id)
        await world.restart()
        world.disk.unreadable.add((OUTCOMES, ended[1].to_bytes()))
        assert await world.client.end(ended[0]) == common.COMMITTED
        await refused(world.client.ask(end_command(ended[1])), DataLoss)
        await refused(world.client.ask(pb.CommandDescribeTxn(txn_id=ended[1].to_wire())), DataLoss)
        assert await world.client.end(ended[2]) == common.COMMITTED
        assert world.metric("unreadable_reads_total", family=OUTCOMES) >= 2
        # Retention meets it too, and new transactions go on.
        world.coordinator._metadata.outcome_count += world.config.outcomes_max
        await world.settle(5)
        txn_id = await world.client.new()
        assert await world.client.end(txn_id) in (common.COMMITTING, common.COMMITTED)
        assert not world.fatal_errors
        await world.close()

    run(scenario())


@pytest.mark.parametrize("family", [META, METADATA, IDENTITIES])
def test_a_coordinator_that_cannot_read_what_it_decided_does_not_start(family: str) -> None:
    async def scenario() -> None:
        world = await World().start()
        await world.client.ask(pb.CommandInitProducer(transactional_id="id", txn_timeout_ms=60_000))
        txn_id = await world.client.new()
        key = {
            META: META_COUNTER,
            METADATA: txn_id.to_bytes() + bytes(4),
            IDENTITIES: b"id",
        }[family]
        world.crash()
        world.disk.unreadable.add((family, key))
        with pytest.raises(StoreDamaged, match="put back a copy of its data directory"):
            await world.start()
        world.crash()
        world.disk.unreadable.clear()
        await world.start()
        assert await world.client.status(txn_id) == common.OPEN
        await world.close()

    run(scenario())


def test_after_an_accepted_loss_txnids_are_of_a_higher_incarnation() -> None:
    """Those that were lost are not issued a second time. docs/protocol/rules.md, rule n."""

    async def scenario() -> None:
        world = await World().start()
        kept = await world.client.new()
        store = world.coordinator._store
        row = await store.get(META, store_identity.KEY)
        stored = StoreIdentity.FromString(row or b"")
        stored.losses += 1
        world.crash()
        disk = MemoryStore(world.disk, FAMILIES)
        batch = WriteBatch()
        batch.put(META, store_identity.KEY, stored.SerializeToString(deterministic=True))
        await disk.write(batch)
        await disk.sync()
        await disk.close()
        await world.start()
        new = await world.client.new()
        assert new.incarnation > kept.incarnation
        assert await world.client.end(new, common.ABORT) in (common.ABORTING, common.ABORTED)
        # What it holds from before is still its own.
        assert await world.client.status(kept) == common.OPEN
        assert await world.client.end(kept, common.ABORT) in (common.ABORTING, common.ABORTED)
        await world.restart()
        assert (await world.client.new()).incarnation == new.incarnation, "once for each loss"
        await world.close()

    run(scenario())
