"""Copies of InitProducer that come late, and calls that say which pair they have.

KIP-939, RPC Changes, InitProducerId; KIP-360, for retries with a pair.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.fakes import World, refused
from tests.coordinator.producers import P0, Hand, hold_ends, raised_to
from tests.coordinator.test_two_phase_commit import ABORT, COMMIT, MAX, open_world
from tests.virtual_time import run

from magnetar_coordinator.metadata.records import decode_identity, encode_identity
from magnetar_coordinator.metadata.transactional_id import (
    PAST_CALLS_MAX,
    Pair,
    TransactionalIdMetadata,
)
from magnetar_core.errors import (
    ConcurrentTransactions,
    InvalidArgument,
    InvalidTxnState,
    ProducerFenced,
    TransactionalIdNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import record_pb2


async def nothing_changes(world: World, app: Hand, copy: Any) -> None:
    """A copy is refused, and the identity is as it was."""
    before = world.coordinator.transactional_ids.get(app.id)
    await refused(app.ask(copy), ProducerFenced)
    assert world.coordinator.transactional_ids.get(app.id) == before


def test_a_copy_of_the_first_call_is_answered_the_same() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init(call_token=11)
        assert await app.init(call_token=11) == pair
        await world.restart()
        assert await app.init(call_token=11) == pair
        txn_id = await app.begin(pair, P0)
        # It has heard the answer, as its transaction says: the copy does not touch that.
        assert await app.init(call_token=11) == pair
        await app.add(pair, txn_id)
        assert await app.end(pair) == Pair(pair.producer_id, pair.epoch + 1)
        await world.close()

    run(scenario())


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_copy_does_not_fence_its_own_instance(restarts: bool) -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init(call_token=11)
        for action in (COMMIT, ABORT, COMMIT):
            await app.begin(pair, P0)
            pair = await app.end(pair, action)
            await world.settle()
            if restarts:
                await world.restart()
            await nothing_changes(world, app, app.init_command(call_token=11))
            await app.begin(pair, P0)
            await nothing_changes(world, app, app.init_command(call_token=11))
            pair = await app.end(pair)
            await world.settle()
        await world.close()

    run(scenario())


def test_a_late_copy_does_not_fence_later_instances() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        await app.init(call_token=1)
        for later in range(2, 2 + PAST_CALLS_MAX):
            pair = await app.init(call_token=later)
            txn_id = await app.begin(pair, P0)
            await world.restart()
            for earlier in range(1, later):
                await nothing_changes(world, app, app.init_command(call_token=earlier))
            await app.add(pair, txn_id)
        await world.close()

    run(scenario())


def test_without_a_token_every_call_takes_over() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        first = await app.init()
        assert await app.init() == Pair(first.producer_id, first.epoch + 1)
        await world.close()

    run(scenario())


def test_a_call_and_its_copy_that_wait_together_get_one_pair() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init(call_token=1)
        await app.begin(pair, P0)
        hold_ends(world)
        both = [app.ask(app.init_command(call_token=2)) for _ in range(2)]
        await world.settle()
        hold_ends(world, False)
        first, second = [await one for one in both]
        assert first == second
        assert first.producer_epoch == pair.epoch + 2
        await world.close()

    run(scenario())


def test_a_call_that_gave_up_waiting_is_not_answered_by_its_copy_alone() -> None:
    """It was refused without effect: asked again, it takes over."""

    async def scenario() -> None:
        world = await open_world(takeover_wait_ms=50)
        app = Hand(world)
        pair = await app.init(call_token=1)
        await app.begin(pair, P0)
        hold_ends(world)
        call = app.init_command(call_token=2)
        await refused(app.ask(call), ConcurrentTransactions)
        hold_ends(world, False)
        await world.settle(0.2)
        taken = await app.ask(call)
        assert (await app.ask(call)).producer_epoch == taken.producer_epoch == pair.epoch + 2
        await world.close()

    run(scenario())


def test_a_copy_that_kept_a_transaction_tells_of_it_again_and_then_leaves_it_alone() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init(two_phase=True, call_token=1)
        txn_id = await app.begin(pair, P0)
        keep = app.init_command(True, True, call_token=2)
        kept = await app.ask(keep)
        assert TxnID.from_wire(kept.ongoing_txn_id) == txn_id
        assert await app.ask(keep) == kept
        await world.restart()
        assert await app.ask(keep) == kept
        await nothing_changes(world, app, app.init_command(call_token=1))
        following = await app.end(Pair(kept.producer_id, kept.producer_epoch))
        await world.settle()
        assert world.broker.ended == {(txn_id, P0): COMMIT}
        await nothing_changes(world, app, keep)
        await app.begin(following, P0)
        await nothing_changes(world, app, keep)
        await world.close()

    run(scenario())


def test_a_retry_with_a_pair_is_answered_the_same() -> None:
    """KIP-360: the newest pair is raised, the one before it was raised by the same call."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        first = await app.init()
        second = await app.init(**app.named(first))
        assert second == Pair(first.producer_id, first.epoch + 1)
        for _ in range(2):
            assert await app.init(**app.named(first)) == second
            await world.restart()
        third = await app.init(**app.named(second))
        assert third == Pair(first.producer_id, first.epoch + 2)
        await nothing_changes(world, app, app.init_command(**app.named(first)))
        await app.begin(third, P0)
        following = await app.end(third)
        await world.settle()
        # Late: it has raised the epoch, and its instance has gone on.
        await nothing_changes(world, app, app.init_command(**app.named(second)))
        await app.begin(following, P0)
        await world.close()

    run(scenario())


