"""Plain sends: batches, order, repeats, back-pressure."""

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
    Client,
    ClientConfig,
    LogUnavailable,
    MessageId,
    MessageTooLarge,
    OutcomeUnknown,
    QuotaExceeded,
    SequenceGap,
    TopicNotFound,
    TxnSend,
)
from magnetar.messaging.sending.batching import partition_of_key
from magnetar_core.batch import decode
from magnetar_core.errors import DiskFull, InvalidArgument, UnsupportedVersion


def test_messages_of_one_moment_share_a_batch_and_get_ids_in_order() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        sent = await asyncio.gather(*(producer.send(b"%d" % n) for n in range(5)))
        assert sent == [MessageId(1, 0, n, 0) for n in range(5)]
        assert await producer.send(b"5") == MessageId(1, 5, 0, 0)
        assert len(partition.batches) == 2
        assert partition.messages == [b"%d" % n for n in range(6)]

    run(test)


def test_columns_travel_with_their_messages() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", codec="zstd")
        producer.send_nowait(b"a")
        producer.send_nowait(b"b", b"k", properties={"gate": "4"}, event_time_ms=5)
        producer.send_nowait(b"c")
        await producer.flush()
        columns = decode(partition.batches[0][2])
        assert columns.values() == [b"a", b"b", b"c"]
        assert columns.keys() == [None, b"k", None]
        assert columns.properties() == [{}, {"gate": "4"}, {}]
        assert [columns.event_time_ms(place) for place in range(3)] == [None, 5, None]

    run(test)


def test_keys_choose_partitions_and_the_rest_sticks_to_one_per_batch() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        partitions = cluster.topic("flights", 4)
        producer = await client.create_producer("flights", batch_messages_max=10)
        keys = [b"key-%d" % n for n in range(50)]
        await producer.send_many(keys, keys)
        await producer.flush()
        for number, partition in enumerate(partitions):
            assert all(partition_of_key(key, 4) == number for key in partition.messages)
            partition.messages.clear()
        for _ in range(40):
            producer.send_nowait(b"x")
        await producer.flush()
        assert [len(one.messages) for one in partitions] == [10, 10, 10, 10]

    run(test)


def test_a_refusal_does_not_speak_for_a_copy_on_a_link_that_broke() -> None:
    """It was stored after its sender had been told that nothing had happened."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        cluster.play.when("send").in_turn(DROP, LOSE, *[DiskFull()] * 3)
        sends = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(2)]
        for one in sends:
            with pytest.raises(OutcomeUnknown, match="by an earlier copy") as raised:
                await one
            assert isinstance(raised.value.__cause__, DiskFull)
        # One copy, one answer.
        with pytest.raises(DiskFull):
            await producer.send(b"2")

    run(test)


def test_a_refusal_does_not_speak_for_a_copy_that_was_under_way_in_a_pause() -> None:
    """Its link broke while the batch before it waited to be sent again, and it arrived later."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        cluster.play.when("send", sequence_id=0).once(LogUnavailable())
        cluster.play.when("send", sequence_id=1).in_turn(HOLD, DiskFull())
        sends = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(2)]
        await cluster.play.holds(1)
        # The refusal of the first batch was written before, and has arrived after a turn.
        await turns(1)
        cluster.net.break_links()
        assert await sends[0] == MessageId(1, 0, 0, 0)
        with pytest.raises(OutcomeUnknown, match="by an earlier copy") as raised:
            await sends[1]
        assert isinstance(raised.value.__cause__, DiskFull)
        cluster.play.release()
        assert partition.messages == [b"0", b"1"]

    run(test)


