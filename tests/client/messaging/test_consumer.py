"""Consumers: permits, acks, redelivery, reattachment."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from tests.client.fakes import FAST, FakeCluster, run
from tests.playbook import BREAK, DROP, HOLD, LOSE, Expect
from tests.virtual_time import time_passes
from tests.waiting import turns, until

from magnetar import (
    ChecksumMismatch,
    Client,
    ClientClosed,
    ConsumerBusy,
    DataLoss,
    DeadLetterPolicy,
    Gone,
    MessageId,
    OutcomeUnknown,
    SubscriptionType,
)
from magnetar_core.batch import encode
from magnetar_core.errors import InvalidArgument, LogUnavailable, QuotaExceeded
from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2


async def values_of(consumer: Any, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        values += [one.value for one in await consumer.receive_batch(count - len(values))]
    return values


def test_messages_carry_what_was_sent_with_them() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        await producer.send(b"v", b"k", properties={"a": "b"}, event_time_ms=3)
        async with client.transaction() as txn:
            await producer.send(b"w", txn=txn)
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        message = await consumer.receive()
        assert (message.value, message.key, message.properties) == (b"v", b"k", {"a": "b"})
        assert (message.event_time_ms, message.txn_id, message.redelivery_count) == (3, None, 0)
        assert message.message_id == MessageId(1, 0, 0, 0)
        second = await consumer.receive()
        assert (second.value, second.key, second.event_time_ms) == (b"w", None, None)
        assert second.txn_id == txn.txn_id
        with pytest.raises(TimeoutError):
            await consumer.receive(timeout_s=0.001)

    run(test)


def test_permits_are_topped_up_at_half_of_the_queue() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        for n in range(30):
            cluster.publish("flights", [b"%d" % n])
        consumer = await client.subscribe(
            "flights", "s", initial_position="earliest", receiver_queue_messages=10
        )
        assert await values_of(consumer, 4) == [b"0", b"1", b"2", b"3"]
        assert [one.permits for one in cluster.play.commands("flow")] == [10]
        await consumer.receive()
        await cluster.play.came("flow", 2)
        assert cluster.play.commands("flow")[1].permits == 5
        assert await values_of(consumer, 25) == [b"%d" % n for n in range(5, 30)]

    run(test)


def test_excluded_messages_are_neither_handed_out_nor_counted() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"%d" % n for n in range(6)])
        await client.admin.subscriptions.create("flights", "s", initial_position="earliest")
        cluster.cursors["flights", "s", 0].acked = {0, 3}
        consumer = await client.subscribe("flights", "s", receiver_queue_messages=8)
        pieces = await consumer.receive_columns()
        assert [one.values() for one in pieces] == [[b"1", b"2"], [b"4", b"5"]]
        assert pieces[1].first_offset == 4
        await cluster.play.came("flow", 2)
        assert cluster.play.commands("flow")[1].permits == 4
        for piece in pieces:
            await consumer.ack_many(piece)
        assert cluster.cursors["flights", "s", 0].acked == set(range(6))

    run(test)


def test_partitions_take_turns() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights", 3)
        for _ in range(2):
            for partition in range(3):
                cluster.publish("flights", [b"%d" % partition] * 2, partition)
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        assert await values_of(consumer, 12) == [b"0", b"0", b"1", b"1", b"2", b"2"] * 2

    run(test)


def test_after_a_break_nothing_held_is_received_twice_and_nothing_is_missed() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        for n in range(10):
            cluster.publish("flights", [b"%d" % n])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        held = await consumer.receive_batch(3)
        await consumer.ack(held[0])
        cluster.net.break_links()
        assert await values_of(consumer, 7) == [b"%d" % n for n in range(3, 10)]
        assert not await consumer.receive_batch(10, timeout_s=0.005)
        await consumer.ack_many(held)
        (first, second) = [one.consumer_id for one in cluster.play.commands("subscribe")]
        assert first == second
        assert cluster.cursors["flights", "s", 0].acked == {0, 1, 2}

    run(test)


@pytest.mark.parametrize("fault", [LOSE, BREAK])
def test_an_ack_survives_a_break(fault: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"a", b"b"])
        cluster.play.when("ack").once(fault)
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        await consumer.ack_many(await consumer.receive_batch(2))
        assert cluster.cursors["flights", "s", 0].acked == {0, 1}
        assert not await consumer.receive_batch(10, timeout_s=0.005)

    run(test)


def test_many_acks_travel_in_few_commands() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"x"] * 500)
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        for message in await consumer.receive_batch(500):
            consumer.ack_nowait(message)
        await consumer.flush_acks()
        assert cluster.cursors["flights", "s", 0].acked == set(range(500))
        (ack,) = cluster.play.commands("ack")
        assert [(one.first, one.last) for one in ack.ranges] == [(0, 499)]

    run(test)


def test_cumulative_acks() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"x"] * 9)
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        messages = await consumer.receive_batch(9)
        await consumer.ack_cumulative(messages[2])
        assert cluster.cursors["flights", "s", 0].acked == {0, 1, 2}
        await consumer.ack(messages[4])
        async with client.transaction() as txn:
            await consumer.ack_cumulative(messages[6], txn=txn)
        last = cluster.play.commands("ack")[-1]
        assert last.ack_type == broker_pb2.CommandAck.CUMULATIVE
        assert [(one.first, one.last) for one in last.ranges] == [(3, 3), (5, 6)]
        assert cluster.cursors["flights", "s", 0].acked == set(range(7))
        for kind in (SubscriptionType.SHARED, "key_shared"):
            shared = await client.subscribe("flights", f"t {kind}", type=kind)
            with pytest.raises(InvalidArgument):
                await shared.ack_cumulative(messages[0])
        assert cluster.play.commands("subscribe")[-1].type == broker_pb2.KEY_SHARED

    run(test)


def test_a_nack_brings_the_message_again_later_each_time() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"a"])
        consumer = await client.subscribe(
            "flights", "s", initial_position="earliest", nack_delay_ms=1
        )
        for count in range(3):
            message = await consumer.receive()
            assert (message.value, message.redelivery_count) == (b"a", count)
            consumer.nack(message)
        await consumer.ack(await consumer.receive())

    run(test)


def test_acks_of_an_aborted_transaction_come_again_once() -> None:
    """PIP-31, Broker - Acknowledgements: back to PENDING."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        for n in range(4):
            cluster.publish("flights", [b"%d" % n])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        messages = await consumer.receive_batch(4)
        txn = await client.begin_transaction()
        await consumer.ack_many(messages[:2], txn=txn)
        assert not await consumer.receive_batch(4, timeout_s=0.002)
        await txn.abort()
        assert await values_of(consumer, 2) == [b"0", b"1"]
        assert not await consumer.receive_batch(4, timeout_s=0.005)

    run(test)


