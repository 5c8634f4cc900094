"""What participants tell of one transaction, while it is open and after its end."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.broker.harness import (
    World,
    ack,
    end,
    flow,
    partition,
    run,
    send,
    subscribe,
    subscription,
    take_incarnations,
    txn,
    watermark,
)

from magnetar_broker.commands import participant_descriptions
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

T1, T2 = txn(1), txn(2)


async def asked(
    world: World,
    txn_id: TxnID,
    *,
    partitions: Iterable[common.Partition] = (),
    subscriptions: Iterable[common.Subscription] = (),
) -> list[wire.ParticipantDescription]:
    command = wire.CommandDescribeParticipants(
        txn_id=txn_id.to_wire(), partitions=partitions, subscriptions=subscriptions
    )
    answer = await world.client.ask(command)
    return list(answer.participants)


async def of_partition(world: World, txn_id: TxnID) -> wire.ParticipantDescription:
    (found,) = await asked(world, txn_id, partitions=[partition()])
    assert found.partition == partition()
    return found


def told(found: wire.ParticipantDescription) -> tuple[int, int, bool]:
    return found.status, found.count, found.counted_partly


def test_messages_of_an_open_transaction_are_counted() -> None:
    async def scenario(world: World) -> None:
        began_ms = world.clock.now_ms
        await world.client.ask(send(b"a", b"b", in_txn=T1))
        world.clock.now_ms += 500
        await world.client.ask(send(b"ccc", in_txn=T1, producer=2))
        found = await of_partition(world, T1)
        assert told(found) == (common.OPEN, 3, False)
        assert found.bytes > 0
        assert found.first_write_ms == began_ms
        assert told(await of_partition(world, T2)) == (0, 0, False)

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_commit_is_counted_by_its_marker_and_then_by_its_messages(restarted: bool) -> None:
    async def scenario(world: World) -> None:
        began_ms = world.clock.now_ms
        await world.client.ask(send(b"a", b"b", in_txn=T1))
        await world.client.ask(send(b"c", in_txn=T1, producer=2))
        open_bytes = (await of_partition(world, T1)).bytes
        await world.client.ask(end(T1))
        if restarted:
            await world.restart()
        found = await of_partition(world, T1)
        assert told(found) == (common.COMMITTED, 3, False)
        assert (found.bytes, found.first_write_ms) == (open_bytes, began_ms)
        await take_incarnations(world.client, 0)
        await world.client.ask(watermark(5))
        found = await of_partition(world, T1)
        assert told(found) == (common.COMMITTED, 3, False)
        # Its row in the index is gone.
        assert (found.bytes, found.first_write_ms) == (open_bytes, 0)

    run(scenario)


def test_an_abort_leaves_its_time_until_the_watermark_covers_it() -> None:
    async def scenario(world: World) -> None:
        began_ms = world.clock.now_ms
        await world.client.ask(send(b"a", in_txn=T1))
        await world.client.ask(end(T1, common.ABORT))
        found = await of_partition(world, T1)
        assert (told(found), found.first_write_ms) == ((common.ABORTED, 0, False), began_ms)
        await take_incarnations(world.client, 0)
        await world.client.ask(watermark(5))
        found = await of_partition(world, T1)
        assert (told(found), found.first_write_ms) == ((0, 0, False), 0)

    run(scenario)


def test_acks_of_a_subscription_are_counted() -> None:
    async def scenario(world: World) -> None:
        client = world.client
        await client.ask(send(b"a", b"b", b"c"))
        await client.ask(subscribe(consumer=1))
        client.tell(flow())
        await world.settle()
        began_ms = world.clock.now_ms
        await client.ask(ack((0, 1), in_txn=T1))
        (found,) = await asked(world, T1, subscriptions=[subscription()])
        assert told(found) == (common.OPEN, 1, False)
        assert (found.subscription, found.pending_ack_count) == ("s", 2)
        assert found.first_write_ms == began_ms
        await client.ask(end(T1, on="s"))
        (found,) = await asked(world, T1, subscriptions=[subscription()])
        assert told(found) == (common.COMMITTED, 0, False)
        assert (found.pending_ack_count, found.first_write_ms) == (0, began_ms)

    run(scenario)


def test_a_participant_that_is_gone_does_not_hide_the_others() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"a", in_txn=T1))
        gone = common.Partition(topic="gone", partition=0, topic_id=9)
        first, second, third, fourth = await asked(
            world,
            T1,
            partitions=[gone, partition(), partition(77)],
            subscriptions=[subscription("nobody")],
        )
        assert first.error.code == common.GONE
        assert told(second) == (common.OPEN, 1, False)
        assert third.error.code == common.TOPIC_NOT_FOUND
        assert fourth.error.code == common.SUBSCRIPTION_NOT_FOUND

    run(scenario)


@pytest.mark.parametrize("limit", ["ROWS_MAX", "BYTES_MAX", "COMMAND_BYTES_MAX"])
def test_of_many_messages_a_part_is_counted(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction may have gigabytes, and the command is for people who wait."""

    async def scenario(world: World) -> None:
        for sequence in range(5):
            await world.client.ask(send(bytes(100), in_txn=T1, sequence=sequence))
        await world.client.ask(end(T1))
        await take_incarnations(world.client, 0)
        await world.client.ask(watermark(5))
        assert told(await of_partition(world, T1)) == (common.COMMITTED, 5, False)
        monkeypatch.setattr(participant_descriptions, limit, 2 if limit == "ROWS_MAX" else 300)
        found = await of_partition(world, T1)
        assert found.counted_partly
        assert 1 < found.count < 5
        every = await asked(world, T1, partitions=[partition()] * 4)
        assert all(one.counted_partly for one in every)
        assert (every[-1].count == 0) is (limit == "COMMAND_BYTES_MAX")

    run(scenario)


def test_too_many_participants_are_refused() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(InvalidArgument, match="1000 at most"):
            await asked(
                world, T1, partitions=[partition()] * 600, subscriptions=[subscription()] * 401
            )
        with pytest.raises(InvalidArgument, match="txn_id is missing"):
            await world.client.ask(wire.CommandDescribeParticipants(partitions=[partition()]))

    run(scenario)


def test_a_deleted_topic_is_said_to_be_gone() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"a", in_txn=T1))
        await world.client.ask(end(T1))
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="t"))
        (found,) = await asked(world, T1, partitions=[partition()])
        assert found.error.code == common.TOPIC_NOT_FOUND

    run(scenario)
