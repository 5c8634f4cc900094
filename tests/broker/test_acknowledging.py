"""PIP-31, Broker - Acknowledgements, through the broker's commands."""

from __future__ import annotations

import pytest
from tests.broker.harness import (
    Client,
    World,
    ack,
    end,
    flow,
    messages_of,
    nack,
    run,
    send,
    subscribe,
    subscription,
    txn,
    watermark,
)

from magnetar_broker import keys
from magnetar_core.errors import (
    ConsumerBusy,
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    OutOfRange,
    ResourceInUse,
    SequenceGap,
    SubscriptionExists,
    SubscriptionNotFound,
    TransactionConflict,
    TxnIncomplete,
)
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

T1, T2, T3 = txn(1), txn(2), txn(3)


async def refused(client: Client, body: object, error: type[MagnetarError]) -> MagnetarError:
    with pytest.raises(error) as raised:
        await client.ask(body)
    return raised.value


async def ten_messages(world: World, permits: int = 1000) -> Client:
    """Offsets 0 to 9 in five batches, delivered to consumer 1 of "s"."""
    for first in range(0, 10, 2):
        values = [b"m%d" % first, b"m%d" % (first + 1)]
        await world.client.ask(send(*values, sequence=first))
    await world.client.ask(subscribe(consumer=1))
    world.client.tell(flow(permits))
    await world.settle()
    return world.client


async def attach_again(world: World) -> Client:
    client = Client(world)
    await client.ask(subscribe(consumer=1, epoch=9))
    client.tell(flow())
    await world.settle()
    return client


# Plain acks


def test_acknowledged_messages_do_not_come_back() -> None:
    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        assert client.offsets() == list(range(10))
        await client.ask(ack((1, 1), (4, 6)))
        await client.ask(ack((5, 5)))
        assert world.subscription().cursor.floor == 0
        await client.close()
        client = await attach_again(world)
        assert client.offsets() == [0, 2, 3, 7, 8, 9]
        await world.restart()
        client = await attach_again(world)
        assert client.offsets() == [0, 2, 3, 7, 8, 9]
        await client.ask(ack((0, 3), cumulative=True))
        assert world.subscription().cursor.floor == 7

    run(scenario)


def test_what_was_never_there_cannot_be_acknowledged() -> None:
    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        for strange in (ack((9, 10)), ack((5, 4)), ack()):
            await refused(client, strange, InvalidArgument)
        await refused(client, ack((9, 10), in_txn=T1), InvalidArgument)
        await refused(client, ack((0, 0), name="none"), SubscriptionNotFound)
        assert not world.subscription().index.open

    run(scenario)


# PENDING_ACK


def test_a_plain_ack_of_a_pending_ack_is_dropped() -> None:
    """PIP-31: in PENDING_ACK, a plain ack is dropped; answered as success here."""

    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        await client.ask(ack((0, 4), in_txn=T1))
        await client.ask(ack((3, 6)))
        await client.ask(ack((0, 9), cumulative=True))
        assert world.subscription().cursor.floor == 0, "mark-delete never passes a PENDING_ACK"
        await client.ask(end(T1, common.ABORT, on="s"))
        assert client.offsets()[10:] == [0, 1, 2, 3, 4], "an abort redelivers at once"

    run(scenario)


@pytest.mark.parametrize("cumulative", [False, True])
def test_a_second_transaction_conflicts_and_changes_nothing(cumulative: bool) -> None:
    """PIP-31: a second transaction's ack fails, for individual and for cumulative acks."""

    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        await client.ask(ack((3, 3), in_txn=T1))
        await client.ask(ack((8, 8)))
        conflicting = ack((2, 4), in_txn=T2, consumer=2, cumulative=cumulative)
        await refused(client, conflicting, TransactionConflict)
        await refused(client, ack((8, 9), in_txn=T2), TransactionConflict)
        assert T2 not in world.subscription().index.open
        await client.ask(ack((2, 2), (4, 4), in_txn=T2))
        await client.ask(ack((3, 3), in_txn=T1, sequence=1))
        await client.ask(end(T1, common.ABORT, on="s"))
        await client.ask(ack((3, 3), in_txn=T2, sequence=1))
        await client.ask(end(T2, counts={1: 2}, on="s"))
        await client.ask(ack((0, 1)))
        assert world.subscription().cursor.floor == 5

    run(scenario)