def test_a_batch_that_was_confirmed_is_not_refused_with_the_batch_before_it() -> None:
    """Its confirmation had arrived, and waited for that of the batch before: fuzzed seed 8543."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        cluster.play.when("send", sequence_id=0).in_turn(DROP, DiskFull())
        sends = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(3)]
        await until(lambda: len(partition.messages) == 3)
        await turns(2)
        cluster.net.break_links()
        with pytest.raises(OutcomeUnknown, match="by an earlier copy"):
            await sends[0]
        assert await asyncio.gather(*sends[1:]) == [MessageId(1, 1, 0, 0), MessageId(1, 2, 0, 0)]
        assert partition.messages == [b"0", b"1", b"2"]
        assert await producer.send(b"3") == MessageId(1, 3, 0, 0)

    run(test)


def test_a_copy_that_was_refused_behind_a_passing_refusal_leaves_no_doubt() -> None:
    """A gap tells that it had no effect, so the refusal of the next copy is the whole truth."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        cluster.play.when("send", sequence_id=0).once(LogUnavailable())
        cluster.play.when("send", sequence_id=1).in_turn(SequenceGap(), DiskFull())
        sends = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(2)]
        assert await sends[0] == MessageId(1, 0, 0, 0)
        with pytest.raises(DiskFull):
            await sends[1]

    run(test)