def test_anothers_pair_is_fenced_and_its_transaction_left_alone() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        old = await app.init()
        new = await app.init()
        txn_id = await app.begin(new, P0)
        for pair in (old, Pair(old.producer_id + 1, 0), Pair(old.producer_id, old.epoch + 7)):
            for keep in (False, True):
                copy = app.init_command(keep, call_token=5, **app.named(pair))
                await nothing_changes(world, app, copy)
        await app.add(new, txn_id)
        await app.end(new)
        await world.close()

    run(scenario())


def test_a_pair_aborts_its_own_open_transaction() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init()
        txn_id = await app.begin(pair, P0)
        following = await app.init(**app.named(pair))
        assert following == Pair(pair.producer_id, pair.epoch + 2)
        assert world.broker.ended == {(txn_id, P0): ABORT}
        assert await app.init(**app.named(pair)) == following
        await world.close()

    run(scenario())


def test_whose_end_was_answered_to_nobody_may_still_begin_anew() -> None:
    """Its pair is the one before the newest: nobody but its own end has raised it."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init()
        await app.begin(pair, P0)
        await app.end(pair)
        await world.settle()
        following = await app.init(**app.named(pair))
        assert following == Pair(pair.producer_id, pair.epoch + 2)
        await app.begin(following, P0)
        await world.close()

    run(scenario())


def test_of_two_that_wait_the_one_with_the_older_pair_is_fenced() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init()
        await app.begin(pair, P0)
        hold_ends(world)
        newcomer = app.ask(app.init_command(call_token=2))
        own = app.ask(app.init_command(**app.named(pair)))
        hold_ends(world, False)
        await newcomer
        await refused(own, ProducerFenced)
        await world.close()

    run(scenario())


def test_a_pair_survives_the_overflow_of_its_epoch() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        last = await raised_to(app, MAX - 1)
        rotated = await app.init(**app.named(last))
        assert (rotated.producer_id > last.producer_id, rotated.epoch) == (True, 0)
        assert await app.init(**app.named(last)) == rotated
        await world.close()

    run(scenario())


def test_half_a_pair_is_no_pair() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        await refused(app.ask(app.init_command(producer_id=1)), InvalidArgument)
        # -1 is none, as Kafka writes it.
        pair = await app.init(producer_id=-1, producer_epoch=-1)
        assert await app.init(producer_id=-1, producer_epoch=-1) != pair
        await world.close()

    run(scenario())


def test_rows_of_earlier_versions_are_read() -> None:
    row = record_pb2.IdentityRow(
        producer_id=4,
        producer_epoch=2,
        prev_producer_id=-1,
        prev_producer_epoch=-1,
        next_producer_id=-1,
        next_producer_epoch=-1,
        txn_timeout_ms=1_000,
    )
    found = decode_identity("app", row.SerializeToString())
    assert found == TransactionalIdMetadata(
        transactional_id="app", producer=Pair(4, 2), timeout_ms=1_000
    )
    assert encode_identity(found) == row.SerializeToString()


@pytest.mark.parametrize("keep", [False, True])
def test_a_takeover_that_names_a_transaction_touches_no_other(keep: bool) -> None:
    """A program that lives may have begun its next transaction since somebody looked."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init()
        seen = await app.begin(pair, P0)
        named: dict[str, Any] = {"open_txn_id": seen.to_wire()}
        pair = await app.end(pair, COMMIT)
        await world.settle()
        before = world.coordinator.transactional_ids.get(app.id)
        await refused(app.ask(app.init_command(keep, call_token=1, **named)), InvalidTxnState)
        assert world.coordinator.transactional_ids.get(app.id) == before
        later = await app.begin(pair, P0)
        before = world.coordinator.transactional_ids.get(app.id)
        await refused(app.ask(app.init_command(keep, call_token=2, **named)), InvalidTxnState)
        assert world.coordinator.transactional_ids.get(app.id) == before
        await app.add(pair, later)
        await app.end(pair, COMMIT)
        await world.close()

    run(scenario())


def test_copies_of_a_takeover_that_names_a_transaction() -> None:
    """One comes while the abort goes on, one after it, and one when the program has gone on."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        seen = await app.begin(await app.init(), P0)
        call = app.init_command(call_token=7, open_txn_id=seen.to_wire())
        hold_ends(world, True)
        first, copy = app.ask(call), app.ask(call)
        hold_ends(world, False)
        answers = [await first, await copy, await app.ask(call)]
        assert len({one.SerializeToString() for one in answers}) == 1
        pair = Pair(answers[0].producer_id, answers[0].producer_epoch)
        await app.end(await app.init(), ABORT)
        await nothing_changes(world, app, call)
        await refused(app.ask(app.end_command(pair, COMMIT)), ProducerFenced)
        await world.close()

    run(scenario())


def test_a_takeover_that_names_a_transaction_creates_no_id() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        named: dict[str, Any] = {"open_txn_id": TxnID.of(0, 1, 1).to_wire()}
        await refused(app.ask(app.init_command(**named)), TransactionalIdNotFound)
        assert world.coordinator.transactional_ids.find(app.id) is None
        await app.init()
        await refused(app.ask(app.init_command(**named)), InvalidTxnState)
        await world.close()

    run(scenario())