def test_an_abort_that_is_told_while_a_consumer_attaches_is_waited_for_by_the_next() -> None:
    """docs/design/0001-protocol.md, Redelivery and the client: in order, also then.

    What the attachment under way would bring lies behind what the transaction gives back.
    """

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        for n in range(4):
            cluster.publish("flights", [b"%d" % n])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        txn = await client.begin_transaction()
        wire = txn.txn_id.to_wire()

        def end(body: Any) -> None:
            assert list(body.after_txn_ids) == [wire]
            cluster.end(txn.txn_id, commit=False)

        # The broker hears of the abort later than the client does.
        aborting = transaction_pb2.CommandEndTxnResponse(txn_id=wire, status=common_pb2.ABORTING)
        cluster.play.when("end_txn").once(aborting)
        cluster.play.when("ack").in_turn(BREAK, DROP)
        cluster.play.when("subscribe").in_turn(HOLD, end)
        consumer.ack_nowait(await consumer.receive(), txn=txn)
        await cluster.play.holds()
        await txn.abort()
        cluster.play.release()
        assert await values_of(consumer, 4) == [b"0", b"1", b"2", b"3"]
        assert not await consumer.receive_batch(1, timeout_s=0.005)

    run(test)


def test_acks_that_an_abort_dropped_are_asked_for_with_a_nack() -> None:
    """docs/design/0001-protocol.md, Redelivery and the client: never stuck."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"a", b"b"])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        cluster.play.when("ack").always(HOLD)
        txn = await client.begin_transaction()
        consumer.ack_nowait(await consumer.receive_batch(2), txn=txn)
        await cluster.play.holds()
        await txn.abort()
        assert await values_of(consumer, 2) == [b"a", b"b"]

    run(test)


def test_a_copy_dropped_while_its_ack_was_undecided_is_asked_for_after_the_abort() -> None:
    """docs/design/0001-protocol.md, Redelivery and the client: never twice in one transaction."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"a"])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        txn = await client.begin_transaction()
        # Of the abort the client hears by its own.
        cluster.play.when("describe_txn").always(HOLD)
        cluster.play.when("ack").once(LOSE)
        await consumer.ack(await consumer.receive(), txn=txn)
        # The broker delivered it to the new attachment; then the ack arrived; then it aborts on
        # its own, and delivers once more, before the client hears of it.
        cluster.end(txn.txn_id, commit=False)
        cluster.dispatch()
        assert not await consumer.receive_batch(1, timeout_s=0.005)
        await txn.abort()
        assert await values_of(consumer, 1) == [b"a"]
        assert not await consumer.receive_batch(1, timeout_s=0.005)

    run(test)


