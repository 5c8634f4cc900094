"""A whole coordinator on an in-memory disk: what leaves it, when, and what survives a crash."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.coordinator.fakes import P0, P1, S0, SILENCE, World, add_command, end_command, refused
from tests.virtual_time import run

from magnetar_coordinator.metadata.records import METADATA, OUTCOMES
from magnetar_core.errors import (
    ClusterMismatch,
    DiskFull,
    InvalidArgument,
    InvalidTxnState,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_storage.store import KEY_END


async def row_counts(world: World) -> tuple[int, int]:
    """Rows in the families metadata and outcomes."""
    store = world.coordinator._store
    metadata = await store.scan(METADATA, b"", KEY_END, rows_max=1_000)
    outcomes = await store.scan(OUTCOMES, b"", KEY_END, rows_max=1_000)
    return len(metadata), len(outcomes)


def test_a_transaction_from_begin_to_end() -> None:
    async def scenario() -> None:
        world = await World().start()
        client = world.client
        txn_id = await client.new(P0)
        assert (txn_id.tcid, txn_id.incarnation, txn_id.counter) == (0, 1, 0)
        await client.add(txn_id, P1, S0)
        assert await row_counts(world) == (3, 0)
        assert await client.end(txn_id) == common.COMMITTING
        await world.settle()
        assert world.broker.ended == {(txn_id, one): common.COMMIT for one in (P0, P1, S0)}
        assert await client.end(txn_id) == common.COMMITTED
        assert await client.status(txn_id) == common.COMMITTED
        assert await row_counts(world) == (0, 1)
        assert world.metric("transactions_ended_total", status="committed") == 1
        await world.close()

    run(scenario())


def test_committing_is_durable_before_any_marker_is_sent() -> None:
    """PIP-31, Transaction Log: COMMITTING is the synchronization point."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0, P1)
        world.disk.sync_seconds = 0.5
        answer = world.client.ask(end_command(txn_id))
        await world.settle(0.4)
        assert not answer.done()
        assert "end_txn_on_partition" not in world.broker.names()
        await answer
        await world.settle(0.01)
        assert world.broker.names().count("end_txn_on_partition") == 2
        world.disk.sync_seconds = 0.0
        await world.close()

    run(scenario())


def test_refusals_wait_for_what_they_depend_on() -> None:
    """Rule a: also a refusal tells of a decision that must be durable."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        world.disk.sync_seconds = 0.5
        ending = world.client.ask(end_command(txn_id))
        late = world.client.ask(add_command(txn_id, P1))
        described = world.client.ask(pb.CommandDescribeTxn(txn_id=txn_id.to_wire()))
        await world.settle(0.4)
        assert not late.done()
        assert not described.done()
        await refused(late, InvalidTxnState)
        assert ending.done()
        world.disk.sync_seconds = 0.0
        await world.close()

    run(scenario())


def test_a_commit_of_nothing_ends_on_the_spot() -> None:
    """Rule h: it writes no marker."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new()
        assert await world.client.end(txn_id, wait_finished=True) == common.COMMITTED
        assert await row_counts(world) == (0, 1)
        assert "end_txn_on_partition" not in world.broker.names()
        await world.close()

    run(scenario())


def test_waiting_until_all_have_ended() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        world.broker.answer = lambda name, body: SILENCE if name == "end_txn_on_partition" else None
        waiting = world.client.ask(end_command(txn_id, wait_finished=True))
        repeated = world.client.ask(end_command(txn_id, wait_finished=True))
        assert await world.client.end(txn_id) == common.COMMITTING
        await world.settle(1)
        assert not waiting.done()
        world.broker.answer = lambda name, body: None
        assert (await waiting).status == common.COMMITTED
        assert (await repeated).status == common.COMMITTED
        await world.close()

    run(scenario())


