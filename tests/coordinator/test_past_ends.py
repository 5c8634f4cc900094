"""docs/protocol/rules.md, rule n: after a loss, participants are asked before anything is ended."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.fakes import P0, P1, SILENCE, World, end_command, refused
from tests.coordinator.producers import Hand
from tests.simulation.nodes import ServerNode
from tests.virtual_time import run

from magnetar_coordinator.ending.past_ends import Ask, PastEnd, PastEnds, past_ends
from magnetar_coordinator.metadata.records import FAMILIES, META
from magnetar_coordinator.metadata.transaction import TxnAction
from magnetar_core.errors import InvalidTxnState, ProducerFenced, TxnForgotten, Unimplemented
from magnetar_core.ids import PartitionName, TxnID
from magnetar_core.selections import digest_of_selection
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage import store_identity
from magnetar_storage.memory.engine import MemoryStore
from magnetar_storage.store import WriteBatch

TIMEOUT_MS = 5_000


async def lose_the_end(world: World, action: int, **fields: object) -> TxnID:
    """An end is decided, told to its client and carried out on P0; then it is lost."""
    txn_id = await world.client.new(P0, P1, txn_timeout_ms=TIMEOUT_MS)

    def answer(name: str, body: object) -> object:
        if name == "end_txn_on_partition":
            # P1 is out of reach.
            return SILENCE if PartitionName.from_wire(body.partition) == P1 else None  # type: ignore[attr-defined]
        return None

    world.broker.answer = answer
    await world.settle()
    kept = {name: dict(rows) for name, rows in (await copy_of(world)).items()}
    await world.client.end(txn_id, action, **fields)
    await world.settle()
    assert (txn_id, P0) in world.broker.ended
    assert (txn_id, P1) not in world.broker.ended
    world.crash()
    await put_back(world, kept)
    world.broker.answer = lambda name, body: None
    return txn_id


async def copy_of(world: World) -> dict[str, list[tuple[bytes, bytes]]]:
    store = world.coordinator._store
    return {
        family: await store.scan(family, b"", b"\xff" * 64, rows_max=10_000) for family in FAMILIES
    }


async def put_back(world: World | ServerNode, kept: dict[str, dict[bytes, bytes]]) -> None:
    """An older copy takes the place of the store, and somebody accepts that."""
    store = MemoryStore(world.disk, FAMILIES)
    batch = WriteBatch()
    for family, rows in kept.items():
        batch.delete_range(family, b"", b"\xff" * 64)
        for key, value in rows.items():
            batch.put(family, key, value)
    row = StoreIdentity.FromString(kept[META][store_identity.KEY])
    row.losses += 1
    batch.put(META, store_identity.KEY, row.SerializeToString(deterministic=True))
    await store.write(batch)
    await store.sync()
    await store.close()


@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_ended_before_a_loss_ends_the_same_everywhere(
    action: int, restarted: bool
) -> None:
    """Its time was up, and the rest of an acknowledged commit was aborted."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await lose_the_end(world, action)
        await world.start()
        if restarted:
            await world.restart()
        await world.settle(2 * TIMEOUT_MS / 1_000)
        assert world.broker.ended == {(txn_id, P0): action, (txn_id, P1): action}
        expected = common.COMMITTED if action == common.COMMIT else common.ABORTED
        assert await world.client.status(txn_id) == expected
        await world.close()

    run(scenario())


