"""protocol.md, Invented TxnIDs, and Orphaned participants; rule f."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.coordinator.fakes import P0, P1, S0, SILENCE, World, refused
from tests.virtual_time import run

from magnetar_broker.transactions.issued import NEAR_COUNT
from magnetar_coordinator.constants import CoordinatorConstants
from magnetar_coordinator.metadata.transaction import Participant
from magnetar_core.errors import TxnForgotten, TxnNotFound
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

AHEAD = 100


def held(txn_id: TxnID, participant: Participant) -> pb.OrphanedParticipant:
    if isinstance(participant, SubscriptionName):
        name, subscription = participant.partition_name, participant.subscription
    else:
        name, subscription = participant, ""
    return pb.OrphanedParticipant(
        txn_id=txn_id.to_wire(), partition=name.to_wire(), subscription=subscription
    )


def hold(world: World, *places: tuple[TxnID, Participant]) -> None:
    """Let the broker hold these open until they are ended or known."""

    def answer(name: str, body: Any) -> Any:
        if name != "low_watermark":
            return None
        for one in body.known:
            partition = PartitionName.from_wire(one.partition)
            place = SubscriptionName(*partition, one.subscription) if one.subscription else None
            left.pop((TxnID.from_wire(one.txn_id), place or partition), None)
        listed = [held(*one) for one in left if one not in world.broker.ended]
        return pb.CommandLowWatermarkResponse(held=listed)

    left = dict.fromkeys(places)
    world.broker.answer = answer


def bounds(world: World) -> list[int]:
    return [one.counter_bound for one in world.broker.all_of("low_watermark")]


def known(world: World) -> list[tuple[int, str]]:
    return [
        (one.txn_id.least_bits, one.subscription)
        for word in world.broker.all_of("low_watermark")
        for one in word.known
    ]


def test_what_was_ended_elsewhere_is_ended_within_two_seconds() -> None:
    """Whatever else is open, and so holds back the watermark."""

    async def scenario() -> None:
        world = await World().start()
        older = await world.client.new(P0)
        ended = await world.client.new(P0)
        await world.client.end(ended, wait_finished=True)
        world.broker.ended.clear()
        hold(world, (ended, S0), (ended, P1), (older, P1))
        await world.settle(1.2)
        assert world.broker.all_of("low_watermark")[-1].low_watermark == older.counter
        assert world.broker.ended == {(ended, S0): common.ABORT, (ended, P1): common.ABORT}
        assert not known(world)
        assert await world.client.status(older) == common.OPEN
        # What is OPEN may still be added; once it is decided without it, it may not.
        world.broker.answer, answer = (
            lambda name, body: (
                SILENCE
                if name == "end_txn_on_partition" and body.partition.partition == 0
                else None
            ),
            world.broker.answer,
        )
        await world.client.end(older)
        assert (await world.client.describe(older)).status == common.COMMITTING
        silent = world.broker.answer
        world.broker.answer = lambda name, body: silent(name, body) or answer(name, body)
        await world.settle(1.2)
        assert world.broker.ended[older, P1] == common.ABORT
        assert (older, P0) not in world.broker.ended
        await world.close()

    run(scenario())


def test_who_takes_part_is_known_once_and_told_the_end() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        loose = await world.client.new(P0._replace(topic_id=0))
        await world.client.add(txn_id, S0)
        hold(world, (txn_id, P0), (txn_id, S0), (loose, P0))
        await world.settle(3)
        assert sorted(known(world)) == [(0, ""), (0, "billing"), (1, "")]
        assert not world.broker.ended
        await world.client.end(loose)
        await world.settle(1.5)
        assert world.broker.ended[loose, P0._replace(topic_id=0)] == common.COMMIT
        assert (loose, P0) not in world.broker.ended
        await world.close()

    run(scenario())


def test_nothing_is_known_before_it_is_durable() -> None:
    """A crash in between would leave a participant that waits for nobody."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        await world.settle(0.5)
        world.disk.sync_seconds = 2.0
        adding = world.client.ask(
            pb.CommandAddPartitionToTxn(txn_id=txn_id.to_wire(), partitions=[P1.to_wire()])
        )
        hold(world, (txn_id, P1))
        await world.settle(1.4)
        assert not known(world)
        assert not adding.done()
        await world.settle(8)
        assert set(known(world)) == {(0, "")}
        await world.close()

    run(scenario())