def test_an_outcome_joins_the_group_of_the_next_command() -> None:
    """In a group of its own it would cost a sync, and hold up the next command's."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        before = world.disk.sync_count
        assert await world.client.end(txn_id) == common.COMMITTING
        await world.settle(0.001)
        assert world.broker.ended
        assert await row_counts(world) == (2, 0)
        other = await world.client.new()
        assert await row_counts(world) == (1, 1)
        assert world.disk.sync_count == before + 2
        assert await world.client.status(txn_id) == common.COMMITTED
        await world.client.end(other)
        await world.close()

    run(scenario())


def test_an_outcome_does_not_wait_for_long() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id)
        await world.settle(0.19)
        assert await row_counts(world) == (2, 0), "nobody waits for it"
        await world.settle(0.02)
        assert await row_counts(world) == (0, 1)
        # Nor for one who asks to be told.
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id)
        await world.settle(0.001)
        began = asyncio.get_running_loop().time()
        assert await world.client.end(txn_id, wait_finished=True) == common.COMMITTED
        assert asyncio.get_running_loop().time() - began < 0.001
        assert await row_counts(world) == (0, 2)
        await world.close()

    run(scenario())


def test_an_outcome_joins_the_next_group() -> None:
    """In a group of its own it would delay the next transaction."""

    async def scenario() -> None:
        world = await World().start()
        first = await world.client.new(P0)
        await world.client.end(first)
        await world.settle(0.001)
        before = world.disk.sync_count
        await world.client.new(P1)
        assert world.disk.sync_count == before + 1
        assert await row_counts(world) == (1, 1)
        await world.close()

    run(scenario())


def test_a_command_about_a_transaction_whose_outcome_waits() -> None:
    """Its answer takes the outcome to the disk."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id)
        await world.settle(0.001)
        await world.client.ask(pb.CommandAcceptTxnLoss(txn_id=txn_id.to_wire()))
        assert await row_counts(world) == (0, 1)
        assert not world.fatal_errors
        await world.close()

    run(scenario())


def test_not_found_and_forgotten() -> None:
    async def scenario() -> None:
        world = await World(outcomes_max=2, recent_outcomes_max=1).start()
        client = world.client
        txn_ids = [await client.new() for _ in range(4)]
        for txn_id in txn_ids:
            await client.end(txn_id, wait_finished=True)
        # From the store, as only one is remembered.
        assert await client.status(txn_ids[0]) == common.COMMITTED
        assert await client.end(txn_ids[0], wait_finished=True) == common.COMMITTED
        await refused(client.ask(end_command(txn_ids[0], common.ABORT)), InvalidTxnState)
        await refused(client.ask(add_command(txn_ids[0], P0)), InvalidTxnState)
        await world.settle(2)
        for txn_id in txn_ids[:2]:
            await refused(client.ask(end_command(txn_id)), TxnForgotten)
            await refused(client.ask(add_command(txn_id, P0)), TxnForgotten)
        assert await client.status(txn_ids[2]) == common.COMMITTED
        await refused(client.ask(end_command(TxnID.of(0, 1, 4))), TxnNotFound)
        await refused(client.ask(pb.CommandEndTxn()), InvalidArgument)
        await world.close()

    run(scenario())


def test_outcomes_are_kept_for_a_time_of_running() -> None:
    async def scenario() -> None:
        world = await World(
            outcome_retention_ms=900_000, recent_outcomes_max=0, outcome_removal_rows=2
        ).start()
        client = world.client
        late = await client.new()
        txn_ids = [await client.new() for _ in range(5)]
        for txn_id in txn_ids:
            await client.end(txn_id, wait_finished=True)
        await world.settle(30)
        await client.end(late, wait_finished=True)
        await world.settle(869)
        assert await client.status(txn_ids[0]) == common.COMMITTED
        await world.settle(4)
        for txn_id in txn_ids:
            await refused(client.ask(end_command(txn_id)), TxnForgotten)
        assert await client.status(late) == common.COMMITTED
        await world.settle(31)
        assert await row_counts(world) == (0, 0)
        # One that is older than what was looked at last is found too.
        assert world.coordinator._metadata.outcome_count == 0
        await world.close()

    run(scenario())


