"""Stamps of commits: given at the decision, kept, told to brokers and clients, rising for ever.

Source: docs/design/0015-cuts.md, Stamps.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.coordinator.fakes import P0, P1, S0, SILENCE, FakeClient, World, end_command, refused
from tests.coordinator.producers import Hand
from tests.coordinator.test_named_sequences import asked
from tests.coordinator.test_past_ends import lose_the_end
from tests.virtual_time import run

from magnetar_coordinator.metadata.records import (
    META,
    META_STAMP_BOUND,
    StatusChanged,
    txn_id_of_key,
    u64,
)
from magnetar_coordinator.metadata.transaction_rows import decode_metadata, encode_metadata
from magnetar_core.cuts.hybrid_clock import stamp_at, time_ms_of
from magnetar_core.errors import InvalidArgument, SequenceCommitted
from magnetar_core.ids import TxnID
from magnetar_core.selections import digest_of_selection
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_storage.memory.engine import MemoryStore
from magnetar_storage.store import WriteBatch

DAY_MS = 24 * 3_600_000
YEAR_MS = 366 * DAY_MS


async def committed(client: FakeClient, *participants: Any, **fields: Any) -> int:
    """The stamp with which a new transaction is committed."""
    txn_id = await client.new(*participants)
    answer = await client.ask(end_command(txn_id, **fields))
    assert answer.stamp > 0
    return int(answer.stamp)


def test_a_commit_tells_its_stamp_to_client_and_participants() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0, P1)
        await world.client.add(txn_id, S0)
        answer = await world.client.ask(end_command(txn_id, wait_finished=True))
        assert time_ms_of(answer.stamp) == world.clock.wall_ms()
        assert world.broker.stamps == {
            (txn_id, P0): answer.stamp,
            (txn_id, P1): answer.stamp,
            (txn_id, S0): answer.stamp,
        }
        assert (await world.client.describe(txn_id)).stamp == answer.stamp
        await world.close()

    run(scenario())


def test_an_abort_has_no_stamp() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        answer = await world.client.ask(end_command(txn_id, common.ABORT, wait_finished=True))
        assert answer.stamp == 0
        assert world.broker.stamps == {(txn_id, P0): 0}
        await world.close()

    run(scenario())


@pytest.mark.parametrize("power", [False, True])
def test_a_repeated_commit_has_the_same_stamp_also_after_restarts(power: bool) -> None:
    async def scenario() -> None:
        world = await World(recent_outcomes_max=0).start()
        world.broker.answer = lambda name, body: SILENCE if name.startswith("end_txn") else None
        txn_id = await world.client.new(P0)
        first = await world.client.ask(end_command(txn_id))
        await world.restart(Random(3) if power else None)
        again = await world.client.ask(end_command(txn_id))
        assert again.stamp == first.stamp
        world.broker.answer = lambda name, body: None
        finished = await world.client.ask(end_command(txn_id, wait_finished=True))
        assert finished.stamp == first.stamp
        assert world.broker.stamps == {(txn_id, P0): first.stamp}
        await world.restart(Random(3) if power else None)
        assert (await world.client.ask(end_command(txn_id))).stamp == first.stamp
        assert (await world.client.describe(txn_id)).stamp == first.stamp
        await world.close()

    run(scenario())


@pytest.mark.parametrize("jump_ms", [0, -DAY_MS, DAY_MS])
def test_stamps_rise_over_restarts_and_jumps_of_the_wall_clock(jump_ms: int) -> None:
    """Half a second lies between them: the stored bound is a second ahead."""

    async def scenario() -> None:
        world = await World().start()
        last = 0
        for number in range(12):
            stamp = await committed(world.client, P0)
            assert stamp > last
            last = stamp
            await world.settle(0.5)
            if number % 3 == 1:
                await world.restart(Random(number))
            if number == 5:
                world.clock.wall_offset_ms += jump_ms
        await world.close()

    run(scenario())


def test_stamps_rise_in_the_order_of_decisions() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_ids = [await world.client.new(P0) for _ in range(20)]
        answers = [world.client.ask(end_command(txn_id)) for txn_id in reversed(txn_ids)]
        stamps = [(await answer).stamp for answer in answers]
        assert stamps == sorted(set(stamps))
        await world.close()

    run(scenario())


# What a client has seen.


@pytest.mark.parametrize("command", ["new", "add_partition", "add_subscription", "end"])
def test_a_commit_is_stamped_above_what_its_client_has_seen(command: str) -> None:
    async def scenario() -> None:
        world = await World().start()
        seen = stamp_at(world.clock.wall_ms() + DAY_MS)
        given: dict[str, Any] = {"seen_stamp": seen}
        txn_id = await world.client.new(P0, **(given if command == "new" else {}))
        if command == "add_partition":
            await world.client.ask(pb.CommandAddPartitionToTxn(txn_id=txn_id.to_wire(), **given))
        if command == "add_subscription":
            added = [S0.to_wire()]
            await world.client.ask(
                pb.CommandAddSubscriptionToTxn(
                    txn_id=txn_id.to_wire(), subscriptions=added, **given
                )
            )
        # What was answered is kept.
        await world.restart(Random(1))
        last = await world.client.ask(end_command(txn_id, **(given if command == "end" else {})))
        assert last.stamp > seen
        await world.close()

    run(scenario())


def test_what_nobody_can_have_seen_is_refused_without_effect() -> None:
    async def scenario() -> None:
        world = await World().start()
        before = await committed(world.client, P0)
        txn_id = await world.client.new(P0)
        for seen in (stamp_at(world.clock.wall_ms() + YEAR_MS + 60_000), (1 << 64) - 1):
            wire = txn_id.to_wire()
            for command in (
                end_command(txn_id, seen_stamp=seen),
                pb.CommandNewTxn(txn_timeout_ms=1_000, seen_stamp=seen),
                pb.CommandAddPartitionToTxn(txn_id=wire, seen_stamp=seen),
                pb.CommandAddSubscriptionToTxn(txn_id=wire, seen_stamp=seen),
            ):
                await refused(world.client.ask(command), InvalidArgument)
        assert await world.client.status(txn_id) == common.OPEN
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        assert before < stamp < stamp_at(world.clock.wall_ms() + 60_000)
        await world.close()

    run(scenario())


def test_a_setting_says_how_far_a_stamp_may_lie_ahead() -> None:
    async def scenario() -> None:
        world = await World(stamp_ahead_ms_max=5_000).start()
        txn_id = await world.client.new(P0)
        seen = stamp_at(world.clock.wall_ms() + 6_000)
        error = await refused(
            world.client.ask(end_command(txn_id, seen_stamp=seen)), InvalidArgument
        )
        assert "stamp_ahead_ms_max" in str(error)
        # A coordinator believes what it has stored itself, wherever its time is.
        last = await committed(world.client, P0, seen_stamp=seen - (2_000 << 16))
        world.clock.wall_offset_ms -= DAY_MS
        await world.restart(Random(1))
        assert await committed(world.client, P0, seen_stamp=last) > last
        await world.close()

    run(scenario())


def test_a_committed_sequence_tells_a_stamp_above_its_commit() -> None:
    """Whoever skips the work may commit what follows from it at another coordinator."""

    async def scenario() -> None:
        world = await World().start()
        opened = await world.client.ask(asked(1))
        stamp = (await world.client.ask(end_command(TxnID.from_wire(opened.txn_id)))).stamp
        await world.restart()
        error = await refused(world.client.ask(asked(1)), SequenceCommitted)
        assert int(error.details["stamp"]) >= stamp
        await world.close()

    run(scenario())


def test_the_repeated_end_of_an_identity_tells_a_stamp() -> None:
    async def scenario() -> None:
        world = await World().start()
        app = Hand(world)
        pair = await app.init()
        txn_id = await app.begin(pair, P0)
        command = end_command(txn_id, identity=app.identity(pair))
        stamp = (await world.client.ask(command)).stamp
        await world.settle()
        assert (await world.client.ask(command)).stamp >= stamp > 0
        await world.close()

    run(scenario())


# Losses.


def test_a_commit_that_is_decided_again_after_a_loss_keeps_its_stamp() -> None:
    """Its first marker has it: with another one, a cut between the two would tear it."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await lose_the_end(world, common.COMMIT)
        told = world.broker.stamps[txn_id, P0]
        await world.settle(3)
        await world.start()
        await world.settle()
        assert world.broker.stamps == {(txn_id, P0): told, (txn_id, P1): told}
        assert await committed(world.client, P0) > told
        await world.close()

    run(scenario())