def test_a_transaction_may_be_tried_again_with_the_same_messages() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        for n in range(4):
            cluster.publish("flights", [b"%d" % n])
        consumer = await client.subscribe(
            "flights", "s", initial_position="earliest", receiver_queue_messages=4
        )
        messages = await consumer.receive_batch(3)
        first = await client.begin_transaction()
        await consumer.ack_many(messages, txn=first)
        await first.abort()
        await time_passes(0.002)  # The copies are queued.
        async with client.transaction() as second:
            await consumer.ack_many(messages, txn=second)
        assert await values_of(consumer, 1) == [b"3"]
        assert not await consumer.receive_batch(4, timeout_s=0.005)
        assert cluster.cursors["flights", "s", 0].acked == {0, 1, 2}

    run(test)


def test_what_an_expired_transaction_acknowledged_comes_again_though_nobody_asked() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"a"])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        txn = await client.begin_transaction(timeout_s=0.001)
        await consumer.ack(await consumer.receive(), txn=txn)
        cluster.end(txn.txn_id, commit=False)
        cluster.dispatch()
        assert (await consumer.receive()).value == b"a"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("magnetar.transactions.outcome_inquiry.EXPIRY_GRACE_MS", 1)
        patch.setattr("magnetar.transactions.outcome_inquiry.RESOLVE_PERIOD_MS", 1)
        run(test)


def test_a_seek_makes_what_was_held_count_no_more() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"a", b"b", b"c"])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        messages = await consumer.receive_batch(3)
        await consumer.ack(messages[0])
        assert await consumer.seek(message_id=messages[1].message_id) == {0: 1}
        assert await values_of(consumer, 2) == [b"b", b"c"]
        assert await client.admin.subscriptions.seek("flights", "s", offset=0) == {0: 0}
        assert await values_of(consumer, 3) == [b"a", b"b", b"c"]
        with pytest.raises(InvalidArgument):
            await consumer.seek()

    run(test)


def test_what_the_broker_cannot_read_ends_the_consumer_with_the_reason() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        consumer = await client.subscribe("flights", "s")
        receiving = asyncio.create_task(consumer.receive())
        cluster.close_consumers(DataLoss("messages of transaction 0:1:7 are missing"))
        with pytest.raises(DataLoss, match="0:1:7"):
            await receiving
        assert len(cluster.play.commands("subscribe")) == 1, "attaching again would not help"

    run(test)


def test_a_busy_subscription_is_asked_again_until_time_runs_out() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.play.scene(
            Expect("subscribe", reaction=LogUnavailable()),
            Expect("subscribe", reaction=ConsumerBusy()),
            Expect("subscribe"),
        )
        async with await client.subscribe("flights", "s"):
            assert len(cluster.play.commands("subscribe")) == 3
        cluster.play.forget()
        cluster.play.when("subscribe").always(ConsumerBusy())
        with pytest.raises(ConsumerBusy):
            await client.subscribe("flights", "s")

    run(test, dataclasses.replace(FAST, operation_timeout_ms=300))


