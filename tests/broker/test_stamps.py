"""Stamps of commits: kept with markers and ends, and told with messages and offsets.

Source: docs/design/0015-cuts.md, Stamps.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.broker.harness import (
    Client,
    World,
    describe_ends,
    end,
    flow,
    partition,
    run,
    send,
    subscribe,
    subscription,
    txn,
    watermark,
)
from tests.broker.test_ends_together import BOTH, together
from tests.broker.test_retention import topic_with, trim

from magnetar_core.cuts.hybrid_clock import stamp_at
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common

T0, T1, T2 = txn(0), txn(1), txn(2)
# Above 2^63, as no stamp of a sound clock is.
STAMP = (1 << 63) + 77


def stamped(body: Any, stamp: int) -> Any:
    body.stamp = stamp
    return body


async def commit(world: World, txn_id: TxnID, stamp: int, *values: bytes) -> None:
    await world.client.ask(send(*values or (b"x",), in_txn=txn_id))
    await world.client.ask(stamped(end(txn_id), stamp))


async def stamps(world: World, number: int = 0) -> list[int]:
    """The stamp of each stored batch, in order."""
    answer = await world.client.ask(wire.CommandRead(partition=partition(number)))
    return [batch.stamp for batch in answer.batches]


async def highest(world: World) -> list[int]:
    answer = await world.client.ask(wire.CommandListOffsets(topic="t"))
    return [one.highest_stamp for one in answer.partitions]


@pytest.mark.parametrize("how", ["at once", "restarted", "power lost"])
def test_messages_of_a_transaction_tell_the_stamp_of_its_commit(how: str) -> None:
    """Plain ones have none. What is read again comes from the store."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(subscribe())
        await ask(send(b"0"))
        await commit(world, T0, STAMP, b"1", b"2")
        await commit(world, T1, STAMP + 5)
        await ask(send(b"4", sequence=1))
        if how != "at once":
            await world.restart(Random(5) if how == "power lost" else None)
            ask = world.client.ask
        expected = [0, STAMP, STAMP + 5, 0]
        assert await stamps(world) == expected
        await ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.settle()
        delivered = [batch for each in world.client.delivered for batch in each.batches]
        assert [one.stamp for one in delivered] == expected
        assert [one.HasField("txn_id") for one in delivered] == [False, True, True, False]
        peeked = await ask(wire.CommandPeek(partition=partition()))
        assert [one.stamp for one in peeked.messages] == [0, STAMP, STAMP, STAMP + 5, 0]

    run(scenario)


def test_a_plain_batch_takes_no_byte_more() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        answer = await world.client.ask(wire.CommandRead(partition=partition()))
        (batch,) = answer.batches
        assert [field.name for field, _ in batch.ListFields()] == [
            "num_messages",
            "batch",
            "append_time_ms",
        ]

    run(scenario)


@pytest.mark.parametrize("power", [False, True])
def test_offsets_tell_the_highest_stamp_below_them(power: bool) -> None:
    async def scenario(world: World) -> None:
        assert await highest(world) == [0, 0]
        await commit(world, T0, STAMP)
        await commit(world, T1, STAMP - 7)
        assert await highest(world) == [STAMP, 0]
        await world.restart(Random(1) if power else None)
        assert await highest(world) == [STAMP, 0]
        await world.client.ask(watermark(0))
        await commit(world, T2, STAMP + 1)
        assert await highest(world) == [STAMP + 1, 0]

    run(scenario)


def test_only_the_coordinator_tells_stamps_of_another_time() -> None:
    """Whoever read one that somebody had invented could not commit any more, anywhere."""

    async def scenario(world: World) -> None:
        latest = stamp_at(
            world.clock.wall_ms() + world.broker.environment.config.stamp_ahead_ms_max
        )
        await world.client.ask(send(b"0", in_txn=T0))
        stranger = Client(world)
        for body in (end(T0), end(T0, on="s"), together(T0, partitions=BOTH)):
            with pytest.raises(InvalidArgument, match="stamp_ahead_ms_max"):
                await stranger.ask(stamped(body, latest + 1))
        assert await highest(world) == [0, 0]
        assert T0 in world.partition().index.open
        await stranger.ask(stamped(end(T0), latest))
        assert await highest(world) == [latest, 0]
        await commit(world, T1, STAMP)
        assert await highest(world) == [STAMP, 0]

    run(scenario)


def test_retention_removes_markers_and_not_the_highest_stamp() -> None:
    async def scenario(world: World) -> None:
        await topic_with(world, retention_ms=500)
        await world.client.ask(wire.CommandUnsubscribe(subscription=subscription()))
        await commit(world, T2, STAMP)
        await world.client.ask(send(b"9", sequence=3))
        world.clock.advance(1_000)
        await trim(world)
        assert world.partition().log.first_offset > 4
        assert await highest(world) == [STAMP]
        await world.restart()
        assert await highest(world) == [STAMP]

    run(scenario)


def test_all_participants_of_a_shared_end_keep_its_stamp() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(subscribe())
        await ask(send(b"a", in_txn=T0))
        await ask(send(b"b", in_txn=T0, number=1))
        await ask(stamped(together(T0, partitions=BOTH, on=["s"], loss_accepted=True), STAMP))
        await world.restart()
        assert [await stamps(world, number) for number in (0, 1)] == [[STAMP], [STAMP]]
        assert await highest(world) == [STAMP, STAMP]
        assert world.subscription().index.ended[T0].stamp == STAMP

    run(scenario)


def test_a_commit_that_waited_for_another_one_has_its_own_stamp() -> None:
    """Rule k; whoever tells nothing of what it has seen gets a lower one for the later commit."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"1", in_txn=T1))
        await ask(send(b"2", in_txn=T2, follows=T1))
        waiting = world.client.begin(stamped(end(T2), STAMP))
        await world.settle()
        assert not waiting.done()
        await ask(stamped(end(T1), STAMP + 1))
        assert waiting.done()
        assert await stamps(world) == [STAMP + 1, STAMP]
        assert await highest(world) == [STAMP + 1, 0]

    run(scenario)


def test_a_late_copy_of_an_end_changes_no_stamp() -> None:
    async def scenario(world: World) -> None:
        await commit(world, T0, STAMP)
        await world.client.ask(stamped(end(T0), STAMP + 1))
        assert await stamps(world) == [STAMP]
        assert await highest(world) == [STAMP, 0]

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_coordinator_that_lost_its_decision_hears_the_stamp(restarted: bool) -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await commit(world, T0, STAMP)
        # It has nothing here: only the end is kept.
        await ask(stamped(end(T1), STAMP + 1))
        await ask(end(T2, common.ABORT))
        if restarted:
            await world.restart()
        answer = await world.client.ask(describe_ends(T0, T1, T2))
        told = {TxnID.from_wire(one.txn_id): one.stamp for one in answer.ends}
        assert told == {T0: STAMP, T1: STAMP + 1, T2: 0}

    run(scenario)


def test_a_commit_of_an_earlier_coordinator_has_no_stamp() -> None:
    async def scenario(world: World) -> None:
        await commit(world, T0, 0)
        await world.restart()
        assert await stamps(world) == [0]
        assert await highest(world) == [0, 0]

    run(scenario)