def test_outcomes_are_not_read_before_one_can_be_old_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading them every second took a tenth of a busy coordinator's time."""

    async def scenario() -> None:
        world = await World(outcome_retention_ms=900_000, outcomes_max=40).start()
        metadata = world.coordinator._metadata
        read = metadata.outcome_ends
        reads = 0

        async def counted(start: bytes, *, rows_max: int) -> Any:
            nonlocal reads
            reads += 1
            return await read(start, rows_max=rows_max)

        monkeypatch.setattr(metadata, "outcome_ends", counted)
        for _ in range(20):
            await world.client.end(await world.client.new(), wait_finished=True)
            await world.settle(30)
        assert reads == 1
        assert metadata.outcome_count == 20
        await world.settle(295)
        assert metadata.outcome_count == 20
        await world.settle(10)
        assert metadata.outcome_count == 19
        for _ in range(30):
            await world.client.end(await world.client.new(), wait_finished=True)
        await world.settle(2)
        assert metadata.outcome_count == 40, "more than may be kept is due at once"
        await world.close()

    run(scenario())


def test_disk_full_leaves_room_for_ends() -> None:
    """The reserve serves ends, which must not fail."""

    async def scenario() -> None:
        world = await World(free_space_floor_bytes=1 << 20).start()
        txn_id = await world.client.new(P0)
        world.disk.free_bytes = (1 << 20) - 1
        await world.settle(0.2)
        await refused(world.client.ask(pb.CommandNewTxn()), DiskFull)
        assert await world.client.end(txn_id, wait_finished=True) == common.COMMITTED
        world.disk.free_bytes = 1 << 20
        await world.settle(0.2)
        await world.client.new()
        await world.close()

    run(scenario())


def test_listing() -> None:
    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = lambda name, body: SILENCE if name.startswith("end_txn") else None
        txn_ids = [await world.client.new(P0) for _ in range(3)]
        await world.client.end(txn_ids[1])
        await world.settle(10)
        txn_ids.append(await world.client.new())

        async def listed(**fields: Any) -> tuple[list[TxnID], bool]:
            response = await world.client.ask(pb.CommandListTxns(**fields))
            found = [TxnID.from_wire(one.txn_id) for one in response.transactions]
            return found, response.truncated

        assert await listed() == (txn_ids, False)
        assert await listed(limit=2) == (txn_ids[:2], True)
        assert await listed(statuses=[common.COMMITTING]) == (txn_ids[1:2], False)
        assert await listed(age_ms_min=5_000) == (txn_ids[:3], False)
        await refused(world.client.ask(pb.CommandListTxns(statuses=[99])), InvalidArgument)  # type: ignore[list-item]
        assert world.metric("transactions", status="open") == 2
        assert world.metric("oldest_open_seconds") >= 9
        # The second one was decided, and its participant has not answered yet.
        assert world.metric("oldest_finishing_seconds") >= 9
        world.broker.answer = lambda name, body: None
        await world.settle(10)
        assert world.metric("oldest_finishing_seconds") == 0
        await world.close()

    run(scenario())


def test_the_handshake_compares_clusters() -> None:
    async def scenario() -> None:
        world = await World(cluster_hash="abc").start()
        hello = common.CommandHello(
            protocol_version=PROTOCOL_VERSION, client_name="me", cluster_hash="abc"
        )
        assert (await world.client.ask(hello)).cluster_hash == "abc"
        hello.cluster_hash = ""
        assert (await world.client.ask(hello)).server_name == "coordinator-0"
        hello.cluster_hash = "other"
        await refused(world.client.ask(hello), ClusterMismatch)
        await world.close()

    run(scenario())


def test_a_coordinator_without_a_list_takes_whomever_its_broker_takes() -> None:
    async def scenario() -> None:
        world = await World().start()
        hello = common.CommandHello(
            protocol_version=PROTOCOL_VERSION, client_name="me", cluster_hash="abc"
        )
        assert (await world.client.ask(hello)).server_name == "coordinator-0"
        await world.close()

    run(scenario())
