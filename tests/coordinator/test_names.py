"""Named sequences: work that counts once, however often, and by whomever, it is tried."""

from __future__ import annotations

from typing import Any

from tests.coordinator.fakes import World, refused, run
from tests.coordinator.producers import P0, P1, hold_ends

from magnetar_core.errors import (
    InvalidArgument,
    InvalidTxnState,
    QuotaExceeded,
    ResourceInUse,
    SequenceCommitted,
    SequenceTooOld,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb


def asked(sequence: int, token: str = "run-1", name: str = "query", **fields: Any) -> Any:
    named = pb.NamedSequence(name=name, sequence=sequence, run_token=token)
    return pb.CommandNewTxn(named_sequence=named, **fields)


async def begin(world: World, sequence: int, token: str = "run-1", **fields: Any) -> TxnID:
    response = await world.client.ask(asked(sequence, token, **fields))
    return TxnID.from_wire(response.txn_id)


def test_the_same_run_shares_a_transaction_and_a_commit_counts_once() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await begin(world, 7, partitions=[P0.to_wire()])
        assert await begin(world, 7, partitions=[P1.to_wire()]) == txn_id
        described = await world.client.describe(txn_id)
        assert [one.partition for one in described.partitions] == [0, 1]
        assert described.named_sequence.sequence == 7
        await world.client.end(txn_id)
        for token in ("run-1", "run-2"):
            await refused(world.client.ask(asked(7, token)), SequenceCommitted)
        await refused(world.client.ask(asked(6)), SequenceTooOld)
        await world.restart()
        await refused(world.client.ask(asked(7, "run-3")), SequenceCommitted)
        assert await begin(world, 8) != txn_id
        await world.close()

    run(scenario())


def test_while_it_is_being_committed_it_is_committed() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await begin(world, 1, partitions=[P0.to_wire()])
        hold_ends(world)
        assert await world.client.end(txn_id) == common.COMMITTING
        await refused(world.client.ask(asked(1, "run-2")), SequenceCommitted)
        await world.restart()
        await refused(world.client.ask(asked(1, "run-2")), SequenceCommitted)
        await begin(world, 2)
        await world.close()

    run(scenario())


def test_another_run_aborts_what_the_earlier_one_left() -> None:
    async def scenario() -> None:
        world = await World().start()
        earlier = await begin(world, 1, partitions=[P0.to_wire()])
        await world.restart()
        later = await begin(world, 1, "run-2", partitions=[P0.to_wire()])
        assert later != earlier
        await refused(world.client.ask(pb.CommandEndTxn(txn_id=earlier.to_wire())), InvalidTxnState)
        await world.settle()
        assert world.broker.ended == {(earlier, P0): common.ABORT}
        await world.client.end(later)
        await world.settle()
        assert world.broker.ended[later, P0] == common.COMMIT
        await world.close()

    run(scenario())


def test_an_abort_or_an_expiry_leaves_the_sequence_to_the_next() -> None:
    async def scenario() -> None:
        world = await World().start()
        first = await begin(world, 1)
        await world.client.end(first, common.ABORT)
        second = await begin(world, 1, txn_timeout_ms=100)
        assert second != first
        await world.settle(1.0)
        assert await world.client.status(second) == common.ABORTED
        third = await begin(world, 1)
        await world.client.end(third)
        await refused(world.client.ask(asked(1)), SequenceCommitted)
        await world.close()

    run(scenario())


def test_names_are_kept_until_they_are_removed_by_hand() -> None:
    async def scenario() -> None:
        world = await World(names_max=1).start()
        txn_id = await begin(world, 3)
        remove = pb.CommandRemoveName(name="query")
        await refused(world.client.ask(remove), ResourceInUse)
        await refused(world.client.ask(asked(1, name="other")), QuotaExceeded)
        await world.client.end(txn_id)
        described = await world.client.ask(pb.CommandDescribeName(name="query"))
        assert (described.has_committed, described.committed_sequence) == (True, 3)
        assert not described.HasField("open")
        await world.settle(3_600)
        await refused(world.client.ask(asked(3)), SequenceCommitted)
        await world.client.ask(remove)
        await refused(world.client.ask(remove), InvalidArgument)
        await world.restart()
        await begin(world, 1, name="other")
        await world.close()

    run(scenario())


def test_bad_names_and_tokens_are_refused() -> None:
    async def scenario() -> None:
        world = await World().start()
        for bad in ("", "a\n", "x" * 256):
            await refused(world.client.ask(asked(1, name=bad)), InvalidArgument)
            await refused(world.client.ask(asked(1, bad)), InvalidArgument)
        both = asked(1)
        both.identity.transactional_id = "app"
        await refused(world.client.ask(both), InvalidArgument)
        await world.close()

    run(scenario())
