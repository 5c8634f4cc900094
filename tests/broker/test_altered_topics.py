"""docs/design/0025-topics-that-change.md, at a broker that is alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.group_workers import GROUP, Worker, join
from tests.broker.harness import World, ack, end, run, send, subscribe, subscription, txn
from tests.broker.test_retention import trim

from magnetar_core.errors import (
    Gone,
    InvalidArgument,
    QuotaExceeded,
    TopicNotFound,
)
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import group_pb2 as group_wire
from magnetar_core.wire import topic_pb2 as topic_wire


def alter(**changes: Any) -> topic_wire.CommandAlterTopic:
    return topic_wire.CommandAlterTopic(**{"topic": "t", "keys_move": True, **changes})


def at_the_end(number: int) -> wire.CommandSubscribe:
    return subscribe(number=number, earliest=False)


def cursors(world: World, number: int) -> dict[str, int]:
    """The subscriptions of a partition, with the first offset that each has not acknowledged."""
    found = world.broker.topics.get("t").hosted[number].subscriptions
    return {one.name.subscription: one.cursor.floor for one in found}


def test_fewer_partitions_are_refused_and_more_only_when_confirmed() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        before = world.broker.topics.get("t").record
        for changes, complaint in (
            ({"partitions": 3, "keys_move": False}, "keys_move"),
            ({"partitions": 5}, "at most 4"),
        ):
            with pytest.raises(InvalidArgument, match=complaint):
                await ask(alter(**changes))
        assert world.broker.topics.get("t").record == before
        await ask(alter(partitions=3))
        with pytest.raises(InvalidArgument, match="cannot have fewer"):
            await ask(alter(partitions=2))
        await ask(topic_wire.CommandCreateTopic(topic="u", partitions=2))
        with pytest.raises(QuotaExceeded, match="broker_partitions_max"):
            await ask(alter(partitions=4))
        with pytest.raises(TopicNotFound):
            await ask(alter(topic="nope"))
        with pytest.raises(Gone):
            await ask(alter(topic_id=77))
        assert world.broker.topics.get("t").record.partitions == 3
        # What it has already takes no confirmation.
        await ask(alter(partitions=3, keys_move=False))

    run(scenario, partitions_max=4, broker_partitions_max=5)


def test_what_is_not_named_stays_as_it_is() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(alter(retention_ms=5, retention_bytes=6, retain_unconsumed=topic_wire.NO))
        await ask(alter(partitions=3))
        await ask(alter(retention_ms=0))
        await ask(alter(retention_bytes=9, dry_run=True))
        for restarted in (False, True):
            if restarted:
                await world.restart()
            found = await world.client.ask(topic_wire.CommandDescribeTopic(topic="t"))
            assert (found.retention_ms, found.retention_bytes) == (0, 6)
            assert found.retain_unconsumed == topic_wire.NO
            assert found.partition_count == len(found.partitions) == 3
            looked_up = await world.client.ask(topic_wire.CommandLookup(topic="t"))
            assert len(looked_up.broker_addresses) == 3

    run(scenario)


def test_another_retention_holds_from_the_next_pass_on() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"0"))
        world.clock.advance(1000)
        assert await trim(world) == 0
        await ask(alter(retention_ms=500))
        assert await trim(world) == 1
        await ask(send(b"1", sequence=1))
        world.clock.advance(1000)
        await ask(alter(retention_ms=0))
        assert await trim(world) == 0

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_subscriptions_that_exist_begin_at_the_beginning_of_new_partitions(
    restarted: bool,
) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        for number in (0, 1):
            await world.client.ask(at_the_end(number))
        assert cursors(world, 0) == {"s": 1}
        await world.client.ask(alter(partitions=4))
        if restarted:
            await world.restart()
        assert cursors(world, 2) == cursors(world, 3) == {"s": 0}
        # A message comes before any consumer, and is kept for them.
        await world.client.ask(send(b"1", number=2))
        attach = at_the_end(2)
        await world.client.ask(attach)
        assert cursors(world, 2) == {"s": 0}
        # One that is new begins where it is asked to.
        attach.subscription.subscription = "new"
        await world.client.ask(attach)
        assert cursors(world, 2) == {"s": 0, "new": 1}

    run(scenario)


def test_a_subscription_of_some_partitions_does_not_come_to_others() -> None:
    """Nobody would read there, and retention would wait for it."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(subscribe(number=1))
        await ask(alter(partitions=3))
        assert cursors(world, 2) == {}

    run(scenario)


def test_members_of_groups_get_new_partitions_from_their_beginning() -> None:
    async def scenario(world: World) -> None:
        a = Worker(world, "a")
        await a.join()
        await world.client.ask(alter(partitions=4))
        await a.beat()
        assert {one.partition for one in a.held} == {0, 1, 2, 3}
        assert all(cursors(world, number) == {GROUP: 0} for number in range(4))
        await world.client.ask(group_wire.CommandLeaveGroup(group=GROUP, member_id="a"))
        # Without members, too: a message that comes now is for the next one.
        await world.client.ask(alter(partitions=5))
        assert cursors(world, 4) == {GROUP: 0}
        await world.client.ask(send(b"0", number=4))
        for restarted in (False, True):
            if restarted:
                await world.restart()
            described = await world.client.ask(group_wire.CommandDescribeGroup(group=GROUP))
            assert described.summary.partitions == 5
            assert described.summary.lag == 1
        again = join("b")
        again.initial_position = wire.LATEST
        state = (await world.client.ask(again)).state
        assert {one.partition.partition for one in state.assigned} == {0, 1, 2, 3, 4}
        assert cursors(world, 4) == {GROUP: 0}

    run(scenario)


def test_a_transaction_goes_on_over_the_change() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"0"))
        await ask(subscribe())
        await ask(send(b"1", in_txn=txn(1)))
        await ask(ack((0, 0), in_txn=txn(1)))
        await ask(alter(partitions=3, retention_ms=5))
        await ask(send(b"2", in_txn=txn(1), sequence=1))
        await ask(send(b"3", in_txn=txn(1), number=2))
        await ask(end(txn(1)))
        in_new = end(txn(1))
        in_new.partition.partition = 2
        await ask(in_new)
        await ask(end(txn(1), on="s"))
        assert await world.read() == [b"0", b"1", b"2"]
        assert await world.read(number=2) == [b"3"]
        assert cursors(world, 0) == {"s": 1}

    run(scenario)


def test_answers_tell_how_many_partitions_there_are() -> None:
    """A client that looked the topic up before the change hears of it."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(alter(partitions=3))
        assert (await ask(subscribe())).partition_count == 3
        listed = await ask(wire.CommandListOffsets(topic="t", partitions=[0]))
        assert listed.partition_count == 3
        unsubscribe = wire.CommandUnsubscribe(subscription=subscription())
        assert (await ask(unsubscribe)).partition_count == 3

    run(scenario)