def test_a_repeated_transactional_ack_succeeds() -> None:
    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        for _ in range(2):
            await client.ask(ack((0, 1), in_txn=T1))
        await refused(client, ack((2, 2), in_txn=T1, sequence=2), SequenceGap)
        await client.ask(ack((2, 2), in_txn=T1, sequence=1))
        await world.restart()
        await world.client.ask(ack((0, 1), in_txn=T1))
        await world.client.ask(end(T1, counts={1: 2}, on="s"))
        assert world.subscription().cursor.floor == 3
        assert await world.rows(keys.PENDINGACKS) == []

    run(scenario)


@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
def test_pending_acks_survive_and_only_the_end_moves_them(action: common.TxnAction) -> None:
    """PIP-31; docs/architecture.md: nack, disconnect and redelivery leave them, restarts too."""

    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        await client.ask(ack((0, 1), (4, 4), in_txn=T1))
        await client.ask(nack((0, 5)))
        assert client.offsets()[10:] == [2, 3, 5]
        await client.close()
        client = await attach_again(world)
        assert client.offsets() == [2, 3, 5, 6, 7, 8, 9]
        await world.restart()
        client = await attach_again(world)
        assert client.offsets() == [2, 3, 5, 6, 7, 8, 9]
        await refused(client, ack((4, 4), in_txn=T2), TransactionConflict)
        await client.ask(end(T1, action, on="s"))
        if action == common.COMMIT:
            assert client.offsets()[7:] == []
            assert world.subscription().cursor.floor == 2
        else:
            assert client.offsets()[7:] == [0, 1, 4]
        await world.restart()
        await refused(world.client, ack((9, 9), in_txn=T1), InvalidTxnState)

    run(scenario)


def test_an_end_of_nothing_refuses_late_acks() -> None:
    """Rule d: subscriptions record ends as partitions do, empty ones too."""

    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        await client.ask(end(T1, on="s", counts={}))
        await client.ask(end(T2, common.ABORT, on="s"))
        for _ in range(2):
            for ended in (T1, T2):
                await refused(world.client, ack((0, 0), in_txn=ended), InvalidTxnState)
            await refused(world.client, end(T1, common.ABORT, on="s"), InvalidTxnState)
            await refused(world.client, end(T2, on="s"), InvalidTxnState)
            await world.client.ask(end(T1, on="s"))
            await world.restart()

    run(scenario)


def test_counts_and_selection_hold_for_acks() -> None:
    """Rules g, h: counts of acks count commands; a selection covers acks as well."""

    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        await client.ask(ack((0, 3), in_txn=T1))
        await client.ask(ack((4, 5), in_txn=T1, sequence=1))
        await client.ask(ack((6, 6), in_txn=T1, consumer=2))
        await refused(client, end(T1, on="s", counts={1: 3, 2: 1}), TxnIncomplete)
        await client.ask(end(T1, on="s", counts={1: 1, 2: 1}, selected=[1]))
        assert world.subscription().cursor.floor == 4
        assert sorted(client.offsets()[10:]) == [4, 5, 6], "the surplus and who is not selected"
        await refused(client, end(T1, on="s", selected=[2]), InvalidTxnState)

    run(scenario)


def test_the_watermark_forgets_ends_of_acks_and_reports_orphans() -> None:
    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        await client.ask(ack((0, 0), in_txn=T1))
        await client.ask(ack((1, 1), in_txn=T2))
        await client.ask(end(T1, on="s"))
        answer = await client.ask(watermark(3))
        assert [(orphan.txn_id.least_bits, orphan.subscription) for orphan in answer.orphans] == [
            (2, "s")
        ]
        await world.restart()
        client = world.client
        await refused(client, ack((5, 5), in_txn=T1), InvalidTxnState)
        await refused(client, ack((5, 5), in_txn=T2, sequence=1), InvalidTxnState)
        await client.ask(end(T2, common.ABORT, on="s"))
        assert world.subscription().cursor.floor == 1
        assert await world.rows(keys.PENDINGACKS) == []

    run(scenario)


# Administration


def test_what_pends_is_in_use() -> None:
    """Rule j: seek, unsubscribe and delete are refused while acks pend or transactions are open."""

    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        await client.ask(ack((0, 0), in_txn=T1))
        seek = wire.CommandSeek(subscription=subscription(), offset=0)
        unsubscribe = wire.CommandUnsubscribe(subscription=subscription())
        delete = topic_wire.CommandDeleteTopic(topic="t")
        for _ in range(2):
            for command in (seek, unsubscribe, delete):
                error = await refused(world.client, command, ResourceInUse)
                assert error.details["open_txns"] == str(T1)
            await world.restart()
        client = world.client
        await client.ask(end(T1, on="s"))
        await client.ask(seek)
        await client.ask(send(b"x", in_txn=T2))
        await client.ask(unsubscribe)
        await refused(client, delete, ResourceInUse)
        await client.ask(end(T2, common.ABORT))
        await client.ask(delete)
        for family in keys.FAMILIES:
            if family != keys.META:
                assert await world.rows(family) == [], family

    run(scenario)


