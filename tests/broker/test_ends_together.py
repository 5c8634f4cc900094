"""One command ends a transaction at several participants: all of them, and in order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from tests.broker.harness import (
    Client,
    World,
    ack,
    end,
    partition,
    run,
    send,
    subscribe,
    subscription,
    txn,
)

from magnetar_broker import keys
from magnetar_broker.coordinators.transaction_commands import ENDED_TOGETHER_MAX
from magnetar_core.errors import (
    InvalidArgument,
    InvalidTxnState,
    SequenceGap,
    TransactionConflict,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as pb

T0, T1, T2 = txn(0), txn(1), txn(2)


def together(
    txn_id: TxnID,
    action: common.TxnAction = common.COMMIT,
    *,
    partitions: Sequence[common.Partition],
    on: Sequence[str] = (),
    counts: Sequence[int] | None = None,
    loss_accepted: bool = False,
) -> pb.CommandEndTxnOnParticipants:
    """An end on partitions, and on subscriptions of partition 0.

    Args:
        counts: confirmed messages of producer 1 at each partition.
    """
    counted = [0] * len(partitions) if counts is None else counts
    return pb.CommandEndTxnOnParticipants(
        txn_id=txn_id.to_wire(),
        txn_action=action,
        counts_given=counts is not None,
        partitions=[
            pb.PartitionCounts(
                partition=one, producers=[pb.WriterCount(writer_id=1, count=count)] * bool(count)
            )
            for one, count in zip(partitions, counted, strict=True)
        ],
        subscriptions=[
            pb.SubscriptionCounts(
                subscription=subscription(name), consumers=[pb.WriterCount(writer_id=1, count=1)]
            )
            for name in on
        ],
        loss_accepted=loss_accepted,
    )


BOTH = (partition(0), partition(1))


async def written(world: World, txn_id: TxnID = T0, *, follows: TxnID | None = None) -> None:
    """A message in each partition, and an input of partition 0 acknowledged."""
    ask = world.client.ask
    await ask(send(b"input", producer=9))
    await ask(subscribe(consumer=1))
    await ask(send(b"a", in_txn=txn_id, follows=follows))
    await ask(send(b"b", in_txn=txn_id, number=1))
    await ask(ack((0, 0), in_txn=txn_id))


def unfinished(answer: Any) -> list[tuple[int, str, str]]:
    return [
        (
            one.partition.partition,
            one.subscription,
            common.ErrorCode.Name(one.error.code) if one.HasField("error") else "",
        )
        for one in answer.unfinished
    ]


async def acknowledged(world: World) -> bool:
    """Whether the input counts as consumed: neither PENDING nor PENDING_ACK."""
    return world.subscription().cursor.is_deleted(0)


def test_a_commit_ends_everywhere_in_a_single_group() -> None:
    async def scenario(world: World) -> None:
        await written(world)
        syncs = world.disk.sync_count
        answer = await world.client.ask(together(T0, partitions=BOTH, on=["s"], counts=[1, 1]))
        assert answer.txn_id == T0.to_wire()
        assert not answer.unfinished
        assert world.disk.sync_count == syncs + 1
        assert await world.read() == [b"input", b"a"]
        assert await world.read(number=1) == [b"b"]
        assert await acknowledged(world)
        assert await world.rows(keys.PENDINGACKS) == []
        # Late sends are refused at each of them, and so are acks.
        for late in (
            send(b"z", in_txn=T0, sequence=1),
            send(b"z", in_txn=T0, sequence=1, number=1),
            ack((1, 1), in_txn=T0, sequence=1),
        ):
            with pytest.raises(InvalidTxnState):
                await world.client.ask(late)

    run(scenario)


def test_an_abort_ends_everywhere() -> None:
    async def scenario(world: World) -> None:
        await written(world)
        answer = await world.client.ask(
            together(T0, common.ABORT, partitions=BOTH, on=["s"], counts=None)
        )
        assert not answer.unfinished
        assert await world.read() == [b"input"]
        assert await world.read(number=1) == []
        assert not await acknowledged(world)
        # The input is PENDING again, for whoever takes it next.
        await world.client.ask(ack((0, 0), in_txn=T1))

    run(scenario)


def test_the_answer_waits_for_the_disk() -> None:
    async def scenario(world: World) -> None:
        await written(world)
        world.stall()
        answer = world.client.begin(together(T0, partitions=BOTH, on=["s"], counts=[1, 1]))
        await world.settle()
        assert not answer.done()
        await world.go_on()
        assert answer.done()

    run(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_a_power_loss_leaves_all_ends_or_none(seed: int) -> None:
    async def scenario(world: World) -> None:
        await written(world)
        world.stall()
        answer = world.client.begin(together(T0, partitions=BOTH, on=["s"], counts=[1, 1]))
        await world.settle()
        assert not answer.done()
        await world.restart(Random(seed))
        await world.go_on()
        found = [T0 in world.partition(number).index.ended for number in (0, 1)]
        found.append(T0 in world.subscription().index.ended)
        assert found in ([True] * 3, [False] * 3)
        assert await acknowledged(world) is found[0]

    run(scenario)


def test_a_commit_that_lost_messages_leaves_the_acks_pending() -> None:
    """Rules g and p: the input is not consumed before its output is in place."""

    async def scenario(world: World) -> None:
        await written(world)
        asked = together(T0, partitions=BOTH, on=["s"], counts=[2, 1])
        answer = await world.client.ask(asked)
        assert unfinished(answer) == [(0, "", "TXN_INCOMPLETE"), (0, "s", "")]
        assert answer.unfinished[0].error.details["confirmed"] == "2"
        assert await world.read(number=1) == [b"b"], "the other partition has ended it"
        assert not await acknowledged(world)
        with pytest.raises(TransactionConflict):
            await world.client.ask(ack((0, 0), in_txn=T1))
        # Only those that have not ended it are told again.
        again = together(T0, partitions=BOTH[:1], on=["s"], counts=[2], loss_accepted=True)
        answer = await world.client.ask(again)
        assert not answer.unfinished
        assert await world.read() == [b"input", b"a"]
        assert await acknowledged(world)

    run(scenario)


def test_a_commit_that_waits_at_a_partition_holds_the_subscriptions_back() -> None:
    """Rule k at partition 0; partition 1 has nothing to wait for."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"first", in_txn=T1))
        await written(world, T0, follows=T1)
        answer = world.client.begin(together(T0, partitions=BOTH, on=["s"], counts=[1, 1]))
        await world.settle()
        # A copy, on the same conversation, takes the place of the first.
        world.client.begin_again(together(T0, partitions=BOTH, on=["s"], counts=[1, 1]))
        assert await world.read(number=1) == [b"b"]
        assert not answer.done()
        assert not await acknowledged(world)
        await world.client.ask(end(T1, counts={1: 1}))
        await world.settle()
        assert not answer.result().unfinished
        assert await world.read() == [b"input", b"first", b"a"]
        assert await acknowledged(world)

    run(scenario)


