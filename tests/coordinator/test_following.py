"""CommandListTxnChanges: a client that follows knows what a client knows that lists everything."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.coordinator.fakes import P0, P1, FakeClient, World
from tests.coordinator.test_several_brokers import ADDRESSES, on_shard
from tests.virtual_time import run, time_passes

from magnetar_coordinator.commands.following import DETAILED_MAX
from magnetar_coordinator.transactions.transaction_changes import (
    FOLLOWED_MS,
    TransactionChanges,
)
from magnetar_core.errors import InvalidTxnState, LogUnavailable
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb


class Follower:
    """The live transactions as a client knows them that asks for changes only."""

    def __init__(self, world: World, limit: int = 0) -> None:
        self.world = world
        self.limit = limit
        self.live: dict[TxnID, pb.TransactionDescription] = {}
        self.ended: dict[TxnID, int] = {}
        self.place: pb.TxnChangesPlace | None = None
        self.anew_count = 0
        self.answers = 0

    async def ask(self) -> pb.CommandListTxnChangesResponse:
        command = pb.CommandListTxnChanges(limit=self.limit, place=self.place)
        answer: pb.CommandListTxnChangesResponse = await self.world.client.ask(command)
        self.answers += 1
        self.place = answer.place
        if answer.anew:
            self.anew_count += 1
            self.live.clear()
        for one in answer.transactions:
            self.live[TxnID.from_wire(one.txn_id)] = one
        for one in answer.ended:
            self.live.pop(TxnID.from_wire(one.txn_id), None)
            self.ended[TxnID.from_wire(one.txn_id)] = one.status
        return answer

    async def catch_up(self) -> None:
        while (await self.ask()).truncated:
            pass

    async def check(self) -> None:
        """It knows the same as the list, but for ages."""
        await self.world.settle()
        await self.catch_up()
        listed: Any = await self.world.client.ask(pb.CommandListTxns(limit=10_000))
        assert {key: timeless(one) for key, one in self.live.items()} == {
            TxnID.from_wire(one.txn_id): timeless(one) for one in listed.transactions
        }


def timeless(description: pb.TransactionDescription) -> pb.TransactionDescription:
    copy = pb.TransactionDescription()
    copy.CopyFrom(description)
    copy.ClearField("age_ms")
    return copy


@pytest.mark.parametrize("limit", [1, 3, 0])
@pytest.mark.parametrize("seed", range(4))
def test_a_follower_knows_what_is_listed(limit: int, seed: int) -> None:
    random = Random(seed)

    async def scenario() -> None:
        world = await World().start()
        follower = Follower(world, limit)
        is_open = [await world.client.new(P0) for _ in range(5)]
        for _ in range(60):
            match random.randrange(5):
                case 0:
                    is_open.append(await world.client.new(P0))
                case 1 if is_open:
                    await world.client.add(random.choice(is_open), P1)
                case 2 if is_open:
                    txn_id = is_open.pop(random.randrange(len(is_open)))
                    action = random.choice([common.COMMIT, common.ABORT])
                    await world.client.end(txn_id, action, wait_finished=random.random() < 0.5)
                case 3:
                    await follower.ask()
                case 4:
                    await follower.check()
        await follower.check()
        assert follower.anew_count == 1
        await world.close()

    run(scenario())


def test_who_was_not_followed_or_starts_again_is_listed_anew() -> None:
    async def scenario() -> None:
        world = await World().start()
        follower = Follower(world)
        first = await world.client.new(P0)
        await follower.check()
        await world.client.end(first, wait_finished=True)
        await follower.check()
        assert (follower.anew_count, follower.ended) == (1, {first: common.COMMITTED})
        await time_passes(FOLLOWED_MS / 1_000 + 5)
        await world.client.new(P0)
        await follower.check()
        assert follower.anew_count == 2
        await world.restart()
        await follower.check()
        assert follower.anew_count == 3
        # Another one, at the same time, has a place of its own.
        other = Follower(world, 1)
        await other.check()
        assert (other.anew_count, follower.anew_count) == (1, 3)
        await world.close()

    run(scenario())


def test_a_client_that_leaves_is_a_change() -> None:
    async def scenario() -> None:
        world = await World().start()
        leaving = FakeClient(world.coordinator)
        txn_id = await leaving.new(P0)
        follower = Follower(world)
        await follower.ask()
        assert follower.live[txn_id].client.connected
        leaving._session.on_closed()
        await world.settle()
        await follower.ask()
        assert not follower.live[txn_id].client.connected
        await world.close()

    run(scenario())


def test_progress_of_an_end_is_a_change() -> None:
    """A participant that is away, its errors, and those that have ended are told while it lasts."""

    async def scenario() -> None:
        world = await World().start()
        told: list[Any] = [None]

        def answer(name: str, body: Any) -> Any:
            if name != "end_txn_on_partition" or body.partition != P1.to_wire():
                return None
            return told[0]

        world.broker.answer = answer
        txn_id = await world.client.new(P0, P1)
        follower = Follower(world)
        told[0] = LogUnavailable("the shard moves").to_wire()
        await world.client.end(txn_id)
        # It has ended at P0 and the first error has come; the end is not decided anew for either.
        await follower.check()
        known = follower.live[txn_id]
        assert [one.partition for one in known.unfinished] == [P1.to_wire()]
        assert known.unfinished[0].error.message == "the shard moves"
        assert [one.partition for one in known.ended] == [P0.to_wire()]
        # The same error again is no change, another one is.
        await time_passes(30)
        assert not (await follower.ask()).transactions
        told[0] = InvalidTxnState("damaged").to_wire()
        await time_passes(30)
        await follower.check()
        assert follower.live[txn_id].unfinished[0].error.message == "damaged"
        told[0] = None
        await time_passes(600)
        await follower.check()
        assert txn_id not in follower.live
        await world.close()

    run(scenario())


def test_the_end_at_one_of_two_brokers_is_a_change() -> None:
    """A follower that has seen the decision learns which participant it still waits for."""

    async def scenario() -> None:
        world = await World(broker_addresses=ADDRESSES).start()
        first, second = on_shard(0), on_shard(1)
        world.lose_broker(0)
        world.lose_broker(1)
        txn_id = await world.client.new(first, second)
        follower = Follower(world)
        await world.client.end(txn_id)
        await follower.check()
        assert len(follower.live[txn_id].unfinished) == 2
        await world.get_broker_back(0)
        await follower.check()
        assert [one.partition for one in follower.live[txn_id].unfinished] == [second.to_wire()]
        await world.get_broker_back(1)
        await follower.check()
        assert txn_id not in follower.live
        await world.close()

    run(scenario())


def test_it_remembers_so_many_changes_and_no_more() -> None:
    changes = TransactionChanges(3)
    ids = [TxnID.of(0, 1, counter) for counter in range(5)]
    changes.asked(0)
    start = changes.version
    for txn_id in ids[:3]:
        changes.note(txn_id)
    changes.note(ids[0])
    assert [one.txn_id for one in changes.since(start)] == [ids[1], ids[2], ids[0]]
    assert [one.txn_id for one in changes.since(start + 3)] == [ids[0]]
    assert changes.knows_since(start)
    changes.note(ids[3])
    assert not changes.knows_since(start)
    assert changes.knows_since(start + 2)
    assert not changes.knows_since(changes.version + 1)
    changes.stop_if_idle(FOLLOWED_MS + 1)
    assert not changes.is_followed
    changes.asked(FOLLOWED_MS + 2)
    assert not changes.knows_since(changes.version - 1)
    assert list(changes.since(changes.version)) == []


def test_the_ends_that_came_last_are_told_with_participants() -> None:
    """People look at those; a program that follows thousands gets the outcomes of the others."""

    async def scenario() -> None:
        world = await World().start()
        follower = Follower(world)
        await follower.check()
        ended = [await world.client.new(P0) for _ in range(DETAILED_MAX + 2)]
        for txn_id in ended:
            await world.client.end(txn_id, wait_finished=True)
        answer = await follower.ask()
        assert [TxnID.from_wire(one.txn_id) for one in answer.ended] == ended
        told = [len(one.partitions) for one in answer.ended]
        assert told == [0, 0, *[1] * DETAILED_MAX]
        await world.close()

    run(scenario())
