"""Several brokers: each participant is told by its own, and one that is away delays its own only.

Source: docs/design/0008-cluster.md, What it promises.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.coordinator.fakes import SILENCE, FakeBroker, World, add_command, end_command, refused
from tests.coordinator.test_past_ends import copy_of, put_back
from tests.virtual_time import run

from magnetar_coordinator.ending.broker_placement import BrokerPlacement
from magnetar_core.errors import Gone, InvalidArgument, PartitionMoved
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.membership.placement import SHARDS_MAX, new_topic_id, shard_of
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

ADDRESSES = ("broker:1", "broker:2", "broker:3")
TOPIC_ID = new_topic_id("orders", 7, 3)
TIMEOUT_MS = 5_000


def on_shard(shard: int, nth: int = 0) -> PartitionName:
    """The nth partition of a topic that lies in this shard."""
    found = [number for number in range(3 * nth + 3) if shard_of(TOPIC_ID, number) == shard]
    return PartitionName("orders", found[nth], TOPIC_ID)


P0, P1, P2 = (on_shard(shard) for shard in range(3))
S1 = SubscriptionName(*P1, "billing")


async def three(**settings: Any) -> World:
    return await World(broker_addresses=ADDRESSES, **settings).start()


def ended(broker: FakeBroker, txn_id: TxnID) -> dict[Any, int]:
    return {one: action for (other, one), action in broker.ended.items() if other == txn_id}


def test_each_participant_is_told_by_its_broker() -> None:
    async def scenario() -> None:
        world = await three()
        txn_id = await world.client.new(P0, P1, P2, on_shard(2, nth=1))
        await world.client.add(txn_id, S1)
        assert await world.client.end(txn_id, wait_finished=True) == common.COMMITTED
        found = [ended(broker, txn_id) for broker in world.brokers]
        assert found == [
            {P0: common.COMMIT},
            {P1: common.COMMIT, S1: common.COMMIT},
            {P2: common.COMMIT, on_shard(2, nth=1): common.COMMIT},
        ]
        await world.close()

    run(scenario())


def test_the_first_gives_the_incarnation_and_all_hear_of_txn_ids_and_the_watermark() -> None:
    async def scenario() -> None:
        world = await three()
        assert [len(broker.all_of("take_incarnation")) for broker in world.brokers] == [1, 0, 0]
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id, wait_finished=True)
        await world.settle(2)
        for one in world.brokers:
            assert one.all_of("txns_issued")[-1].next_counter == txn_id.counter + 1
            assert one.all_of("low_watermark")[-1].low_watermark == txn_id.counter + 1
        await world.close()

    run(scenario())


def test_a_broker_that_is_away_delays_its_own_participants_only() -> None:
    async def scenario() -> None:
        world = await three()
        both = await world.client.new(P0, P1)
        other = await world.client.new(P0, P2)
        world.lose_broker(1)
        assert await world.client.end(both) == common.COMMITTING
        assert await world.client.end(other, wait_finished=True) == common.COMMITTED
        late = await world.client.new(P2)
        assert await world.client.end(late, common.ABORT, wait_finished=True) == common.ABORTED
        await world.settle(60)
        assert await world.client.status(both) == common.COMMITTING
        assert ended(world.brokers[0], both) == {P0: common.COMMIT}
        # A coordinator that starts meanwhile knows where the participants are.
        await world.restart()
        await world.settle(10)
        assert await world.client.status(both) == common.COMMITTING
        await world.get_broker_back(1)
        assert ended(world.brokers[1], both) == {P1: common.COMMIT}
        assert await world.client.status(both) == common.COMMITTED
        await world.close()

    run(scenario())


def test_partition_moved_is_not_taken_for_ended(caplog: pytest.LogCaptureFixture) -> None:
    """A broker with another list would tear the transaction, and nobody would know."""

    async def scenario() -> None:
        world = await three()
        moved = PartitionMoved("the partition is on another broker").to_wire()
        world.brokers[1].answer = lambda name, body: (
            moved if name == "end_txn_on_partition" else None
        )
        txn_id = await world.client.new(P0, P1)
        await world.client.end(txn_id)
        await world.settle(30)
        assert len(world.brokers[1].all_of("end_txn_on_partition")) > 3
        described = await world.client.describe(txn_id)
        assert described.status == common.COMMITTING
        (unfinished,) = described.unfinished
        assert PartitionName.from_wire(unfinished.partition) == P1
        assert unfinished.error.code == common.PARTITION_MOVED
        told = [one for one in caplog.messages if "same list of members" in one]
        assert len(told) == 1
        assert str(txn_id) in told[0]
        world.brokers[1].answer = lambda name, body: None
        await world.settle(world.config.constants.retry_delay_ms_max / 1_000 + 1)
        assert await world.client.status(txn_id) == common.COMMITTED
        assert ended(world.brokers[1], txn_id) == {P1: common.COMMIT}
        await world.close()

    run(scenario())


def test_an_orphan_is_aborted_at_the_broker_that_holds_it() -> None:
    async def scenario() -> None:
        world = await three()
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id, wait_finished=True)
        held = pb.OrphanedParticipant(txn_id=txn_id.to_wire(), partition=P2.to_wire())
        world.brokers[2].orphans = [held]
        await world.settle(3)
        assert [ended(broker, txn_id) for broker in world.brokers] == [
            {P0: common.COMMIT},
            {},
            {P2: common.ABORT},
        ]
        await world.close()

    run(scenario())


def test_any_broker_asks_to_abort_what_an_expelled_member_left() -> None:
    async def scenario() -> None:
        world = await three()
        txn_ids = [await world.client.new(P0) for _ in range(3)]
        for txn_id, link in zip(txn_ids, world.transport.links, strict=True):
            link.say(pb.CommandAbortExpelled(txn_ids=[txn_id.to_wire()]))
        await world.settle(1)
        for txn_id in txn_ids:
            assert await world.client.status(txn_id) == common.ABORTED
        await world.close()

    run(scenario())


@pytest.mark.parametrize("knows", [0, 1, 2])
def test_all_brokers_are_asked_after_a_loss_and_all_are_awaited(knows: int) -> None:
    """Rule n: one of them alone may know that the transaction was committed."""

    async def scenario() -> None:
        world = await three()
        parts = [P0, P1, P2]
        txn_id = await world.client.new(*parts, txn_timeout_ms=TIMEOUT_MS)
        await world.settle()
        kept = {name: dict(rows) for name, rows in (await copy_of(world)).items()}
        world.crash()
        await put_back(world, kept)
        world.brokers[knows].ended[txn_id, parts[knows]] = common.COMMIT
        # Told to end what took no part: another broker has an abort of the same transaction.
        world.brokers[knows - 1].ended[txn_id, on_shard((knows - 1) % 3, nth=1)] = common.ABORT
        world.lose_broker(knows)
        if not knows:
            # The first is asked for the incarnation, too.
            world.transport.dead.clear()
            world.broker.answer = lambda name, body: SILENCE if name == "describe_ends" else None
        starting = asyncio.ensure_future(world.start())
        await world.settle(60)
        assert not starting.done()
        world.broker.answer = lambda name, body: None
        world.transport.dead.clear()
        await starting
        await world.settle(2 * TIMEOUT_MS / 1_000)
        assert await world.client.status(txn_id) == common.COMMITTED
        for part, broker in zip(parts, world.brokers, strict=True):
            assert broker.ended[txn_id, part] == common.COMMIT
        await world.close()

    run(scenario())


def test_an_id_that_somebody_invented_goes_to_the_first_broker() -> None:
    """Its shard is beyond the list. The first broker issues ids, and says that it is gone."""
    invented = PartitionName("orders", 3, new_topic_id("orders", 7, SHARDS_MAX))

    async def scenario() -> None:
        world = await three()
        gone = Gone("nobody has issued this id").to_wire()
        world.broker.answer = lambda name, body: gone if name == "end_txn_on_partition" else None
        txn_id = await world.client.new(invented)
        assert await world.client.end(txn_id, wait_finished=True) == common.COMMITTED
        (told,) = world.broker.all_of("end_txn_on_partition")
        assert PartitionName.from_wire(told.partition) == invented
        await world.close()

    assert shard_of(invented.topic_id, invented.partition) >= len(ADDRESSES)
    run(scenario())


def test_participants_without_a_topic_id_are_refused_where_nobody_could_place_them() -> None:
    unplaced = PartitionName("orders", 0, 0)

    async def scenario() -> None:
        world = await three()
        ended_before = await world.client.new(P0)
        await world.client.end(ended_before, wait_finished=True)
        txn_id = await world.client.new(P0)
        for one in (
            pb.CommandNewTxn(partitions=[unplaced.to_wire()]),
            add_command(txn_id, unplaced),
            add_command(txn_id, SubscriptionName(*unplaced, "billing")),
            pb.CommandAbortHangingTxn(txn_id=ended_before.to_wire(), partition=unplaced.to_wire()),
        ):
            error = await refused(world.client.ask(one), InvalidArgument)
            assert "look the topic up" in str(error)
        await world.client.end(txn_id, wait_finished=True)
        assert ended(world.brokers[0], txn_id) == {P0: common.COMMIT}
        await world.close()
        alone = await World().start()
        txn_id = await alone.client.new(unplaced)
        await alone.client.ask(end_command(txn_id, wait_finished=True))
        assert alone.broker.ended == {(txn_id, unplaced): common.COMMIT}
        await alone.close()

    run(scenario())


def test_topics_from_before_a_cluster_grew_stay_where_they_are() -> None:
    directory = BrokerPlacement(ADDRESSES)
    for number in range(6):
        assert directory.address_of(PartitionName("orders", number, 7)) == "broker:1"
        assert directory.address_of(PartitionName("orders", number, 0)) == "broker:1"
    placed = {directory.address_of(PartitionName("orders", n, TOPIC_ID)) for n in range(3)}
    assert placed == set(ADDRESSES)