def test_a_commit_whose_selection_is_lost_keeps_its_stamp() -> None:
    async def scenario() -> None:
        world = await World().start()
        selected: dict[str, Any] = {"selection_given": True, "selected_writer_ids": [4]}
        txn_id = await lose_the_end(world, common.COMMIT, **selected)
        told = world.broker.stamps[txn_id, P0]
        world.broker.digest = digest_of_selection([4])
        await world.settle(3)
        await world.start()
        assert (await world.client.ask(end_command(txn_id, **selected))).stamp == told
        await world.settle()
        assert world.broker.stamps == {(txn_id, P0): told, (txn_id, P1): told}
        await world.close()

    run(scenario())


def test_the_bound_is_stored_with_the_first_stamp_beyond_it() -> None:
    """What a store holds after a power loss: never a stamp at or above its bound."""

    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = lambda name, body: SILENCE if name.startswith("end_txn") else None
        for number in range(6):
            client, random = world.client, Random(number)
            for _ in range(3):
                txn_id = await client.new(P0)
                client.ask(end_command(txn_id))
            await world.settle(random.choice([0.0, 0.4]))
            world.crash(random)
            store = MemoryStore(world.disk, ("meta", "metadata"))
            stamps = [
                getattr(decode_metadata(txn_id_of_key(key), value), "stamp", 0)
                for key, value in await store.scan("metadata", b"", b"\xff" * 64, rows_max=1_000)
            ]
            bound = await store.get(META, META_STAMP_BOUND)
            assert u64(max(stamps)) < (bound or u64(1))
            await store.close()
            await world.start()
        await world.close()

    run(scenario())


def test_a_store_of_an_earlier_version_has_no_stamps() -> None:
    """What was decided by then is told without a stamp, and what comes later with one."""

    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = lambda name, body: SILENCE if name.startswith("end_txn") else None
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id)
        world.crash()
        store = MemoryStore(world.disk, ("meta", "metadata"))
        batch = WriteBatch()
        batch.delete(META, META_STAMP_BOUND)
        for key, value in await store.scan("metadata", b"", b"\xff" * 64, rows_max=10):
            record = decode_metadata(txn_id_of_key(key), value)
            if isinstance(record, StatusChanged):
                batch.put("metadata", key, encode_metadata(record._replace(stamp=0)))
        await store.write(batch)
        await store.sync()
        await store.close()
        world.broker.answer = lambda name, body: None
        await world.start()
        await world.settle()
        assert world.broker.stamps == {(txn_id, P0): 0}
        assert (await world.client.ask(end_command(txn_id))).stamp == 0
        assert await committed(world.client, P0) > 0
        await world.close()

    run(scenario())
