"""How transactions have ended, for a coordinator that has lost its latest changes (rule n)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.harness import (
    Client,
    World,
    ack,
    describe_ends,
    end,
    partition,
    run,
    send,
    store_token,
    subscribe,
    txn,
    watermark,
)

from magnetar_broker.coordinators.transaction_commands import (
    ENDS_ASKED_MAX,
    ENDS_IN_A_TURN,
    LOOKED_UP_IN_A_TURN,
)
from magnetar_broker.transactions.watermark import FORMER_MAX
from magnetar_core.errors import InvalidArgument, InvalidTxnState, TxnIncomplete
from magnetar_core.ids import TxnID
from magnetar_core.selections import digest_of_selection
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as txn_wire


async def described(world: World, *txn_ids: TxnID) -> dict[TxnID, tuple[int, bytes]]:
    answer: Any = await world.client.ask(describe_ends(*txn_ids))
    return {
        TxnID.from_wire(one.txn_id): (one.txn_action, one.selection_digest) for one in answer.ends
    }


@pytest.mark.parametrize("restarted", [False, True])
def test_an_end_at_one_participant_is_told(restarted: bool) -> None:
    """Also when the transaction is open at the others."""

    async def scenario(world: World) -> None:
        await world.client.ask(subscribe())
        await world.client.ask(send(b"0", b"1", b"2"))
        everywhere = [txn(counter) for counter in range(5)]
        for txn_id in everywhere:
            await world.client.ask(send(b"x", in_txn=txn_id))
        await world.client.ask(ack((0, 0), in_txn=txn(3)))
        await world.client.ask(end(txn(0)))
        await world.client.ask(end(txn(1), common.ABORT))
        await world.client.ask(end(txn(2), selected=[1]))
        await world.client.ask(end(txn(3), on="s"))
        if restarted:
            await world.restart()
        before = world.disk.write_count
        assert await described(world, *everywhere, txn(9)) == {
            txn(0): (common.COMMIT, b""),
            txn(1): (common.ABORT, b""),
            txn(2): (common.COMMIT, digest_of_selection([1])),
            txn(3): (common.COMMIT, b""),
        }
        assert world.disk.write_count == before

    run(scenario)


def test_a_commit_counts_wherever_else_the_transaction_was_aborted() -> None:
    """What took no part is told to abort. A coordinator that heard of that end alone tore it."""

    async def scenario(world: World) -> None:
        await world.client.ask(subscribe())
        await world.client.ask(send(b"0", b"1"))
        for txn_id, on_partition, on_subscription in (
            (txn(0), common.COMMIT, common.ABORT),
            (txn(1), common.ABORT, common.COMMIT),
        ):
            await world.client.ask(send(b"x", in_txn=txn_id))
            await world.client.ask(ack((txn_id.counter, txn_id.counter), in_txn=txn_id))
            await world.client.ask(end(txn_id, on_partition))
            await world.client.ask(end(txn_id, on_subscription, on="s"))
        assert await described(world, txn(0), txn(1)) == {
            txn(0): (common.COMMIT, b""),
            txn(1): (common.COMMIT, b""),
        }

    run(scenario)


def test_so_many_are_asked_about_and_no_more() -> None:
    async def scenario(world: World) -> None:
        await described(world, *[txn(1)] * ENDS_ASKED_MAX)
        with pytest.raises(InvalidArgument):
            await described(world, *[txn(1)] * (ENDS_ASKED_MAX + 1))

    run(scenario)


def test_others_are_served_while_many_ends_are_looked_for() -> None:
    """Ten thousand transactions at every participant are no work for one turn of the loop."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"x", in_txn=txn(0)))
        await world.client.ask(end(txn(0)))
        many = [txn(0)] * (ENDS_ASKED_MAX // 2)
        many += [txn(1 + number) for number in range(ENDS_ASKED_MAX // 2)]
        asked = world.client.begin(describe_ends(*many))
        await world.client.begin(topic_wire.CommandListTopics())
        assert not asked.done()
        answer: Any = await asked
        assert [TxnID.from_wire(one.txn_id) for one in answer.ends] == [txn(0)]

    run(scenario)


async def turns_of(world: World, *txn_ids: TxnID) -> int:
    """In how many turns of the loop the question is answered."""
    loop = asyncio.get_running_loop()
    asked = world.client.begin(describe_ends(*txn_ids))
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        if not asked.done():
            loop.call_soon(count)

    loop.call_soon(count)
    await asked
    return turns


def test_a_turn_looks_at_so_many_participants_and_no_more() -> None:
    async def scenario(world: World) -> None:
        txn_ids = [txn(number) for number in range(ENDS_IN_A_TURN)]
        few = await turns_of(world, *txn_ids)
        for number in range(4 * LOOKED_UP_IN_A_TURN // ENDS_IN_A_TURN):
            await world.client.ask(subscribe(f"s{number}", consumer=number))
        assert await turns_of(world, *txn_ids) >= few + 3
        assert await turns_of(world, *txn_ids[:1]) == few

    run(scenario)


async def restore(world: World, incarnation: int = 2) -> None:
    """The coordinator's process is cut off, and another one takes an incarnation."""
    await world.client.close()
    world.client = Client(world)
    taken = topic_wire.CommandTakeIncarnation(tcid=0, store_token=store_token(incarnation))
    await world.client.ask(taken)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_forgotten_end_is_told_as_such(restarted: bool) -> None:
    """A commit that was over and forgotten was taken for open, and aborted in the records."""

    async def scenario(world: World) -> None:
        for counter in range(3):
            await world.client.ask(send(b"x", in_txn=txn(counter)))
        await world.client.ask(end(txn(0), counts={1: 1}))
        await world.client.ask(end(txn(2), counts={1: 1}))
        await world.client.ask(watermark(2, (1, 1)))
        await restore(world)
        answer: Any = await world.client.ask(
            describe_ends(txn(0), txn(1), txn(2), txn(3), txn(0), incarnation=2)
        )
        if restarted:
            await world.restart()
            answer = await world.client.ask(
                describe_ends(txn(0), txn(1), txn(2), txn(3), incarnation=2)
            )
        assert [TxnID.from_wire(one) for one in answer.forgotten] == [txn(0)]
        assert [TxnID.from_wire(one.txn_id) for one in answer.ends] == [txn(2)]
        # Its end is a repeat; the end of another one is not.
        await world.client.ask(watermark(0, incarnation=2))
        await world.client.ask(end(txn(0), counts={1: 1}))
        with pytest.raises(TxnIncomplete):
            await world.client.ask(end(txn(3), counts={1: 1}))

    run(scenario)


def test_an_abort_of_what_took_no_part_does_not_hide_what_is_forgotten() -> None:
    """A subscription that took no part was aborted after the commit was forgotten elsewhere."""

    async def scenario(world: World) -> None:
        await world.client.ask(subscribe())
        await world.client.ask(send(b"0"))
        await world.client.ask(send(b"x", in_txn=txn(0)))
        await world.client.ask(ack((0, 0), in_txn=txn(0)))
        await world.client.ask(end(txn(0), counts={1: 1}))
        await world.client.ask(watermark(1))
        await world.client.ask(end(txn(0), common.ABORT, on="s"))
        answer: Any = await world.client.ask(describe_ends(txn(0)))
        assert not answer.ends
        assert [TxnID.from_wire(one) for one in answer.forgotten] == [txn(0)]

    run(scenario)


def test_a_former_process_ends_nothing_once_its_coordinator_has_asked() -> None:
    """It was cut off and went on: a commit that it sent late tore a transaction."""

    async def scenario(world: World) -> None:
        for counter in range(2):
            await world.client.ask(send(b"x", in_txn=txn(counter)))
        await restore(world)
        former, restored = Client(world), world.client
        await restored.ask(describe_ends(txn(0), incarnation=2))
        together = txn_wire.CommandEndTxnOnParticipants(
            txn_id=txn(0).to_wire(),
            txn_action=common.COMMIT,
            partitions=[txn_wire.PartitionCounts(partition=partition())],
        )
        for command in (end(txn(0), counts={1: 1}), end(txn(0), common.ABORT), together):
            command.incarnation = 1
            with pytest.raises(InvalidTxnState, match="newer incarnation"):
                await former.ask(command)
        with pytest.raises(InvalidTxnState, match="newer incarnation"):
            await former.ask(describe_ends(txn(0), incarnation=1))
        with pytest.raises(InvalidTxnState, match="is of a coordinator's store"):
            await former.ask(send(b"y", in_txn=txn(2)))
        for counter, incarnation in enumerate((2, 0)):
            command = end(txn(counter), common.ABORT)
            command.incarnation = incarnation
            await restored.ask(command)

    run(scenario)


def test_a_commit_that_waits_is_not_carried_out_once_its_coordinator_has_asked() -> None:
    """It waited for another transaction, and was carried out after it was told as not ended."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"x", in_txn=txn(0)))
        await world.client.ask(send(b"y", in_txn=txn(1), producer=2, follows=txn(0)))
        waiting = world.client.begin(end(txn(1), counts={2: 1}))
        await world.settle()
        assert not waiting.done()
        await restore(world)
        answer: Any = await world.client.ask(describe_ends(txn(0), txn(1), incarnation=2))
        assert not answer.ends
        await world.client.ask(end(txn(0), common.ABORT))
        await world.client.ask(end(txn(1), common.ABORT))

    run(scenario)


def test_a_stranger_makes_no_incarnation_known() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"x", in_txn=txn(0)))
        with pytest.raises(InvalidTxnState, match="no store of coordinator 0"):
            await world.client.ask(describe_ends(txn(0), incarnation=2))
        await world.client.ask(send(b"y", in_txn=txn(0), sequence=1))

    run(scenario)


def test_so_many_former_incarnations_are_remembered() -> None:
    """The oldest ones are dropped, on the disk too."""

    async def scenario(world: World) -> None:
        count = FORMER_MAX + 2
        for incarnation in range(1, count + 1):
            await world.client.ask(watermark(5, incarnation=incarnation))
            await restore(world, incarnation + 1)
        asked = [txn(4, incarnation=one) for one in range(1, count + 1)]
        for _ in range(2):
            answer: Any = await world.client.ask(describe_ends(*asked, incarnation=count + 1))
            told = [TxnID.from_wire(one) for one in answer.forgotten]
            assert told == asked[-FORMER_MAX:]
            await world.restart()

    run(scenario)