def test_a_bound_is_announced_ahead_and_durable_before() -> None:
    async def scenario() -> None:
        world = World(txn_ids_ahead=AHEAD)
        await world.start()
        await world.settle(0.5)
        assert bounds(world)[-1] == AHEAD
        for _ in range(AHEAD // 2):
            await world.client.new()
        await world.settle(1)
        assert bounds(world)[-1] == AHEAD
        newest = await world.client.new()
        await world.settle(1)
        assert bounds(world)[-1] == newest.counter + 1 + AHEAD
        told = bounds(world)[-1]
        await world.restart(Random(1))
        assert (await world.client.new()).counter == told
        await world.settle(1)
        assert bounds(world)[-1] >= told + AHEAD
        await world.close()

    run(scenario())


def issued(world: World) -> int:
    return max(int(one.next_counter) for one in world.broker.all_of("txns_issued"))


def test_brokers_hear_of_a_transaction_before_its_client() -> None:
    async def scenario() -> None:
        world = await World().start()
        await world.settle(0.5)
        world.disk.sync_seconds = 1.0
        asked = [world.client.ask(pb.CommandNewTxn()) for _ in range(3)]
        await world.settle(0.01)
        assert not any(one.done() for one in asked)
        assert [one.next_counter for one in world.broker.all_of("txns_issued")] == [3]
        await world.settle(3)
        assert all(one.done() for one in asked)
        world.transport.break_links()
        await world.settle(0.9)
        assert world.broker.names()[-1] == "txns_issued"
        assert issued(world) == 3
        await world.close()

    run(scenario())


def test_nothing_beyond_a_durable_bound_is_said_to_be_issued() -> None:
    """After a crash it would be issued again, and brokers would have taken it for issued."""

    async def scenario() -> None:
        world = await World(txn_ids_ahead=2).start()
        await world.settle(0.5)
        bound = bounds(world)[-1]
        world.disk.sync_seconds = 0.5
        asked = [world.client.ask(pb.CommandNewTxn()) for _ in range(bound + 3)]
        await world.settle(0.1)
        assert all(one.next_counter <= bound for one in world.broker.all_of("txns_issued"))
        await world.settle(2)
        assert all(one.done() for one in asked)
        assert issued(world) == bound + 3
        await world.close()

    run(scenario())


@pytest.mark.parametrize("seed", range(8))
def test_what_lies_beyond_a_bound_was_never_issued(seed: int) -> None:
    """Also when power fails while more is being issued than was announced."""

    async def scenario() -> None:
        random = Random(seed)
        world = World(txn_ids_ahead=4)
        world.disk.sync_seconds = 0.01
        issued: list[int] = []
        for _ in range(4):
            await world.start()
            asked = [world.client.new() for _ in range(random.randrange(12))]
            for one in asked:
                issued.append((await one).counter)
            await world.settle(random.choice([0.0, 1.0]))
            told = max(bounds(world), default=0)
            world.crash(random)
            assert len(set(issued)) == len(issued)
            await world.start()
            again = (await world.client.new()).counter
            assert again >= told
            assert again > max(issued, default=-1)
            issued.append(again)
            world.crash()

    run(scenario())


def test_what_was_made_up_is_never_issued() -> None:
    """What was done under it would be its later owner's."""

    async def scenario() -> None:
        world = await World(txn_ids_ahead=AHEAD).start()
        first = await world.client.new(P0)
        made_up = TxnID.of(0, 1, first.counter + 7)
        await refused(
            world.client.ask(pb.CommandDescribeTxn(txn_id=made_up.to_wire())), TxnNotFound
        )
        beyond = TxnID.of(0, 1, 10 * AHEAD)
        hold(world, (made_up, P0), (made_up, S0), (beyond, P0), (TxnID.of(3, 1, 0), P0))
        await world.settle(1.5)
        assert world.broker.ended == {(made_up, P0): common.ABORT, (made_up, S0): common.ABORT}
        assert (await world.client.new()).counter == made_up.counter + 1
        await refused(
            world.client.ask(pb.CommandDescribeTxn(txn_id=made_up.to_wire())), TxnForgotten
        )
        await world.restart()
        assert (await world.client.new()).counter > made_up.counter
        await world.close()

    run(scenario())


def test_one_made_up_close_to_the_bound_moves_the_bound_at_once() -> None:
    async def scenario() -> None:
        world = await World(txn_ids_ahead=AHEAD).start()
        await world.settle(0.1)
        hold(world, (TxnID.of(0, 1, AHEAD - 1), P0))
        await world.settle(1)
        count = len(world.broker.all_of("low_watermark"))
        newest = await world.client.new()
        assert newest.counter == AHEAD
        assert bounds(world)[-1] > newest.counter, count
        await world.close()

    run(scenario())


def test_an_administrator_may_abort_what_was_made_up() -> None:
    async def scenario() -> None:
        world = await World(txn_ids_ahead=AHEAD).start()
        made_up = TxnID.of(0, 1, 5)
        command = pb.CommandAbortHangingTxn(txn_id=made_up.to_wire(), partition=P0.to_wire())
        asked: list[Any] = []

        def answer(name: str, body: Any) -> Any:
            if name != "end_txn_on_partition":
                return None
            asked.append((TxnID.from_wire(body.txn_id), body.txn_action, body.HasField("hanging")))
            return pb.CommandEndTxnOnPartitionResponse(txn_id=body.txn_id)

        world.broker.answer = answer
        await world.settle(0.1)
        await world.client.ask(command)
        assert asked == [(made_up, common.ABORT, True)]
        assert (await world.client.new()).counter == 6
        command.txn_id.least_bits = 10 * AHEAD
        await refused(world.client.ask(command), TxnNotFound)
        await world.close()

    run(scenario())


def test_a_new_bound_is_announced_before_brokers_refuse_what_lies_beyond() -> None:
    assert CoordinatorConstants().txn_ids_ahead <= NEAR_COUNT


def test_a_broker_that_comes_back_hears_a_bound_above_all_that_is_issued() -> None:
    """It drops what is open there and lies beyond: also what was begun since the last word."""

    async def scenario() -> None:
        world = await World(txn_ids_ahead=2).start()
        await world.settle(1.2)
        newest = [await world.client.new(P0) for _ in range(8)][-1]
        assert bounds(world)[-1] <= newest.counter
        words = len(bounds(world))
        world.transport.break_links()
        await world.settle(0.6)
        assert bounds(world)[words] > newest.counter
        await world.close()

    run(scenario())
