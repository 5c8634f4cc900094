"""Copies of a coordinator's commands that arrive after what came next.

docs/design/0001-protocol.md, Late copies, has a row for each of these tests; those of InitProducer
are in test_init_producer.py.
"""

from __future__ import annotations

import pytest
from tests.coordinator.fakes import P0, P1, S0, FakeClient, World, add_command, end_command, refused
from tests.coordinator.producers import Hand
from tests.coordinator.test_named_sequences import asked
from tests.virtual_time import run

from magnetar_core.errors import (
    InvalidTxnState,
    ProducerFenced,
    SequenceCommitted,
    TxnForgotten,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

BOTH = (common.COMMIT, common.ABORT)


def txn_id_of(response: pb.CommandNewTxnResponse) -> TxnID:
    return TxnID.from_wire(response.txn_id)


def test_new_txn() -> None:
    """It opens one that nobody uses; that expires, and has touched nothing."""

    async def scenario() -> None:
        world = await World().start()
        command = pb.CommandNewTxn(txn_timeout_ms=1_000)
        first = txn_id_of(await world.client.ask(command))
        await world.client.end(first)
        copy = txn_id_of(await FakeClient(world.coordinator).ask(command))
        assert copy != first
        await world.settle(2.0)
        assert await world.client.status(copy) == common.ABORTED
        assert await world.client.status(first) == common.COMMITTED
        await world.close()

    run(scenario())


@pytest.mark.parametrize("action", BOTH)
def test_new_txn_of_an_identity(action: int) -> None:
    async def scenario() -> None:
        world = await World().start()
        app = Hand(world)
        pair = await app.init()
        command = app.begin_command(pair, P0)
        first = txn_id_of(await app.ask(command))
        assert txn_id_of(await app.ask(command)) == first
        following = await app.end(pair, action)
        await world.settle()
        await refused(app.ask(command), InvalidTxnState)
        second = await app.begin(following, P0)
        await refused(app.ask(command), ProducerFenced)
        await app.add(following, second)
        await world.close()

    run(scenario())


def test_new_txn_of_a_named_sequence() -> None:
    """A copy of the earlier run's call aborted what the later one had open."""

    async def scenario() -> None:
        world = await World().start()
        ask = world.client.ask
        earlier = asked(1, "run-1", call_token=1)
        first = txn_id_of(await ask(earlier))
        second = txn_id_of(await ask(asked(1, "run-2", call_token=2)))
        late = await FakeClient(world.coordinator).ask(earlier)
        assert txn_id_of(late) == first
        assert await world.client.status(second) == common.OPEN
        await world.client.end(second)
        third = txn_id_of(await ask(asked(2, "run-2", call_token=3)))
        await FakeClient(world.coordinator).ask(earlier)
        assert await world.client.status(third) == common.OPEN
        # Of a server that has started anew since, the sequence itself takes care.
        await world.restart()
        await refused(world.client.ask(earlier), SequenceCommitted)
        await world.close()

    run(scenario())


@pytest.mark.parametrize("action", BOTH)
@pytest.mark.parametrize("participant", [P1, S0])
def test_add_participants(participant: object, action: int) -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        command = add_command(txn_id, participant)  # type: ignore[arg-type]
        await world.client.ask(command)
        await world.client.ask(command)
        await world.client.end(txn_id, action, wait_finished=True)
        before = dict(world.broker.ended)
        await refused(world.client.ask(command), InvalidTxnState)
        await world.settle()
        assert world.broker.ended == before
        await world.close()

    run(scenario())


@pytest.mark.parametrize("action", BOTH)
def test_end_txn(action: int) -> None:
    async def scenario() -> None:
        world = await World(
            outcome_retention_ms=10_000,
            txn_timeout_ms_max=10_000,
            txn_timeout_ms_default=5_000,
            recent_outcomes_max=0,
        ).start()
        txn_id = await world.client.new(P0)
        command = end_command(txn_id, action)
        await world.client.ask(command)
        await world.settle()
        for _ in range(2):
            later = await world.client.ask(command)
            assert later.status == (common.COMMITTED if action == common.COMMIT else common.ABORTED)
            await world.restart()
        await world.settle(60)
        await refused(world.client.ask(command), TxnForgotten)
        await world.close()

    run(scenario())


@pytest.mark.parametrize("action", BOTH)
def test_end_txn_of_an_identity(action: int) -> None:
    async def scenario() -> None:
        world = await World().start()
        app = Hand(world)
        pair = await app.init()
        first = await app.begin(pair, P0)
        # With and without its TxnID: it means what was open when it was sent.
        copies = [
            app.end_command(pair, action),
            app.end_command(pair, action, txn_id=first.to_wire()),
        ]
        following = await app.end(pair, action)
        await world.settle()
        for copy in copies:
            again = await app.ask(copy)
            assert again.identity.producer_epoch == following.epoch
        second = await app.begin(following, P0)
        for copy in copies:
            await refused(app.ask(copy), ProducerFenced)
        assert await world.client.status(second) == common.OPEN
        await world.close()

    run(scenario())


def test_remove_name() -> None:
    """What had been committed since could have been committed again."""

    async def scenario() -> None:
        world = await World().start()
        ask = world.client.ask
        remove = pb.CommandRemoveName(name="query", call_token=9)
        await world.client.end(txn_id_of(await ask(asked(1))))
        await ask(remove)
        await world.client.end(txn_id_of(await ask(asked(1))))
        await FakeClient(world.coordinator).ask(remove)
        await refused(ask(asked(1)), SequenceCommitted)
        await world.close()

    run(scenario())


def test_accept_txn_loss() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id, wait_finished=True)
        for _ in range(2):
            await world.client.ask(pb.CommandAcceptTxnLoss(txn_id=txn_id.to_wire()))
        assert await world.client.status(txn_id) == common.COMMITTED
        await world.close()

    run(scenario())


def test_close_cut() -> None:
    """It closes nothing more: its clock is above it, and what came since is not told."""

    async def scenario() -> None:
        world = await World().start()
        command = pb.CommandCloseCut(stamp=(await world.client.ask(pb.CommandCloseCut())).clock)
        await world.client.ask(command)
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        assert stamp > command.stamp
        answer = await FakeClient(world.coordinator).ask(command)
        assert not answer.unfinished
        assert answer.clock >= stamp
        await world.close()

    run(scenario())


def test_abort_hanging_txn() -> None:
    """It names a TxnID, which is never issued again: what is live is left alone."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        command = pb.CommandAbortHangingTxn(txn_id=txn_id.to_wire(), partition=P0.to_wire())
        await refused(world.client.ask(command), InvalidTxnState)
        assert await world.client.status(txn_id) == common.OPEN
        await world.client.end(txn_id, wait_finished=True)
        # The broker refuses: nothing is open there.
        await refused(world.client.ask(command), InvalidTxnState)
        assert world.broker.ended == {(txn_id, P0): common.COMMIT}
        await world.close()

    run(scenario())


def test_abort_expelled() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_ids = [await world.client.new(P0) for _ in range(2)]
        word = pb.CommandAbortExpelled(txn_ids=[txn_ids[0].to_wire()])
        world.transport.push(word)
        await world.settle()
        world.transport.push(word)
        await world.settle()
        assert await world.client.status(txn_ids[0]) == common.ABORTED
        assert await world.client.status(txn_ids[1]) == common.OPEN
        await world.close()

    run(scenario())