def test_an_abort_holds_nobody_back() -> None:
    async def scenario(world: World) -> None:
        await written(world)
        await world.client.ask(end(T0, counts={1: 1}))
        answer = await world.client.ask(together(T0, common.ABORT, partitions=BOTH, on=["s"]))
        assert unfinished(answer) == [(0, "", "INVALID_TXN_STATE")]
        assert T0 in world.subscription().index.ended
        assert await world.read(number=1) == []

    run(scenario)


def test_whoever_is_gone_holds_nobody_back() -> None:
    async def scenario(world: World) -> None:
        await written(world)
        elsewhere = common.Partition(topic="t", partition=0, topic_id=77)
        nowhere = common.Partition(topic="none", partition=0)
        answer = await world.client.ask(
            together(T0, partitions=[elsewhere, nowhere, *BOTH], on=["s", "never"])
        )
        topics = [one.partition.topic for one in answer.unfinished]
        assert topics == ["t", "none", "t"]
        assert [error for *_, error in unfinished(answer)] == ["GONE", "TOPIC_NOT_FOUND", "GONE"]
        assert await acknowledged(world)
        # The end is recorded at a subscription that does not exist (rule d).
        await world.client.ask(subscribe("never"))
        with pytest.raises(InvalidTxnState):
            await world.client.ask(ack((0, 0), in_txn=T0, name="never"))

    run(scenario)


def test_the_topic_may_go_while_a_commit_waits() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"first", in_txn=T1))
        await written(world, T0, follows=T1)
        answer = world.client.begin(together(T0, partitions=BOTH, on=["s"], counts=[1, 1]))
        await world.settle()
        world.broker.topics.delete(world.broker.topics.get("t"))
        await world.settle()
        assert unfinished(answer.result()) == [(0, "", "GONE"), (0, "s", "TOPIC_NOT_FOUND")]
        for family in (keys.LOG, keys.TXNLOG, keys.CURSORS, keys.PENDINGACKS):
            assert await world.rows(family) == []
        await world.client.ask(topic_wire.CommandCreateTopic(topic="t", partitions=2))

    run(scenario)


@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
def test_a_late_copy_succeeds_and_writes_nothing(action: Any) -> None:
    async def scenario(world: World) -> None:
        await written(world)
        asked = together(T0, action, partitions=BOTH, on=["s"], counts=[1, 1])
        first = await world.client.ask(asked)
        before = [await world.read(number=number) for number in (0, 1)]
        syncs = world.disk.sync_count
        assert await Client(world).ask(asked) == first
        assert world.disk.sync_count == syncs
        assert [await world.read(number=number) for number in (0, 1)] == before

    run(scenario)


def test_what_nobody_issued_and_what_is_too_much_has_no_effect() -> None:
    async def scenario(world: World) -> None:
        await written(world)
        unissued = TxnID.of(0, 1, 1 << 41)
        with pytest.raises(TxnNotFound):
            await world.client.ask(together(unissued, partitions=BOTH))
        many = together(T0, partitions=[partition()] * ENDED_TOGETHER_MAX, on=["s"])
        with pytest.raises(InvalidArgument):
            await world.client.ask(many)
        assert T0 in world.partition().index.open
        with pytest.raises(SequenceGap):
            await world.client.ask(send(b"z", in_txn=T0, sequence=5))

    run(scenario)
