"""Named sequences: work that counts once, however often, and by whomever, it is tried."""

from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.fakes import World, refused
from tests.coordinator.producers import P0, P1, hold_ends
from tests.virtual_time import run

from magnetar_coordinator.metadata.named_sequences import (
    NamedSequence,
    NamedSequenceState,
    SequenceVerdict,
    judge,
)
from magnetar_coordinator.metadata.records import decode_name, encode_name
from magnetar_core.errors import (
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    QuotaExceeded,
    ResourceInUse,
    SequenceCommitted,
    SequenceDiffers,
    SequenceTooOld,
    from_wire,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as pb_record
from magnetar_core.wire import transaction_pb2 as pb


def asked(
    sequence: int, token: str = "run-1", name: str = "query", content: str = "", **fields: Any
) -> Any:
    named = pb.NamedSequence(name=name, sequence=sequence, run_token=token, fingerprint=content)
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


@pytest.mark.parametrize("expires", [False, True])
def test_an_abort_leaves_what_was_committed_before(expires: bool) -> None:
    """Were it forgotten, a replay of the committed work would count again."""

    async def scenario() -> None:
        world = await World().start()
        await world.client.end(await begin(world, 4), common.COMMIT)
        aborted = await begin(world, 5, txn_timeout_ms=100)
        if expires:
            await world.settle(1.0)
        else:
            await world.client.end(aborted, common.ABORT)
        for _ in range(2):
            await refused(world.client.ask(asked(4)), SequenceCommitted)
            await refused(world.client.ask(asked(3)), SequenceTooOld)
            described = await world.client.ask(pb.CommandDescribeName(name="query"))
            assert (described.has_committed, described.committed_sequence) == (True, 4)
            assert not described.HasField("open")
            await world.restart()
        await world.client.end(await begin(world, 5), common.COMMIT)
        await refused(world.client.ask(asked(5)), SequenceCommitted)
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


async def kept(world: World, sequence: int, **fields: Any) -> str | None:
    """The fingerprint that a repeat is told."""
    try:
        await world.client.ask(asked(sequence, "run-9", **fields))
    except SequenceCommitted as error:
        return error.fingerprint
    raise AssertionError("it is not committed")


@pytest.mark.parametrize("at_commit", [False, True])
def test_a_committed_sequence_keeps_what_its_content_was(at_commit: bool) -> None:
    """In the same write as the decision: also while it is being committed, and after a restart."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await begin(world, 7, content="" if at_commit else "a", partitions=[P0.to_wire()])
        hold_ends(world)
        given = "a" if at_commit else ""
        await world.client.ask(
            pb.CommandEndTxn(txn_id=txn_id.to_wire(), txn_action=common.COMMIT, fingerprint=given)
        )
        for _ in range(2):
            assert await kept(world, 7) == "a"
            assert await kept(world, 7, content="a") == "a"
            await refused(world.client.ask(asked(7, content="b")), SequenceDiffers)
            described = await world.client.ask(pb.CommandDescribeName(name="query"))
            assert described.committed_fingerprint == "a"
            await world.restart()
        await begin(world, 8, content="b")
        await world.close()

    run(scenario())


def test_what_was_recorded_first_stays() -> None:
    """A repeated commit changes no fingerprint, and neither does the abort of what comes next."""

    async def scenario() -> None:
        world = await World().start()
        commit = pb.CommandEndTxn(txn_action=common.COMMIT, fingerprint="a")
        commit.txn_id.CopyFrom((await begin(world, 1)).to_wire())
        await world.client.ask(commit)
        commit.fingerprint = "b"
        await world.client.ask(commit)
        assert await kept(world, 1) == "a"
        await world.client.end(await begin(world, 2, content="c"), common.ABORT)
        assert await kept(world, 1) == "a"
        await world.client.end(await begin(world, 2))
        # Nobody said what it consists of: nothing can be compared.
        assert await kept(world, 2) is None
        assert await kept(world, 2, content="d") is None
        await world.close()

    run(scenario())


def test_all_of_a_run_have_one_content() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await begin(world, 1)
        assert await begin(world, 1, content="a") == txn_id
        assert await begin(world, 1) == txn_id
        await refused(world.client.ask(asked(1, content="b")), SequenceDiffers)
        await world.restart()
        assert (await world.client.describe(txn_id)).named_sequence.fingerprint == "a"
        # Another run may well find another content: nothing is committed yet.
        later = await begin(world, 1, "run-2", content="b")
        assert later != txn_id
        await world.client.end(later)
        assert await kept(world, 1) == "b"
        await world.close()

    run(scenario())


def test_what_was_committed_without_a_fingerprint_is_not_compared() -> None:
    row = pb_record.NameRow(has_committed=True, committed_sequence=7)
    row.open.name, row.open.sequence, row.open.run_token = "query", 8, "run-1"
    opened = TxnID.of(0, 1, 5)
    row.open_txn_id.CopyFrom(opened.to_wire())
    name = decode_name("query", row.SerializeToString())
    assert name == NamedSequenceState("query", 7, NamedSequence("query", 8, "run-1"), opened)
    assert encode_name(name) == row.SerializeToString()
    with pytest.raises(SequenceCommitted) as raised:
        judge(name, NamedSequence("query", 7, "run-2", "a"))
    assert raised.value.fingerprint is None
    assert judge(name, NamedSequence("query", 8, "run-1", "a")) is SequenceVerdict.JOIN


def test_a_refusal_tells_the_fingerprint_as_a_typed_detail() -> None:
    name = NamedSequenceState("query", 7, fingerprint="100 rows")
    told: MagnetarError
    for content, kind in (("", SequenceCommitted), ("400 rows", SequenceDiffers)):
        with pytest.raises(kind) as raised:
            judge(name, NamedSequence("query", 7, "run-2", content))
        told = from_wire(raised.value.to_wire())
        assert isinstance(told, kind)
        assert told.details["fingerprint"] == "100 rows"


def test_bad_names_and_tokens_are_refused() -> None:
    async def scenario() -> None:
        world = await World().start()
        for bad in ("", "a\n", "x" * 256):
            await refused(world.client.ask(asked(1, name=bad)), InvalidArgument)
            await refused(world.client.ask(asked(1, bad)), InvalidArgument)
        txn_id = await begin(world, 1)
        for bad in ("a\n", "x" * 256):
            await refused(world.client.ask(asked(1, content=bad)), InvalidArgument)
            commit = pb.CommandEndTxn(txn_id=txn_id.to_wire(), txn_action=common.COMMIT)
            commit.fingerprint = bad
            await refused(world.client.ask(commit), InvalidArgument)
        assert await begin(world, 1, content="x" * 255) == txn_id
        both = asked(1)
        both.identity.transactional_id = "app"
        await refused(world.client.ask(both), InvalidArgument)
        await world.close()

    run(scenario())