@pytest.mark.parametrize("fault", [LOSE, BREAK])
def test_batches_in_flight_are_sent_again_in_order_after_a_break(fault: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        cluster.play.when("send").on(3, 9, reaction=fault)
        producer = await client.create_producer("flights", batch_messages_max=2)
        for n in range(40):
            producer.send_nowait(b"%d" % n)
        await producer.flush()
        assert partition.messages == [b"%d" % n for n in range(40)]

    run(test)


def test_a_gap_behind_a_passing_refusal_is_closed_by_sending_again() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        cluster.play.when("send", sequence_id=2).in_turn(LogUnavailable(), LogUnavailable())
        producer = await client.create_producer("flights", batch_messages_max=2)
        await producer.send_many([b"%d" % n for n in range(20)])
        await producer.flush()
        assert partition.messages == [b"%d" % n for n in range(20)]

    run(test)


def test_a_gap_that_is_heard_of_before_its_cause_is_closed_too() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        cluster.play.when("send", sequence_id=2).once(HOLD)
        producer = await client.create_producer("flights", batch_messages_max=2)
        await producer.send_many([b"%d" % n for n in range(20)])
        await producer.flush()
        cluster.play.release()  # The late original is recognised as a repeat.
        await producer.send(b"20")
        assert partition.messages == [b"%d" % n for n in range(21)]

    run(test)


def test_a_lasting_refusal_fails_the_batch_and_all_behind_it_then_a_new_producer_goes_on() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        cluster.play.when("send", sequence_id=2).once(DiskFull())
        producer = await client.create_producer("flights", batch_messages_max=2)
        results = await asyncio.gather(
            *(producer.send(b"%d" % n) for n in range(6)), return_exceptions=True
        )
        assert [type(result) for result in results] == [MessageId] * 2 + [DiskFull] * 4
        await producer.flush()  # They were awaited: nothing is left to report.
        await producer.send(b"later")
        assert partition.messages == [b"0", b"1", b"later"]
        last = cluster.play.commands("send")[-1]
        assert last.producer_id != producer.producer_id
        assert last.sequence_id == 0

    run(test)


def test_failures_that_nobody_waited_for_surface_at_flush_once() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.play.when("send").always(DiskFull())
        producer = await client.create_producer("flights")
        producer.send_nowait(b"a")
        await producer.enqueue(b"b")
        with pytest.raises(DiskFull) as raised:
            await producer.flush()
        assert "2 messages" in raised.value.__notes__[0]
        await producer.flush()

    run(test)


def test_a_producer_that_the_broker_forgot_continues_as_another() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        await producer.send(b"a")
        partition.sequences.clear()
        await producer.send(b"b")
        assert partition.messages == [b"a", b"b"]

    run(test)


def test_what_may_have_arrived_is_not_sent_again_as_another_producer() -> None:
    """The broker has it, the link broke before it said so, and then it forgot the producer."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        await producer.send(b"a")
        cluster.play.scene(
            Expect("send", reaction=BREAK),
            Expect("send", reaction=lambda body: partition.sequences.clear()),
        )
        with pytest.raises(OutcomeUnknown) as raised:
            await producer.send(b"b")
        assert isinstance(raised.value.__cause__, SequenceGap)
        cluster.play.check()
        assert partition.messages == [b"a", b"b"]

    run(test)


def test_a_gap_at_the_first_sequence_is_an_error_and_no_loop() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.play.when("send").always(SequenceGap())
        producer = await client.create_producer("flights")
        with pytest.raises(SequenceGap):
            await producer.send(b"a")

    run(test)


def test_no_answer_in_time_is_an_unknown_outcome() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.play.when("send").always(DROP)
        producer = await client.create_producer("flights")
        with pytest.raises(OutcomeUnknown):
            await producer.send(b"a")

    run(test, dataclasses.replace(FAST, send_timeout_ms=20))


def test_a_message_beyond_the_limit_is_refused_before_it_is_sent() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer(
            "flights", batch_bytes_max=1_000, message_bytes_max=1 << 20
        )
        with pytest.raises(MessageTooLarge):
            await producer.send(b"x" * ((1 << 20) + 1))
        with pytest.raises(MessageTooLarge):
            await producer.send_many([b"x" * ((1 << 20) + 1), b"a"])
        with pytest.raises(MessageTooLarge, match="enqueue"):
            producer.send_nowait(b"x" * (1 << 20))
        await producer.send(b"y" * 5_000)  # A batch of its own.
        assert partition.messages == [b"y" * 5_000]
        assert len(cluster.play.commands("send")) == 1

    run(test)


def test_back_pressure_waits_or_refuses() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        cluster.play.when("send").always(HOLD)
        producer = await client.create_producer("flights", batch_messages_max=1)
        for _ in range(4):
            producer.send_nowait(b"x" * 300)
        with pytest.raises(QuotaExceeded):
            producer.send_nowait(b"refused")
        waiting = asyncio.ensure_future(producer.enqueue(b"waits"))
        await cluster.play.holds(4)
        assert not waiting.done()
        cluster.play.forget()
        cluster.play.release()
        await waiting
        await producer.flush()
        assert partition.messages[-1] == b"waits"
        assert len(partition.messages) == 5

    run(test, dataclasses.replace(FAST, pending_bytes_max=1_000))


def test_a_half_open_link_is_noticed_and_replaced() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        await producer.send(b"a")
        for link in cluster.net.links:
            link.half_open = True
        await producer.send(b"b")
        assert partition.messages == [b"a", b"b"]

    run(test, dataclasses.replace(FAST, request_timeout_ms=20))


def test_an_idle_half_open_link_is_noticed_too() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        for link in cluster.net.links:
            link.half_open = True
        cluster.publish("flights", [b"a"])
        assert (await consumer.receive()).value == b"a"

    run(test, dataclasses.replace(FAST, request_timeout_ms=20))


def test_a_silent_server_that_answers_hello_keeps_its_link() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        connects = cluster.net.connect_count
        await time_passes(0.06)
        assert cluster.net.connect_count == connects
        assert cluster.hello_count > 2

    run(test, dataclasses.replace(FAST, request_timeout_ms=20))


def test_cancelling_a_send_takes_nothing_back_and_disturbs_nobody() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        cluster.play.when("send").always(HOLD)
        producer = await client.create_producer("flights", linger_ms=0)
        one = asyncio.ensure_future(producer.send(b"a"))
        other = asyncio.ensure_future(producer.send(b"b"))
        await cluster.play.holds()
        one.cancel()
        cluster.play.release()
        assert await other == MessageId(1, 0, 1, 0)
        assert one.cancelled()
        assert partition.messages == [b"a", b"b"]

    run(test)


@pytest.mark.parametrize("when", ["gathered", "under way"])
def test_flush_tells_of_a_failure_whose_send_was_cancelled(when: str) -> None:
    """Nobody heard of it: the call did not wait any longer, and flush() thought that it did."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        sends: list[asyncio.Future[Any]] = []

        def refuse(body: object) -> object:
            if when == "under way":
                sends[0].cancel()
            return DiskFull()

        cluster.play.when("send").once(refuse)
        sends += [asyncio.ensure_future(producer.send(value)) for value in (b"a", b"b")]
        if when == "gathered":
            await turns(1)
            sends[0].cancel()
        with pytest.raises(DiskFull):
            await sends[1]
        with pytest.raises(DiskFull) as raised:
            await producer.flush()
        assert "1 messages" in raised.value.__notes__[0]
        assert sends[0].cancelled()
        await producer.flush()

    run(test)


def test_flush_tells_of_a_failure_that_its_cancelled_send_did_not_see() -> None:
    """The answer had come, and the call was cancelled before its task had the next turn."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        cluster.play.when("send").once(DiskFull())

        async def send_and_cancel_the_other() -> None:
            try:
                await producer.send(b"a")
            finally:
                other.cancel()

        one = asyncio.ensure_future(send_and_cancel_the_other())
        other = asyncio.ensure_future(producer.send(b"b"))
        with pytest.raises(DiskFull):
            await one
        with pytest.raises(asyncio.CancelledError):
            await other
        with pytest.raises(DiskFull):
            await producer.flush()

    run(test)


def test_what_is_no_bytes_is_refused_at_once() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        wrong: Any = "text"
        with pytest.raises(InvalidArgument):
            producer.send_nowait(wrong)
        with pytest.raises(InvalidArgument):
            await producer.send_many([b"a", wrong])
        with pytest.raises(InvalidArgument):
            await producer.send(b"a", wrong)
        with pytest.raises(InvalidArgument):
            await producer.send(b"a", partition=1)
        await producer.flush()
        assert not cluster.play.commands("send")

    run(test)


def test_no_topic_no_producer() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        with pytest.raises(TopicNotFound):
            await client.create_producer("nowhere")

    run(test)


def test_bulk_sends_are_cut_into_batches() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", batch_bytes_max=5_000, linger_ms=1)
        values = [b"%05d" % n + b"x" * (n % 300) for n in range(1_000)]
        await producer.send_many(values)
        await producer.flush()
        assert partition.messages == values
        assert len(partition.batches) > 20

    run(test)


def test_a_transactional_send_has_a_receipt_and_no_id() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        async with client.transaction() as txn:
            assert await producer.send(b"a", txn=txn) == TxnSend(txn.txn_id, 0, 0)
            assert await producer.send(b"b", txn=txn) == TxnSend(txn.txn_id, 0, 1)

    run(test)


def test_config_is_checked() -> None:
    with pytest.raises(InvalidArgument):
        ClientConfig(backoff_ms_min=10, backoff_ms_max=5)


def test_what_is_no_bytes_is_refused_everywhere() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        for bad in ([b"text"], "text", 7):
            with pytest.raises(InvalidArgument, match="bytes"):
                await producer.send(bad)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="bytes"):
                await producer.enqueue(bad)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="bytes"):
                producer.send_nowait(bad)  # type: ignore[arg-type]
        # It is taken too; annotations name what nobody can change meanwhile.
        await producer.send(bytearray(b"x"))  # type: ignore[arg-type]
        assert partition.messages == [b"x"]

    run(test)


def test_what_was_sent_is_unknown_when_the_server_takes_the_client_no_more() -> None:
    """The error of the next link says "no effect", which holds for that link only."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        cluster.play.when("send").once(BREAK)
        cluster.play.when("hello").always(UnsupportedVersion())
        with pytest.raises(OutcomeUnknown) as raised:
            await producer.send(b"x")
        assert isinstance(raised.value.__cause__, UnsupportedVersion)
        assert partition.messages == [b"x"]
        with pytest.raises(UnsupportedVersion):
            await producer.send(b"y")

    run(test)
