"""Delivery with something in its way: a move of the cursor, rows that are missing, a deletion."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.harness import (
    Client,
    World,
    ack,
    end,
    flow,
    run,
    send,
    subscribe,
    subscription,
    txn,
)
from tests.waiting import turns

from magnetar_broker import keys
from magnetar_broker.topics.retention import trim_partition
from magnetar_core.batch import encode, split
from magnetar_core.errors import (
    DataLoss,
    DiskFull,
    InvalidArgument,
    SubscriptionExists,
    from_wire,
)
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

T1 = txn(1)


def test_nothing_goes_out_between_a_seek_and_its_durability() -> None:
    """Who attaches in between gets nothing of the old place, and all of the new one once."""

    async def scenario(world: World) -> None:
        await world.client.ask(subscribe(consumer=1))
        await world.client.ask(send(b"0", b"1", b"2"))
        await world.client.ask(ack((0, 1)))
        world.subscription().seek(0)
        world.client.begin(subscribe(consumer=1, epoch=2))
        world.client.tell(flow())
        await world.settle()
        assert world.client.offsets() == [0, 1, 2]

    run(scenario)


def test_many_damaged_places_with_nothing_between_them_leave_others_their_turn() -> None:
    """They never touch, so something is read after each, and that leaves others their turn."""
    count = 40

    async def scenario(world: World) -> None:
        turn, skipped_in = 0, []
        await world.client.ask(subscribe(consumer=1))
        for sequence in range(count):
            await world.client.ask(send(b"x", sequence=sequence))
        await world.client.ask(ack(*((one, one) for one in range(1, count, 2))))
        world.partition().skip_damaged([(one, one) for one in range(0, count, 2)])
        delivery = world.subscription().delivery
        skip = delivery._skip

        def noting(gap: tuple[int, int]) -> None:
            skipped_in.append(turn)
            skip(gap)

        delivery._skip = noting
        world.client.tell(flow())
        while world.subscription().backlog:
            await turns()
            turn += 1
        assert len(skipped_in) == count // 2
        assert len(set(skipped_in)) == count // 2

    run(scenario)


def test_a_consumer_that_leaves_much_unread_gets_nothing_for_now() -> None:
    async def scenario(world: World) -> None:
        slow, quick = world.client, Client(world)
        await slow.ask(subscribe(consumer=1, kind=wire.SHARED))
        await quick.ask(subscribe(consumer=2, kind=wire.SHARED))
        slow.tell(flow(consumer=1))
        quick.tell(flow(consumer=2))
        slow.congested(True)
        for sequence in range(4):
            await slow.ask(send(b"%d" % sequence, sequence=sequence))
        assert slow.values() == []
        assert quick.values() == [b"0", b"1", b"2", b"3"]
        await quick.close()
        assert slow.values() == [], "what the other held waits"
        slow.congested(False)
        await world.settle()
        assert slow.values() == [b"0", b"1", b"2", b"3"]

    run(scenario)


def test_whoever_attaches_on_a_full_conversation_waits_too() -> None:
    async def scenario(world: World) -> None:
        world.client.congested(True)
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.client.ask(send(b"0"))
        assert world.client.values() == []
        world.client.congested(False)
        await world.settle()
        assert world.client.values() == [b"0"]

    run(scenario)


def test_consumers_are_told_what_cannot_be_read() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        await world.client.ask(send(b"1", in_txn=T1))
        await world.client.ask(end(T1))
        for key, _ in await world.rows(keys.TXNLOG):
            world.broker.environment.commits.batch.delete(keys.TXNLOG, key)
        await world.client.ask(subscribe("other"))
        await world.restart()
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.settle()
        assert [change.closed for change in world.client.changes] == [True]
        assert isinstance(from_wire(world.client.changes[0].error), DataLoss)
        with pytest.raises(DataLoss):
            await world.read(start=1)
        # Whoever goes on elsewhere is served.
        await world.client.ask(wire.CommandSeek(subscription=subscription(), offset=2))
        await world.client.ask(send(b"2", sequence=1))
        await world.client.ask(subscribe(consumer=1, epoch=2))
        world.client.tell(flow())
        await world.settle()
        # And what came before it had been, the first time.
        assert world.client.values() == [b"0", b"2"]

    run(scenario, tail_bytes_max=1)


def test_what_comes_late_on_an_old_link_takes_nobody_off_a_newer_one() -> None:
    """A consumer attaches on a new link, and what it said on the old one comes late."""

    async def scenario(world: World) -> None:
        old, new = world.client, Client(world)
        await old.ask(subscribe(consumer=1))
        await new.ask(subscribe(consumer=1, epoch=2))
        await old.ask(wire.CommandCloseConsumer(subscription=subscription(), consumer_id=1))
        await old.close()
        new.tell(flow(consumer=1))
        await new.ask(send(b"0"))
        await world.settle()
        assert new.offsets() == [0]

    run(scenario)


def test_a_refused_change_of_type_leaves_everybody_attached() -> None:
    async def scenario(world: World) -> None:
        other = Client(world)
        await world.client.ask(subscribe(consumer=1, kind=wire.SHARED))
        await other.ask(subscribe(consumer=2, kind=wire.SHARED))
        with pytest.raises(SubscriptionExists):
            await world.client.ask(subscribe(consumer=1, kind=wire.FAILOVER, epoch=2))
        assert len(world.subscription().dispatcher.consumers) == 2
        await other.close()
        await world.client.ask(subscribe(consumer=1, kind=wire.FAILOVER, epoch=3))

    run(scenario)


def test_a_repeated_send_is_recognised_on_a_full_disk() -> None:
    async def scenario(world: World) -> None:
        first = await world.client.ask(send(b"0"))
        await world.client.ask(send(b"1", in_txn=T1))
        world.disk.free_bytes = 1 << 10
        world.clock.advance(1_000)
        again = await world.client.ask(send(b"0"))
        assert again.duplicate
        assert again.message_id == first.message_id
        assert (await world.client.ask(send(b"1", in_txn=T1))).duplicate
        for body in (send(b"2", sequence=1), send(b"2", in_txn=T1, sequence=1)):
            with pytest.raises(DiskFull):
                await world.client.ask(body)
        await world.client.ask(end(T1))
        assert await world.read() == [b"0", b"1"]

    run(scenario)


@pytest.mark.parametrize("by", ["message_ids", "ranges"])
def test_an_ack_of_another_ledger_is_refused(by: str) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(subscribe())
        await world.client.ask(send(b"0"))
        body = ack((0, 0))
        if by == "ranges":
            body.ledger_id = 2
        else:
            body.message_ids.add(ledger_id=2)
        with pytest.raises(InvalidArgument):
            await world.client.ask(body)
        assert world.subscription().cursor.floor == 0

    run(scenario)


def test_a_topic_deleted_while_retention_reads_leaves_no_row() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="t"))
        await world.client.ask(topic_wire.CommandCreateTopic(topic="t", retention_bytes=1))
        await world.client.ask(send(b"0"))
        await world.client.ask(send(b"1", sequence=1))
        topic = world.broker.topics.get("t")
        trimming = asyncio.ensure_future(
            trim_partition(world.broker.environment, topic, topic.partitions[0])
        )
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="t"))
        assert await trimming == 0
        await world.settle()
        for family in (keys.PARTITIONS, keys.LOG, keys.TXNLOG):
            assert await world.rows(family) == [], family

    run(scenario)


@pytest.mark.parametrize("batches", [1, 64, 65])
def test_retention_removes_a_transactions_rows_however_many(batches: int) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="t"))
        await world.client.ask(topic_wire.CommandCreateTopic(topic="t", retention_bytes=1))
        for sequence in range(batches):
            await world.client.ask(send(b"x", in_txn=T1, sequence=sequence))
        await world.client.ask(send(b"kept", in_txn=txn(2)))
        await world.client.ask(end(T1))
        topic = world.broker.topics.get("t")
        await trim_partition(world.broker.environment, topic, topic.partitions[0])
        await world.settle()
        assert [value for _, value in await world.rows(keys.TXNLOG)] == [
            send(b"kept", in_txn=txn(2)).batch
        ]

    run(scenario)


def test_whether_there_is_a_txnlog_survives() -> None:
    """PIP-31, Broker - Transaction Buffer: it is created on first use."""

    async def described(world: World) -> list[bool]:
        answer = await world.client.ask(topic_wire.CommandDescribeTopic(topic="t"))
        return [one.has_txnlog for one in answer.partitions]

    async def scenario(world: World) -> None:
        assert await described(world) == [False, False]
        await world.client.ask(send(b"x", in_txn=T1))
        assert await described(world) == [True, False]
        answer = await world.client.ask(topic_wire.CommandDescribeTopic(topic="t"))
        assert answer.partitions[0].open_txn_count == 1
        await world.client.ask(end(T1, common.ABORT))
        await world.restart()
        assert await described(world) == [True, False]

    run(scenario)


def test_a_consumer_gets_no_more_bytes_than_it_has_permits_for() -> None:
    """The last batch may exceed them; without any, messages alone count."""

    async def scenario(world: World) -> None:
        def give(permits: int, permit_bytes: int) -> wire.CommandFlow:
            return wire.CommandFlow(
                subscription=subscription(),
                consumer_id=1,
                permits=permits,
                permit_bytes=permit_bytes,
            )

        size = len(send(b"x" * 100).batch)
        for sequence in range(6):
            await world.client.ask(send(b"x" * 100, sequence=sequence))
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(give(100, size + 1))
        await world.settle()
        assert world.client.offsets() == [0, 1]
        world.client.tell(give(1, 1))
        await world.settle()
        assert world.client.offsets() == [0, 1], "they cover what the last one exceeded"
        world.client.tell(give(1, size))
        await world.settle()
        assert world.client.offsets() == [0, 1, 2]
        world.client.tell(give(1, 10 * size))
        await world.settle()
        assert world.client.offsets() == [0, 1, 2, 3, 4, 5]

    run(scenario)


def test_parts_of_a_message_go_where_the_first_one_went() -> None:
    """Also when it has no permits left, and others have; also when they go out again."""

    async def scenario(world: World) -> None:
        parts = split(encode([bytes(400)]), 100)
        client, other = world.client, Client(world)
        for one, consumer in ((client, 1), (other, 2)):
            await one.ask(subscribe(consumer=consumer, kind=wire.SHARED))
        for sequence, part in enumerate(parts):
            command = send(b"", in_txn=T1, sequence=sequence)
            command.batch = part
            await client.ask(command)
        last = len(parts) - 1
        await client.ask(end(T1))
        await client.ask(send(b"after"))
        client.tell(flow(2, consumer=1))
        other.tell(flow(2, consumer=2))
        await world.settle()
        first, second = sorted((client, other), key=lambda one: len(one.parts()), reverse=True)
        assert first.parts() == [0, 1]
        assert second.parts() == [], "the next part waits for who got the first"
        first.tell(flow(100, consumer=1 if first is client else 2))
        await world.settle()
        assert first.parts() == list(range(last + 1))
        assert second.parts() == [last + 1]
        await first.close()
        second.tell(flow(100, consumer=2 if first is client else 1))
        await world.settle()
        assert second.parts() == [last + 1, *range(last + 1)]

    run(scenario)


def test_parts_outside_a_transaction_are_refused() -> None:
    async def scenario(world: World) -> None:
        command = send(b"")
        command.batch = split(encode([bytes(400)]), 100)[0]
        with pytest.raises(InvalidArgument):
            await world.client.ask(command)

    run(scenario)