def test_unsubscribing_removes_every_row_and_tells_consumers() -> None:
    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        await client.ask(ack((0, 0), (5, 5)))
        await client.ask(end(T1, on="s"))
        await client.ask(wire.CommandUnsubscribe(subscription=subscription()))
        assert [change.closed for change in client.changes] == [True]
        await client.ask(watermark(2))
        for family in (keys.SUBSCRIPTIONS, keys.CURSORS, keys.PENDINGACKS, keys.TXNINDEX):
            assert await world.rows(family) == [], family
        await refused(client, ack((0, 0)), SubscriptionNotFound)
        await client.ask(send(b"later", producer=3))
        await world.restart()
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.settle()
        assert len(world.client.offsets()) == 11

    run(scenario)


@pytest.mark.parametrize("offset", [0, 3, 10])
def test_seek_starts_over_at_an_offset(offset: int) -> None:
    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        await client.ask(ack((0, 1), (7, 8)))
        await client.ask(wire.CommandSeek(subscription=subscription(), offset=offset))
        assert [change.closed for change in client.changes] == [True]
        await world.restart()
        client = await attach_again(world)
        assert client.offsets() == list(range(offset, 10))
        far = wire.CommandSeek(subscription=subscription(), offset=11)
        await refused(client, far, OutOfRange)

    run(scenario)


def test_seek_by_append_time() -> None:
    """docs/architecture.md: seek by time uses append time; for a transaction, its marker's."""

    async def scenario(world: World) -> None:
        client = world.client
        start_ms = world.clock.now_ms
        await client.ask(send(b"opened early", in_txn=T1, producer=2))
        for number in range(5):
            await client.ask(send(b"%d" % number, b"x", sequence=2 * number))
            world.clock.advance(10)
        await client.ask(end(T1))
        await client.ask(subscribe())

        async def seek(after_ms: int) -> int:
            target = wire.CommandSeek(
                subscription=subscription(), append_time_ms=start_ms + after_ms
            )
            return int((await world.client.ask(target)).offset)

        for _ in range(2):
            assert await seek(-5) == 0
            assert await seek(0) == 0
            assert await seek(1) == 2
            assert await seek(20) == 4
            assert await seek(41) == 10, "the marker's time counts, not the send's"
            assert await seek(50) == 10
            assert await seek(51) == 11
            await world.restart()
        place = wire.CommandSeek(subscription=subscription(), position=wire.EARLIEST)
        assert (await world.client.ask(place)).offset == 0
        place = wire.CommandSeek(subscription=subscription(), position=wire.LATEST)
        assert (await world.client.ask(place)).offset == 11

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_seek_by_append_time_after_the_clock_was_set_back(restarted: bool) -> None:
    """nats-streaming #233: times that go back lead a search astray."""

    async def scenario(world: World) -> None:
        start_ms = world.clock.now_ms
        await world.client.ask(send(b"before", sequence=0))
        world.clock.wall_offset_ms -= 36_000_000
        if restarted:
            await world.restart()
        for number in range(1, 10):
            await world.client.ask(send(b"%d" % number, sequence=number))
            world.clock.advance(1_000)
        await world.client.ask(send(b"committed", in_txn=T1, producer=2))
        await world.client.ask(end(T1))
        world.clock.wall_offset_ms += 36_000_000
        await world.client.ask(send(b"after", sequence=10))
        # Whatever is asked for, no message of that time or later is passed over.
        reader = world.partition().reader
        times = [entry.append_time_ms for entry in await reader.read(0, bytes_max=1 << 20)]
        assert times == [start_ms] * 11 + [start_ms + 9_000]
        await world.client.ask(subscribe())
        for after_ms, offset in ((-60_000, 0), (0, 0), (1, 11), (9_000, 11), (9_001, 12)):
            target = wire.CommandSeek(
                subscription=subscription(), append_time_ms=start_ms + after_ms
            )
            assert (await world.client.ask(target)).offset == offset

    run(scenario)


# Consumers


def test_an_exclusive_subscription_has_one_consumer() -> None:
    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        other = Client(world)
        await refused(other, subscribe(consumer=2), ConsumerBusy)
        await refused(other, subscribe(consumer=2, kind=wire.SHARED), SubscriptionExists)
        await refused(other, subscribe(consumer=2, kind=99), InvalidArgument)
        await client.ask(wire.CommandCloseConsumer(subscription=subscription(), consumer_id=1))
        await other.ask(subscribe(consumer=2, kind=wire.SHARED))

    run(scenario)