def test_a_deleted_topic_ends_its_consumers() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        consumer = await client.subscribe("flights", "s")
        receiving = asyncio.ensure_future(consumer.receive())
        cluster.play.when("subscribe").always(Gone())
        cluster.net.break_links()
        with pytest.raises(Gone):
            await receiving

    run(test)


def test_a_damaged_batch_is_reported_and_asked_for_again() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        good = encode([b"a"])
        bad = good[:-1] + bytes([good[-1] ^ 1])
        partition.append(good)
        partition.batches[0] = (0, 1, bad, None)
        consumer = await client.subscribe(
            "flights", "s", initial_position="earliest", nack_delay_ms=1
        )
        with pytest.raises(ChecksumMismatch):
            await consumer.receive()
        partition.batches[0] = (0, 1, good, None)
        assert (await consumer.receive()).value == b"a"

    run(test)


@pytest.mark.parametrize("another_is_under_way", [False, True])
def test_acks_without_an_answer_end_when_the_client_closes(another_is_under_way: bool) -> None:
    """They hung for ever if another command was under way, or if theirs had not begun yet."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"a", b"b", b"c"])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        first, second, third = await consumer.receive_batch(3)
        cluster.play.when("ack").always(HOLD)
        if another_is_under_way:
            early = asyncio.ensure_future(consumer.ack(first))
            await cluster.play.holds()
        late = asyncio.ensure_future(consumer.ack(second))
        consumer.ack_nowait(third)
        flush = asyncio.ensure_future(consumer.flush_acks())
        if another_is_under_way:
            await turns()
            await client.close()
            # What was sent may count.
            with pytest.raises(OutcomeUnknown):
                await early
        else:
            # As the close does in the end: here, in the turn of the loop in which the ack begins.
            client._cluster.close()
            await asyncio.ensure_future(client._runtime.cancel_all())
        with pytest.raises(ClientClosed):
            await late
        with pytest.raises(ClientClosed):
            await flush

    run(test)


def test_closing_confirms_acks_and_gives_the_rest_back() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"a"])
        cluster.publish("flights", [b"b"])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        messages = await consumer.receive_batch(2)
        consumer.ack_nowait(messages[0])
        waiting = asyncio.ensure_future(consumer.receive())
        await turns()
        await consumer.close()
        with pytest.raises(ClientClosed):
            await waiting
        with pytest.raises(ClientClosed):
            await consumer.ack(messages[1])
        assert cluster.cursors["flights", "s", 0].acked == {0}
        async with await client.subscribe("flights", "s") as second:
            message = await second.receive()
            assert (message.value, message.redelivery_count) == (b"b", 1)

    run(test)


def test_a_close_that_is_cancelled_ends_a_waiting_receive() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        consumer = await client.subscribe("flights", "s")
        waiting = asyncio.ensure_future(consumer.receive())
        await turns()
        closing = asyncio.ensure_future(consumer.close())
        # One turn: it has begun, and its partitions have not.
        await turns()
        closing.cancel()
        with pytest.raises(ClientClosed):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await closing

    run(test)


def test_reading_needs_no_subscription() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        for n in range(5):
            cluster.publish("flights", [b"%d" % (2 * n), b"%d" % (2 * n + 1)])
        assert [one.value async for one in client.read("flights")] == [b"%d" % n for n in range(10)]
        some = [one async for one in client.read("flights", start=3, end=6)]
        assert [one.value for one in some] == [b"3", b"4", b"5"]
        assert some[0].message_id == MessageId(1, 2, 1, 0)
        following = client.read("flights", start=9, follow_period_s=0.001)
        assert (await anext(following)).value == b"9"
        cluster.publish("flights", [b"more"])
        assert (await anext(following)).value == b"more"
        await following.aclose()

    run(test)


def test_a_nack_can_have_a_delay_of_its_own() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"a", b"b"])
        consumer = await client.subscribe(
            "flights", "s", initial_position="earliest", nack_delay_ms=1, nack_delay_ms_max=1
        )
        late, soon = await consumer.receive_batch(2)
        consumer.nack(late, delay_s=0.5)
        consumer.nack(soon)
        assert (await consumer.receive(timeout_s=0.3)).value == b"b"
        assert (await consumer.receive(timeout_s=2)).value == b"a"

    run(test)


def test_acks_that_gather_while_one_is_under_way_follow_it_at_once() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"a", b"b"])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        first, second = await consumer.receive(), await consumer.receive()
        cluster.play.when("ack").once(HOLD)
        consumer.ack_nowait(first)
        await cluster.play.holds()
        consumer.ack_nowait(second)
        cluster.play.release()
        # No later ack has to take them along.
        await until(lambda: cluster.cursors["flights", "s", 0].acked == {0, 1})

    run(test)


def test_what_comes_back_too_often_moves_to_the_dead_letter_topic() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        await producer.send(b"poison", b"k", properties={"a": "b"}, event_time_ms=3)
        await producer.send(b"fine")
        consumer = await client.subscribe(
            "flights",
            "s",
            initial_position="earliest",
            nack_delay_ms=1,
            dead_letter=DeadLetterPolicy(redeliveries_max=2),
        )
        seen: list[int] = []
        while len(seen) < 4:
            message = await consumer.receive()
            seen.append(message.redelivery_count)
            if message.value == b"poison":
                consumer.nack(message)
            else:
                await consumer.ack(message)
        assert sorted(seen) == [0, 0, 1, 2], "once, and two times again"
        moving = asyncio.create_task(consumer.receive())
        dead = await client.subscribe("flights-s-DLQ", "look", initial_position="earliest")
        letter = await dead.receive()
        assert (letter.value, letter.key, letter.event_time_ms) == (b"poison", b"k", 3)
        assert letter.txn_id is not None, "the copy and the ack count together"
        assert letter.properties == {
            "a": "b",
            "magnetar-origin-topic": "flights",
            "magnetar-origin-subscription": "s",
            "magnetar-origin-message-id": "1:0:0@0",
            "magnetar-redelivery-count": "3",
        }
        await until(lambda: cluster.cursors["flights", "s", 0].acked == {0, 1})
        moving.cancel()

    run(test)


def test_a_dead_letter_whose_move_cannot_begin_comes_again() -> None:
    """Nothing was acknowledged, so no abort brings it back: its consumer has to ask for it."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"poison"])
        too_many = QuotaExceeded("too many")
        cluster.play.when("new_txn").in_turn(too_many, too_many)
        consumer = await client.subscribe(
            "flights",
            "s",
            initial_position="earliest",
            nack_delay_ms=1,
            nack_delay_ms_max=1,
            dead_letter=DeadLetterPolicy(redeliveries_max=0, topic="morgue"),
        )
        consumer.nack(await consumer.receive())
        moving = asyncio.create_task(consumer.receive())
        dead = await client.subscribe("morgue", "look", initial_position="earliest")
        letter = await dead.receive(timeout_s=10)
        cluster.play.check()
        assert letter.value == b"poison"
        assert letter.properties["magnetar-redelivery-count"] == "3"
        moving.cancel()

    run(test)


def test_a_dead_letter_that_cannot_move_stays() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"poison"])
        too_much = QuotaExceeded("too much")
        cluster.play.when("send").in_turn(too_much, too_much)
        consumer = await client.subscribe(
            "flights",
            "s",
            initial_position="earliest",
            nack_delay_ms=1,
            nack_delay_ms_max=1,
            dead_letter=DeadLetterPolicy(redeliveries_max=0, topic="morgue"),
        )
        consumer.nack(await consumer.receive())
        moving = asyncio.create_task(consumer.receive())
        dead = await client.subscribe("morgue", "look", initial_position="earliest")
        assert (await dead.receive()).value == b"poison"
        cluster.play.check()
        with pytest.raises(TimeoutError):
            await dead.receive(timeout_s=0.05)
        moving.cancel()

    run(test)


def test_a_partition_that_is_named_twice_has_one_receiver() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t", 3)
        consumer = await client.subscribe("t", "s", partitions=[2, 0, 2, 2])
        assert consumer.partitions == (2, 0)
        attached = [one.subscription.partition for one in cluster.play.commands("subscribe")]
        assert sorted(attached) == [0, 2]

    run(test)