def test_nobody_is_served_before_brokers_have_answered() -> None:
    """A client that ends it otherwise must not come first."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await lose_the_end(world, common.COMMIT)
        world.broker.answer = lambda name, body: SILENCE if name == "describe_ends" else None
        task = asyncio.ensure_future(world.start())
        await world.settle(20)
        assert not task.done()
        world.broker.answer = lambda name, body: None
        await task
        await refused(world.client.ask(end_command(txn_id, common.ABORT)), InvalidTxnState)
        await world.close()

    run(scenario())


def test_a_broker_is_asked_until_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever its error: without the answer the coordinator serves nobody."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await lose_the_end(world, common.COMMIT)

        unknown = Unimplemented("no such command").to_wire()
        world.broker.answer = lambda name, body: unknown if name == "describe_ends" else None
        task = asyncio.ensure_future(world.start())
        await world.settle(20)
        assert not task.done()
        assert "describe_ends_response" in caplog.text
        assert "no such command" in caplog.text
        world.broker.answer = lambda name, body: None
        await task
        await world.settle(1)
        assert world.broker.ended[txn_id, P1] == common.COMMIT
        await world.close()

    run(scenario())


def test_a_commit_with_a_selection_waits_for_who_knows_it() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await lose_the_end(
            world, common.COMMIT, selection_given=True, selected_writer_ids=[7]
        )
        world.broker.digest = digest_of_selection([7])
        await world.start()
        await world.settle(2 * TIMEOUT_MS / 1_000)
        assert await world.client.status(txn_id) == common.OPEN
        for other in (
            end_command(txn_id, common.ABORT),
            end_command(txn_id, common.COMMIT),
            end_command(txn_id, common.COMMIT, selection_given=True, selected_writer_ids=[8]),
        ):
            await refused(world.client.ask(other), InvalidTxnState)
        # Naming a writer twice selects no other writers.
        await world.client.end(
            txn_id, common.COMMIT, selection_given=True, selected_writer_ids=[7, 7]
        )
        await world.settle(1)
        assert world.broker.ended[txn_id, P1] == common.COMMIT
        await world.close()

    run(scenario())


def test_somebody_may_accept_that_it_is_torn() -> None:
    async def scenario() -> None:
        world = await World().start()
        selection = {"selection_given": True, "selected_writer_ids": [7]}
        txn_id = await lose_the_end(world, common.COMMIT, **selection)
        world.broker.digest = digest_of_selection([7])
        await world.start()
        # A participant that has committed it does not abort it.
        world.broker.answer = lambda name, body: (
            InvalidTxnState("was committed here").to_wire()
            if name == "end_txn_on_partition" and PartitionName.from_wire(body.partition) == P0
            else None
        )
        await world.client.ask(pb.CommandAcceptTxnLoss(txn_id=txn_id.to_wire()))
        assert await world.client.end(txn_id, common.ABORT) == common.ABORTING
        await world.settle(1)
        assert world.broker.ended[txn_id, P1] == common.ABORT
        await world.close()

    run(scenario())


def test_what_is_open_everywhere_goes_on() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0, txn_timeout_ms=TIMEOUT_MS)
        await world.settle()
        kept = {name: dict(rows) for name, rows in (await copy_of(world)).items()}
        world.crash()
        await put_back(world, kept)
        await world.start()
        assert len(world.broker.all_of("describe_ends")) == 1
        assert await world.client.end(txn_id) in (common.COMMITTING, common.COMMITTED)
        await world.close()

    run(scenario())


FORGOTTEN = None


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ([common.ABORT, FORGOTTEN], FORGOTTEN),
        ([FORGOTTEN, common.ABORT], FORGOTTEN),
        ([FORGOTTEN, common.COMMIT], TxnAction.COMMIT),
        ([common.COMMIT, FORGOTTEN, common.ABORT], TxnAction.COMMIT),
        ([common.ABORT, common.COMMIT], TxnAction.COMMIT),
        ([common.ABORT, common.ABORT], TxnAction.ABORT),
    ],
)
def test_an_abort_of_what_took_no_part_counts_least(
    said: list[common.TxnAction | None], action: TxnAction | None
) -> None:
    """spec/Disaster.tla found it: a commit, forgotten at one broker, was an abort for the other."""
    txn_id = TxnID.of(0, 1, 7)

    async def scenario() -> None:
        def ask(one: common.TxnAction | None) -> Ask:
            async def answer(body: pb.CommandDescribeEnds) -> pb.CommandDescribeEndsResponse:
                response = pb.CommandDescribeEndsResponse()
                if one is FORGOTTEN:
                    response.forgotten.add().CopyFrom(body.txn_ids[0])
                else:
                    response.ends.add(txn_id=body.txn_ids[0], txn_action=one)
                return response

            return answer

        asks = [ask(one) for one in said]
        found = await past_ends(asks, [txn_id], tcid=0, incarnation=2, store_token="two")
        if action is FORGOTTEN:
            assert found == PastEnds({}, [txn_id])
        else:
            assert found == PastEnds({txn_id: PastEnd(action)}, [])

    run(scenario())


async def forget_the_ends(world: World, *txn_ids: TxnID) -> None:
    """Go on with a copy from before these transactions ended; their participants forgot them."""
    kept = {name: dict(rows) for name, rows in (await copy_of(world)).items()}
    for txn_id in txn_ids:
        await world.client.end(txn_id, wait_finished=True)
    world.crash()
    await put_back(world, kept)
    world.broker.forgotten.update(txn_ids)
    await world.start()


@pytest.mark.parametrize("restarted", [False, True])
def test_how_a_forgotten_transaction_ended_is_not_invented(restarted: bool) -> None:
    """The records said ABORTED of a commit that all participants had carried out and forgotten."""

    async def scenario() -> None:
        world = await World().start()
        gone = await world.client.new(P0, P1, txn_timeout_ms=TIMEOUT_MS)
        is_open = await world.client.new(P0)
        await world.settle()
        await forget_the_ends(world, gone)
        if restarted:
            await world.settle()
            world.broker.forgotten.clear()
            await world.restart()
        world.broker.received.clear()
        for action in (common.COMMIT, common.ABORT):
            await refused(world.client.ask(end_command(gone, action)), TxnForgotten)
        await refused(world.client.ask(pb.CommandDescribeTxn(txn_id=gone.to_wire())), TxnForgotten)
        await world.settle(2 * TIMEOUT_MS / 1_000)
        assert not world.broker.all_of("end_txn_on_partition")
        assert await world.client.status(is_open) == common.OPEN
        await world.close()

    run(scenario())


def test_a_transactional_id_goes_on_after_a_forgotten_transaction() -> None:
    """With the pair that the end had given to its client."""

    async def scenario() -> None:
        world = await World(two_phase_commit_enabled=True).start()
        hand = Hand(world)
        pair = await hand.init(two_phase=True)
        gone = await hand.begin(pair, P0)
        await world.settle()
        kept = {name: dict(rows) for name, rows in (await copy_of(world)).items()}
        following = await hand.end(pair)
        await world.settle()
        world.crash()
        await put_back(world, kept)
        world.broker.forgotten.add(gone)
        await world.start()
        await refused(hand.ask(hand.begin_command(pair, P0)), ProducerFenced)
        await hand.end(following, txn_id=(await hand.begin(following, P0)).to_wire())
        await world.close()

    run(scenario())


def test_a_named_sequence_may_run_again_after_a_forgotten_transaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        world = await World().start()
        named = pb.NamedSequence(name="query", sequence=7, run_token="run-1")
        begin = pb.CommandNewTxn(named_sequence=named, partitions=[P0.to_wire()])
        gone = TxnID.from_wire((await world.client.ask(begin)).txn_id)
        await world.settle()
        await forget_the_ends(world, gone)
        again = TxnID.from_wire((await world.client.ask(begin)).txn_id)
        assert again != gone
        assert "look into its topics before it runs again" in caplog.text
        await world.restart()
        assert await world.client.status(again) == common.OPEN
        await world.close()

    run(scenario())