def test_a_consumer_on_a_newer_link_takes_the_place_of_its_old_self() -> None:
    async def scenario(world: World) -> None:
        old = await ten_messages(world)
        new = Client(world)
        await new.ask(subscribe(consumer=1, epoch=2))
        await refused(old, subscribe(consumer=1, epoch=1), InvalidArgument)
        old.tell(flow())
        new.tell(flow())
        await old.close()
        await world.settle()
        assert new.offsets() == list(range(10))
        # The application has what it received, or never saw it.
        assert all(batch.redelivery_count == 0 for one in new.delivered for batch in one.batches)

    run(scenario)


def test_a_nack_counts_the_delivery_that_it_answers_and_no_other() -> None:
    """Copies that the client has dropped, and copies of the nack, count nothing."""

    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        client.tell(flow())
        await world.settle()
        for answered, expected in ((0, 1), (0, 1), (1, 2), (0, 2), (2, 3), (9, 4)):
            client.delivered.clear()
            await client.ask(nack((3, 3), count=answered))
            await world.settle()
            (delivered,) = (batch for one in client.delivered for batch in one.batches)
            assert delivered.redelivery_count == expected

    run(scenario)


@pytest.mark.parametrize("leaves", ["in order", "vanishes", "vanishes and comes back"])
def test_what_was_in_the_queue_of_a_consumer_counts_if_it_vanished(leaves: str) -> None:
    async def scenario(world: World) -> None:
        first = await ten_messages(world)
        first.tell(flow())
        await world.settle()
        await first.ask(nack((3, 3)))
        await world.settle()
        if leaves == "in order":
            await first.ask(wire.CommandCloseConsumer(subscription=subscription(), consumer_id=1))
        else:
            await first.close()
        second = Client(world)
        if leaves == "vanishes and comes back":
            back = Client(world)
            await back.ask(subscribe(consumer=1, epoch=2))
            await back.ask(wire.CommandCloseConsumer(subscription=subscription(), consumer_id=1))
        await second.ask(subscribe(consumer=2))
        second.tell(flow(consumer=2))
        await world.settle()
        counts = {
            offset: batch.redelivery_count
            for deliver in second.delivered
            for batch in deliver.batches
            for offset, _ in messages_of(batch)
        }
        unseen = 1 if leaves == "vanishes" else 0
        assert counts == {offset: unseen + (offset == 3) for offset in range(10)}

    run(scenario)


def is_active(client: Client) -> bool:
    """What its consumer was told last."""
    return client.changes[-1].active


def test_failover_has_one_active_consumer_in_the_order_of_names() -> None:
    async def scenario(world: World) -> None:
        second, first = Client(world), Client(world)
        kind = wire.FAILOVER
        answer = await second.ask(subscribe(consumer=1, kind=kind, consumer_name="b"))
        assert answer.active
        second.tell(flow(consumer=1))
        await world.client.ask(send(b"0", b"1"))
        assert second.offsets() == [0, 1]
        await second.ask(ack((0, 0), consumer=1))
        answer = await first.ask(subscribe(consumer=2, kind=kind, consumer_name="a"))
        assert answer.active
        assert not is_active(second)
        assert is_active(first)
        first.tell(flow(consumer=2))
        await world.settle()
        assert first.offsets() == [1], "where the old one has acknowledged to"
        await world.client.ask(send(b"2", sequence=2))
        assert (first.offsets(), second.offsets()) == ([1, 2], [0, 1])
        await first.close()
        assert is_active(second)
        assert second.offsets() == [0, 1, 1, 2]

    run(scenario)


def test_shared_consumers_take_turns_and_take_over() -> None:
    async def scenario(world: World) -> None:
        clients = [Client(world) for _ in range(2)]
        for number, client in enumerate(clients, start=1):
            await client.ask(subscribe(consumer=number, kind=wire.SHARED))
            client.tell(flow(consumer=number))
        for number in range(6):
            await world.client.ask(send(b"%d" % number, sequence=number))
        assert [client.offsets() for client in clients] == [[0, 2, 4], [1, 3, 5]]
        await clients[0].ask(ack((2, 2), consumer=1))
        await clients[0].ask(ack((4, 4), consumer=1, in_txn=T1))
        await clients[0].close()
        assert clients[1].offsets() == [1, 3, 5, 0], "not the acknowledged, not the pending"
        await clients[1].ask(end(T1, common.ABORT, on="s"))
        assert clients[1].offsets() == [1, 3, 5, 0, 4]

    run(scenario)


