"""How transactions have ended, for a coordinator that has lost its latest changes (rule n)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.harness import World, ack, end, run, send, subscribe, txn

from magnetar_broker.coordinators.transaction_commands import (
    ENDS_ASKED_MAX,
    ENDS_IN_A_TURN,
    LOOKED_UP_IN_A_TURN,
)
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.selections import digest_of_selection
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as txn_wire


async def described(world: World, *txn_ids: TxnID) -> dict[TxnID, tuple[int, bytes]]:
    command = txn_wire.CommandDescribeEnds(txn_ids=[one.to_wire() for one in txn_ids])
    answer: Any = await world.client.ask(command)
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
        many = [txn(0).to_wire()] * (ENDS_ASKED_MAX // 2)
        many += [txn(1 + number).to_wire() for number in range(ENDS_ASKED_MAX // 2)]
        asked = world.client.begin(txn_wire.CommandDescribeEnds(txn_ids=many))
        await world.client.begin(topic_wire.CommandListTopics())
        assert not asked.done()
        answer: Any = await asked
        assert [TxnID.from_wire(one.txn_id) for one in answer.ends] == [txn(0)]

    run(scenario)


async def turns_of(world: World, *txn_ids: TxnID) -> int:
    """In how many turns of the loop the question is answered."""
    loop = asyncio.get_running_loop()
    command = txn_wire.CommandDescribeEnds(txn_ids=[one.to_wire() for one in txn_ids])
    asked = world.client.begin(command)
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
