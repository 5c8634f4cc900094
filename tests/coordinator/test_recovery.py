"""What survives a crash, what a life adds to the run time, and whose a store is."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from tests.coordinator.fakes import P0, P1, S0, SILENCE, FakeClient, World, end_command, refused
from tests.virtual_time import run

from magnetar_coordinator.metadata.records import META
from magnetar_core.config import InvalidConfig
from magnetar_core.errors import (
    ClusterMismatch,
    InvalidTxnState,
    LogUnavailable,
    TxnForgotten,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage.store_identity import KEY


def test_expiry_aborts() -> None:
    """PIP-31, TC Transaction Expiration."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0, txn_timeout_ms=5_000)
        await world.settle(4.9)
        assert await world.client.status(txn_id) == common.OPEN
        await world.settle(0.4)
        assert world.broker.ended == {(txn_id, P0): common.ABORT}
        assert await world.client.end(txn_id, common.ABORT) == common.ABORTED
        await refused(world.client.ask(end_command(txn_id)), InvalidTxnState)
        assert world.metric("transactions_expired_total") == 1
        await world.close()

    run(scenario())


def test_downtime_does_not_age_a_transaction() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0, txn_timeout_ms=10_000)
        await world.settle(6)
        world.crash()
        await world.settle(3_600)
        await world.start()
        await world.settle(2)
        assert await world.client.status(txn_id) == common.OPEN
        assert 6_900 <= (await world.client.describe(txn_id)).age_ms <= 8_100
        await world.settle(4)
        assert await world.client.status(txn_id) == common.ABORTED
        await world.close()

    run(scenario())


def test_an_orderly_stop_loses_no_run_time() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        await world.settle(5.5)
        await world.close()
        world.disk.crash()
        await world.start()
        assert 5_500 <= (await world.client.describe(txn_id)).age_ms < 5_600
        await world.close()

    run(scenario())


def test_a_jump_of_the_wall_clock_expires_nothing() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        world.clock.wall_offset_ms += 30 * 24 * 3_600_000
        await world.settle(2)
        assert await world.client.status(txn_id) == common.OPEN
        assert world.metric("clock_jumps_total") == 1
        await world.close()

    run(scenario())


@pytest.mark.parametrize("seed", range(40))
def test_crashes_converge(seed: int) -> None:
    """Power fails at any moment, again and again: what was answered holds everywhere."""

    async def scenario() -> None:
        random = Random(seed)
        world = World(txn_timeout_ms_default=3_000)
        world.disk.sync_seconds = 0.002
        told: dict[TxnID, int | None] = {}
        issued: list[TxnID] = []

        async def work(client: FakeClient) -> None:
            while True:
                txn_id = await client.new(P0)
                assert txn_id not in told
                issued.append(txn_id)
                told[txn_id] = None
                await client.add(txn_id, P1, S0)
                if random.random() < 0.8:
                    action = random.choice([common.COMMIT, common.ABORT])
                    await client.end(txn_id, action, wait_finished=random.random() < 0.3)
                    told[txn_id] = action

        def answer(name: str, body: Any) -> Any:
            return SILENCE if name.startswith("end_txn") and random.random() < 0.2 else None

        world.broker.answer = answer
        for _ in range(4):
            await world.start()
            loop = asyncio.get_running_loop()
            workers = [loop.create_task(work(FakeClient(world.coordinator))) for _ in range(4)]
            await world.settle(random.uniform(0.0, 0.3))
            world.crash(random if random.random() < 0.7 else None)
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
            for worker in workers:
                if not worker.cancelled():
                    worker.result()
        assert len(set(issued)) == len(issued)
        world.broker.answer = lambda name, body: None
        await world.start()
        await world.settle(20)
        assert not world.coordinator.shard.live
        for txn_id, action in told.items():
            status = await world.client.status(txn_id)
            if action is not None:
                wanted = common.COMMITTED if action == common.COMMIT else common.ABORTED
                assert status == wanted
            for participant in (P0, P1, S0):
                ended = world.broker.ended.get((txn_id, participant))
                if ended is not None:
                    assert (ended == common.COMMIT) == (status == common.COMMITTED)
                elif action is not None:
                    raise AssertionError(f"{participant} never heard of the end of {txn_id}")
        world.coordinator.shard.check()
        assert world.fatal_errors == []
        await world.close()

    run(scenario())


def test_ids_are_never_reused_after_a_power_loss() -> None:
    async def scenario() -> None:
        world = await World().start()
        seen = [await world.client.new() for _ in range(3)]
        for txn_id in seen:
            await world.client.end(txn_id, wait_finished=True)
        for seed in range(5):
            await world.restart(Random(seed))
            seen.append(await world.client.new())
        assert len(set(seen)) == len(seen)
        assert seen == sorted(seen)
        await world.close()

    run(scenario())


def test_a_new_store_takes_one_incarnation_whatever_is_lost() -> None:
    """The token is durable before anything is asked, so asking again gets the same answer."""

    async def scenario() -> None:
        world = World()
        attempts = 0

        def answer(name: str, body: Any) -> Any:
            nonlocal attempts
            if name != "take_incarnation":
                return None
            attempts += 1
            if attempts == 1:
                world.broker._take_incarnation(body)
                return SILENCE
            return LogUnavailable().to_wire() if attempts == 2 else None

        world.broker.answer = answer
        starting = asyncio.get_running_loop().create_task(world.start())
        await world.settle(1)
        starting.cancel()
        await asyncio.wait([starting])
        world.crash(Random(0))
        await world.start()
        assert list(world.broker.incarnations.values()) == [1]
        assert world.coordinator.shard.incarnation == 1
        assert attempts == 3
        # A lost disk is another store: its ids follow those of the first.
        first = await world.client.new()
        world.crash()
        world.disk = type(world.disk)()
        await world.start()
        second = await world.client.new()
        assert (second.incarnation, second.counter) == (2, 0)
        assert second > first
        await refused(world.client.ask(end_command(first)), TxnForgotten)
        await world.close()

    run(scenario())


def test_a_failed_sync_ends_the_process() -> None:
    """Rule b: nobody is answered, and nothing is told to anyone."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        world.disk.fail_next_sync()
        answer = world.client.ask(end_command(txn_id))
        await world.settle(1)
        assert len(world.fatal_errors) == 1
        assert not answer.done()
        assert "end_txn_on_partition" not in world.broker.names()
        await refused(world.client.ask(end_command(txn_id)), LogUnavailable)

    run(scenario())


def test_a_store_belongs_to_its_coordinator_and_cluster() -> None:
    async def scenario() -> None:
        world = await World(cluster_hash="abc").start()
        await world.close()
        for settings, error in (
            ({"tcid": 1}, InvalidConfig),
            ({"cluster_hash": "other"}, ClusterMismatch),
        ):
            world.disk.crash()
            changed = World(**settings)
            changed.disk = world.disk
            with pytest.raises(error):
                await changed.start()
            changed.crash()
        changed = World(cluster_hash="other", membership_version=2)
        changed.disk = world.disk
        await changed.start()
        store = changed.coordinator._store
        assert StoreIdentity.FromString(await store.get(META, KEY) or b"").cluster_hash == "other"
        await changed.close()

    run(scenario())


def test_nothing_is_taken_before_recovery_or_after_the_end() -> None:
    async def scenario() -> None:
        world = World()
        coordinator = world.make()
        client = FakeClient(coordinator)
        await refused(client.ask(pb.CommandNewTxn()), LogUnavailable)
        await coordinator.start()
        await client.new()
        await coordinator.close()
        await refused(client.ask(pb.CommandNewTxn()), LogUnavailable)

    run(scenario())