def test_what_an_attachment_gives_back_goes_to_the_others_at_once() -> None:
    """protocol.md, Consumer detached: delivered to the others, or to its next attachment."""

    async def scenario(world: World) -> None:
        clients = [Client(world) for _ in range(2)]
        for number, client in enumerate(clients, start=1):
            await client.ask(subscribe(consumer=number, kind=wire.SHARED))
            client.tell(flow(consumer=number))
        await world.client.ask(send(b"0"))
        assert clients[0].offsets() == [0]
        again = Client(world)
        await again.ask(subscribe(consumer=1, kind=wire.SHARED, epoch=2))
        assert clients[1].offsets() == [0]

    run(scenario)


def test_permits_bound_what_is_delivered() -> None:
    async def scenario(world: World) -> None:
        client = await ten_messages(world, permits=3)
        assert client.offsets() == [0, 1, 2, 3], "the last batch may exceed them"
        client.tell(flow(1))
        await world.settle()
        assert client.offsets() == [0, 1, 2, 3], "it is repaid first"
        client.tell(flow(1))
        await world.settle()
        assert client.offsets() == [0, 1, 2, 3, 4, 5]
        await client.ask(nack((1, 1)))
        assert client.offsets()[6:] == []
        client.tell(flow(3))
        await world.settle()
        assert client.offsets()[6:] == [1, 6, 7]

    run(scenario)


def test_a_subscription_begins_at_its_initial_position() -> None:
    async def scenario(world: World) -> None:
        client = await ten_messages(world)
        await client.ask(subscribe("late", earliest=False))
        await client.ask(send(b"next", sequence=10))
        await world.restart()
        client = Client(world)
        await client.ask(subscribe("late", consumer=1, epoch=2))
        client.tell(flow(name="late"))
        await world.settle()
        assert client.offsets() == [10]

    run(scenario)


def test_a_transactions_messages_are_delivered_without_the_surplus() -> None:
    async def scenario(world: World) -> None:
        client = world.client
        await client.ask(subscribe(consumer=1))
        client.tell(flow())
        await client.ask(send(b"a", b"b", b"c", in_txn=T1))
        await client.ask(send(b"d", in_txn=T2))
        await client.ask(end(T1, counts={1: 2}))
        await client.ask(end(T2, common.ABORT))
        await client.ask(send(b"e"))
        assert client.messages() == [(0, b"a"), (1, b"b"), (2, b"e")]
        await client.ask(nack((1, 2)))
        assert client.messages()[3:] == [(1, b"b"), (2, b"e")]

    run(scenario)


def test_a_consumer_may_wait_for_what_it_has_aborted() -> None:
    """Otherwise what lies behind it comes first, and inputs are processed out of their order."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0", b"1", b"2"))
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.settle()
        await world.client.ask(ack((0, 0), in_txn=txn(1)))
        world.client.delivered.clear()
        again = subscribe(consumer=1, epoch=2)
        again.after_txn_ids.extend([txn(1).to_wire(), txn(2).to_wire()])
        assert (await world.client.ask(again)).waiting
        world.client.tell(flow())
        await world.settle()
        assert world.client.values() == []
        await world.client.ask(end(txn(1), common.ABORT, on="s"))
        assert world.client.values() == [b"0", b"1", b"2"]
        shared = subscribe("other", consumer=2, kind=wire.SHARED)
        shared.after_txn_ids.add().CopyFrom(txn(1).to_wire())
        with pytest.raises(InvalidArgument, match="after_txn_ids"):
            await world.client.ask(shared)

    run(scenario)


@pytest.mark.parametrize("kind", [wire.EXCLUSIVE, wire.FAILOVER])
def test_what_comes_again_keeps_its_order_whatever_its_redelivery_counts(kind: int) -> None:
    """Invariant 5: of one batch, what had come back more often went out before the rest."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(*(b"%d" % offset for offset in range(6))))
        client = world.client
        await client.ask(subscribe(consumer=1, kind=kind))
        client.tell(flow())
        await client.ask(ack((0, 0), (2, 2), (5, 5), in_txn=T1))
        await client.ask(end(T1, common.ABORT, on="s"))
        again = Client(world)
        await again.ask(subscribe(consumer=1, kind=kind, epoch=9))
        again.tell(flow())
        await world.settle()
        assert again.offsets() == list(range(6))
        counts = [
            batch.redelivery_count for deliver in again.delivered for batch in deliver.batches
        ]
        assert counts == [1, 0, 1, 0, 1]

    run(scenario)
