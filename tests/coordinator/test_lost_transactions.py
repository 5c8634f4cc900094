"""A client may hear of its transaction before the record is durable, and a crash may take it.

Then the transaction is aborted: nobody hears anything else of it, and its TxnID is never issued
again (invariants 7 and 8). docs/design/0001-protocol.md, One transaction, NewTxn.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.coordinator.fakes import P0, P1, World, add_command, end_command, refused
from tests.virtual_time import run

from magnetar_coordinator.metadata.lost_transactions import (
    RANGES_MAX,
    after_start,
    decode_lost,
    encode_lost,
    outcome_of,
)
from magnetar_coordinator.metadata.records import META, META_LOST, META_NEXT_UNOPENED
from magnetar_core.errors import InvalidTxnState, TxnForgotten
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_storage.store import WriteBatch


async def told_early(world: World) -> TxnID:
    return await world.client.new(P0, answer_before_durable=True)


def test_a_txn_id_is_told_before_its_record_is_durable() -> None:
    async def scenario() -> None:
        world = await World().start()
        await world.settle(0.5)
        world.disk.sync_seconds = 1.0
        asked = world.client.ask(pb.CommandNewTxn(answer_before_durable=True))
        await world.settle(0.001)
        assert asked.done()
        # Its broker has heard of it first.
        assert world.broker.all_of("txns_issued")[-1].next_counter == 1
        # Without the wish, it waits.
        waiting = world.client.ask(pb.CommandNewTxn())
        await world.settle(0.9)
        assert not waiting.done()
        await waiting
        await world.close()

    run(scenario())


def test_what_a_crash_took_is_aborted() -> None:
    async def scenario() -> None:
        world = await World().start()
        kept = await world.client.new(P0)
        lost = await told_early(world)
        await world.restart(Random(1))
        client = world.client
        assert await client.status(kept) == common.OPEN
        assert await client.status(lost) == common.ABORTED
        await refused(client.ask(end_command(lost)), InvalidTxnState)
        await refused(client.ask(add_command(lost, P1)), InvalidTxnState)
        assert await client.end(lost, common.ABORT) == common.ABORTED
        assert await client.new() > lost
        # Also after more starts, with and without transactions in between.
        await world.restart()
        await world.settle(0.1)
        later = await told_early(world)
        await world.restart(Random(2))
        await world.restart()
        for one in (lost, later):
            assert await world.client.status(one) == common.ABORTED
        assert len(decode_lost(world.disk.durable(META, META_LOST))) == 2
        await world.close()

    run(scenario())


def test_adding_its_participants_again_confirms_it() -> None:
    async def scenario() -> None:
        world = await World().start()
        await world.settle(0.5)
        world.disk.sync_seconds = 0.1
        txn_id = await told_early(world)
        await world.client.add(txn_id, P0)
        await world.restart(Random(3))
        assert await world.client.status(txn_id) == common.OPEN
        assert await world.client.end(txn_id) == common.COMMITTING
        await world.close()

    run(scenario())


def test_a_commit_makes_the_whole_transaction_durable() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await told_early(world)
        syncs = world.disk.sync_count
        assert await world.client.end(txn_id) == common.COMMITTING
        assert world.disk.sync_count == syncs + 1
        await world.restart(Random(4))
        assert await world.client.end(txn_id, wait_finished=True) == common.COMMITTED
        assert world.broker.ended == {(txn_id, P0): common.COMMIT}
        await world.close()

    run(scenario())


@pytest.mark.parametrize("seed", range(12))
def test_no_txn_id_is_told_twice_wherever_power_fails(seed: int) -> None:
    """Also when the bound ahead of the counter is being moved."""

    async def scenario() -> None:
        random = Random(seed)
        world = World(txn_ids_ahead=3)
        world.disk.sync_seconds = 0.01
        told: list[TxnID] = []
        for _ in range(6):
            await world.start()
            asked = [
                world.client.ask(pb.CommandNewTxn(answer_before_durable=random.random() < 0.8))
                for _ in range(random.randrange(12))
            ]
            await world.settle(random.choice([0.0, 0.001, 0.009, 0.02, 0.3]))
            told += [TxnID.from_wire(one.result().txn_id) for one in asked if one.done()]
            world.crash(random)
            assert len(set(told)) == len(told)
        await world.start()
        for txn_id in told:
            assert await world.client.status(txn_id) in (common.OPEN, common.ABORTED)
        assert await world.client.new() not in told
        await world.close()

    run(scenario())


def test_while_the_bound_is_not_durable_nobody_is_told() -> None:
    async def scenario() -> None:
        world = await World(txn_ids_ahead=2).start()
        await world.settle(0.5)
        world.disk.sync_seconds = 0.2
        asked = [world.client.ask(pb.CommandNewTxn(answer_before_durable=True)) for _ in range(6)]
        await world.settle(0.1)
        assert not all(one.done() for one in asked)
        await asyncio.gather(*asked)
        await world.close()

    run(scenario())


def test_while_the_disk_stands_still_nobody_is_told() -> None:
    """The client then asks another coordinator."""

    async def scenario() -> None:
        world = await World().start()
        await world.settle(0.5)
        world.disk.sync_seconds = 2.0
        waiting = world.client.ask(pb.CommandNewTxn())
        await world.settle(0.6)
        asked = world.client.ask(pb.CommandNewTxn(answer_before_durable=True))
        await world.settle(0.1)
        assert not asked.done()
        await asyncio.gather(waiting, asked)
        await world.close()

    run(scenario())


def test_what_ended_long_ago_is_forgotten_and_not_said_to_be_lost() -> None:
    async def scenario() -> None:
        world = await World(outcomes_max=1, recent_outcomes_max=1).start()
        txn_ids = [await told_early(world) for _ in range(3)]
        for txn_id in txn_ids:
            await world.client.end(txn_id, wait_finished=True)
        await world.settle(3)
        await world.restart()
        await refused(world.client.ask(end_command(txn_ids[0])), TxnForgotten)
        assert await world.client.end(txn_ids[2]) == common.COMMITTED
        await world.close()

    run(scenario())


def test_a_store_of_an_earlier_version_has_lost_nothing() -> None:
    """It told a TxnID when its record was durable."""

    async def scenario() -> None:
        world = await World(outcomes_max=1, recent_outcomes_max=1).start()
        first = await world.client.new(P0)
        second = await world.client.new(P0)
        for txn_id in (first, second):
            await world.client.end(txn_id, wait_finished=True)
        await world.settle(3)
        batch = WriteBatch()
        batch.delete(META, META_NEXT_UNOPENED)
        store = world.coordinator._store
        await store.write(batch)
        await store.sync()
        await world.restart()
        await refused(world.client.ask(end_command(first)), TxnForgotten)
        await world.settle(0.1)
        lost = await told_early(world)
        await world.restart(Random(5))
        assert await world.client.status(lost) == common.ABORTED
        await refused(world.client.ask(end_command(first)), TxnForgotten)
        await world.close()

    run(scenario())


def test_ranges() -> None:
    assert after_start([], next_unopened=5, counter_bound=5) == []
    first = after_start([], next_unopened=5, counter_bound=9)
    assert first == [(5, 9)]
    assert after_start(first, next_unopened=5, counter_bound=12) == [(5, 12)]
    second = after_start(first, next_unopened=11, counter_bound=12)
    assert second == [(5, 9), (11, 12)]
    assert decode_lost(encode_lost(second)) == second
    assert decode_lost(None) == []
    found = [outcome_of(second, TxnID.of(0, 1, counter)) is not None for counter in range(4, 13)]
    assert found == [False, True, True, True, True, False, False, True, False]


def test_old_ranges_are_dropped() -> None:
    ranges = [(10 * number, 10 * number + 1) for number in range(RANGES_MAX)]
    kept = after_start(ranges, next_unopened=10 * RANGES_MAX, counter_bound=10 * RANGES_MAX + 7)
    assert len(kept) == RANGES_MAX
    assert (kept[0], kept[-1]) == ((10, 11), (10 * RANGES_MAX, 10 * RANGES_MAX + 7))
