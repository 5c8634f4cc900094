"""The first start of a coordinator on a store that was restored from a backup (rule n)."""

from __future__ import annotations

import pytest
from tests.coordinator.fakes import P0, World, end_command, refused
from tests.virtual_time import run

from magnetar_coordinator.metadata.records import (
    FAMILIES,
    META,
    META_PRODUCER_ID,
    META_RESTORED,
    Restored,
    read_u64,
    u64,
)
from magnetar_coordinator.offline.restored_rows import added_meta, restored_meta
from magnetar_core.errors import InvalidTxnState
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage import store_identity
from magnetar_storage.memory.engine import MemoryStore
from magnetar_storage.store import WriteBatch

NOW_S = 1_800_000_000


async def restore(world: World, what: Restored) -> None:
    """Kill the coordinator, make of its store what a restore would, and start it."""
    world.crash()
    store = MemoryStore(world.disk, FAMILIES)
    batch = WriteBatch()
    row = await store.get(META, store_identity.KEY)
    assert row is not None
    identity = StoreIdentity.FromString(row)
    identity.losses += 1
    identity.restored_at_s = NOW_S
    batch.put(META, store_identity.KEY, identity.SerializeToString())
    batch.put(META, *added_meta(what))
    await store.write(batch)
    await store.sync()
    await store.close()
    await world.start()


async def prepared(world: World) -> pb.CommandInitProducerResponse:
    """A transaction of two-phase commit, open."""
    answer: pb.CommandInitProducerResponse = await world.client.ask(
        pb.CommandInitProducer(transactional_id="db", enable_2pc=True)
    )
    return answer


@pytest.mark.parametrize("what", Restored)
def test_what_was_open_is_aborted_before_anybody_is_served(what: Restored) -> None:
    """Its client wrote on after the backup: a commit of the rest would be torn."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        ended = await world.client.new(P0)
        await world.client.end(ended)
        await world.settle()
        await restore(world, what)
        # Asked in the first moment.
        await refused(world.client.ask(end_command(txn_id)), InvalidTxnState)
        await world.settle()
        assert await world.client.status(txn_id) == common.ABORTED
        assert await world.client.status(ended) == common.COMMITTED
        assert world.broker.ended[txn_id, P0] == common.ABORT
        again = await world.client.new(P0)
        assert again.incarnation > txn_id.incarnation
        # It is done once: what is opened now survives the next start.
        await world.restart()
        assert await world.client.status(again) == common.OPEN
        store = world.coordinator._store
        assert await store.get(META, META_RESTORED) is None
        await world.close()

    run(scenario())


@pytest.mark.parametrize("what", Restored)
def test_two_phase_commit_is_kept_only_if_asked_for(what: Restored) -> None:
    async def scenario() -> None:
        world = await World(two_phase_commit_enabled=True).start()
        pair = await prepared(world)
        txn_id = await world.client.new(
            P0,
            identity=common.ProducerIdentity(
                transactional_id="db",
                producer_id=pair.producer_id,
                producer_epoch=pair.producer_epoch,
            ),
        )
        await restore(world, what)
        await world.settle()
        kept = what is Restored.KEEP_TWO_PHASE
        found = await world.client.status(txn_id)
        assert found == (common.OPEN if kept else common.ABORTED)
        await world.close()

    run(scenario())


def test_a_store_that_lost_something_is_not_a_restored_one() -> None:
    """There, whoever is open may go on: its end may have been carried out somewhere."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        await world.restart()
        assert await world.client.status(txn_id) == common.OPEN
        await world.close()

    run(scenario())


def test_producer_ids_are_not_given_out_again() -> None:
    raised = restored_meta(META_PRODUCER_ID, u64(5), restored_at_s=NOW_S)
    assert 5 < read_u64(raised) < 1 << 47
    later = restored_meta(META_PRODUCER_ID, u64(5), restored_at_s=NOW_S + 1)
    assert read_u64(later) - read_u64(raised) > 10_000
    assert restored_meta(META_PRODUCER_ID, later, restored_at_s=NOW_S) == later
    assert restored_meta(b"counter", u64(5), restored_at_s=NOW_S) == u64(5)
