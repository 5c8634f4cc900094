"""The ready-made loop, and what it is made of: docs/design/0003-groups.md, The client; KIP-447."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.fakes import FAST, FakeCluster, run
from tests.client.groups.test_group_consumer import GROUP, gather, join, orders
from tests.playbook import HOLD
from tests.virtual_time import time_passes
from tests.waiting import turns, until

from magnetar import (
    Client,
    CommitRefused,
    GroupConsumer,
    IllegalGeneration,
    InvalidArgument,
    InvalidTxnState,
    Message,
    Output,
    PoisonMessage,
    ProcessSummary,
    ProducerFenced,
    TopicNotFound,
    TopicPartition,
    offsets,
    process,
)
from magnetar_core.errors import LogUnavailable, TransactionConflict
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

P0 = TopicPartition("orders", 0)
Test = Callable[[FakeCluster, Client], Coroutine[Any, Any, None]]


def echo(message: Message) -> list[Output]:
    return [Output("out", message.value, message.key)]


def out(cluster: FakeCluster) -> list[bytes]:
    return cluster.topics["out"][1][0].messages


async def process_all(
    cluster: FakeCluster,
    consumer: GroupConsumer,
    producer: Any,
    count: int,
    transform: Any = echo,
    **options: Any,
) -> ProcessSummary:
    """Until so many outputs are there."""
    stop = asyncio.Event()
    options.setdefault("batch_wait_s", 0.0)
    working = asyncio.create_task(process(consumer, transform, producer, stop=stop, **options))
    await until(lambda: len(out(cluster)) >= count or working.done())
    stop.set()
    return await working


def test_the_loop_of_the_kip() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        cluster.topic("out")
        consumer = await join(client)
        producer = client.transactional_producer()
        with pytest.raises(InvalidTxnState, match="needs a transactional id"):
            await producer.init()
        await producer.init_transactions(consumer)
        while len(out(cluster)) < 6:
            messages = await consumer.poll(1)
            await producer.begin()
            for message in messages:
                await producer.enqueue("out", message.value)
            await producer.send_offsets_to_transaction(offsets(messages))
            await producer.commit()
        assert sorted(out(cluster)) == [b"%d-%d" % (p, n) for p in range(2) for n in range(3)]
        assert cluster.cursors["orders", GROUP, 0].acked == {0, 1, 2}
        await producer.close()

    run(test)


def test_offsets_need_a_consumer_and_an_open_transaction() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        producer = client.transactional_producer()
        with pytest.raises(InvalidTxnState):
            await producer.send_offsets_to_transaction({P0: 1})
        await producer.begin()
        with pytest.raises(InvalidTxnState, match="init_transactions"):
            await producer.send_offsets_to_transaction({P0: 1})
        await producer.abort()
        consumer = await join(client)
        await gather(consumer, 3)
        await producer.init_transactions(consumer)
        # What was given before is void, and comes again.
        messages = await gather(consumer, 6)
        await producer.begin()
        with pytest.raises(InvalidArgument, match="beyond"):
            await producer.send_offsets_to_transaction({P0: 99})
        with pytest.raises(CommitRefused, match="beyond"):
            await producer.commit()
        await producer.begin()
        await producer.send_offsets_to_transaction(offsets(messages))
        await producer.commit()
        await producer.begin()
        with pytest.raises(IllegalGeneration):
            await producer.send_offsets_to_transaction({TopicPartition("orders", 7): 1})
        with pytest.raises(Exception, match="aborted"):
            await producer.commit()

    run(test)


def test_init_transactions_after_a_fence_goes_on() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        cluster.topic("out")
        consumer = await join(client)
        one = client.transactional_producer("worker")
        other = client.transactional_producer("worker")
        await one.init_transactions(consumer)
        await one.begin()
        await one.send("out", b"never")
        await other.init_transactions(consumer)
        with pytest.raises(ProducerFenced):
            await one.commit()
        with pytest.raises(InvalidTxnState, match="init_transactions"):
            await one.begin()
        await one.init_transactions(consumer)
        await one.begin()
        await one.send("out", b"once")
        # Open, it is aborted.
        await one.init_transactions(consumer)
        await one.begin()
        await one.send("out", b"twice")
        await one.commit()
        assert out(cluster) == [b"twice"]

    run(test)


def test_init_transactions_that_is_cancelled_leaves_no_transaction_open() -> None:
    """The next call raised an AssertionError: fuzzed seed 8532."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        consumer = await join(client)
        producer = client.transactional_producer()
        await producer.begin()
        await producer.acknowledge(consumer, (await gather(consumer, 1))[:1])
        cluster.play.when("end_txn").always(HOLD)
        restarting = asyncio.create_task(producer.init_transactions(consumer))
        await cluster.play.holds(1)
        restarting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await restarting
        for call in (producer.send_offsets_to_transaction({P0: 1}), producer.begin()):
            with pytest.raises(InvalidTxnState, match="init_transactions"):
                await call
        cluster.play.forget()
        await producer.init_transactions(consumer)
        await producer.begin()
        await producer.abort()

    run(test)


def test_an_id_is_needed_for_two_phase_commit() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        for options in ({"two_phase_commit": True}, {"transactional_id": ""}):
            with pytest.raises(InvalidArgument):
                client.transactional_producer(**options)

    run(test)


@pytest.mark.parametrize("transactional_id", [None, "worker"])
def test_each_message_is_processed_once_in_order(transactional_id: str | None) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1, count=50)
        cluster.topic("out")
        consumer = await join(client)
        producer = client.transactional_producer(transactional_id)

        async def twice(message: Message) -> list[Output]:
            await turns()
            return [*echo(message), Output("out", b"+" + message.value)]

        summary = await process_all(
            cluster, consumer, producer, 100, twice, batch_messages_max=7, batch_wait_s=0.001
        )
        assert out(cluster)[::2] == [b"0-%d" % n for n in range(50)]
        assert (summary.messages_in, summary.messages_out) == (50, 100)
        assert summary.batches >= 8
        assert (summary.aborted, summary.fenced, summary.dead_lettered) == (0, 0, 0)

    run(test)


TROUBLES: dict[str, tuple[str, Any, int]] = {
    "the broker is away": ("ack", LogUnavailable(), 0),
    "the partition went elsewhere": ("ack", IllegalGeneration(), 1),
    "somebody acknowledged it": ("ack", TransactionConflict(), 1),
    "its timeout comes first": ("end_txn", "expire", 0),
    "the coordinator is away": ("new_txn", LogUnavailable(), 0),
    "the answer to the commit was lost": ("end_txn", "drop", 0),
    "a link breaks before the commit": ("end_txn", "lose", 0),
    "a link breaks after the commit": ("end_txn", "break", 0),
    "a link breaks before an output": ("send", "lose", 0),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_whatever_happens_each_counts_once_and_in_order(trouble: str) -> None:
    command, action, fenced = TROUBLES[trouble]

    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1, count=20)
        cluster.topic("out")
        consumer = await join(client)
        seen = 0

        def script(name: str, body: Any) -> object:
            nonlocal seen
            if name != command or (name == "end_txn" and body.txn_action != common_pb2.COMMIT):
                return None
            seen += 1
            if seen == 2 and action == "expire":
                cluster.end(TxnID.from_wire(body.txn_id), commit=False)
                return None
            return action if seen == 2 else None

        cluster.play.improvise = script
        producer = client.transactional_producer()
        summary = await process_all(cluster, consumer, producer, 20, batch_messages_max=3)
        assert out(cluster) == [b"0-%d" % n for n in range(20)]
        assert seen > 2
        assert summary.messages_in == 20
        assert summary.fenced == fenced

    run(test, dataclasses.replace(FAST, commit_timeout_ms=200, abort_timeout_ms=50))


def test_what_is_lost_is_dropped_and_the_rest_goes_on() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=2, count=10)
        cluster.topic("out")
        consumer = await join(client)
        taken = False

        async def transform(message: Message) -> list[Output]:
            nonlocal taken
            if message.value == b"0-5" and not taken:
                taken = True
                cluster.take_away(GROUP, P0)
                await time_passes(0.01)
            return echo(message)

        producer = client.transactional_producer()
        summary = await process_all(cluster, consumer, producer, 20, transform)
        for partition in range(2):
            mine = [one for one in out(cluster) if one.startswith(b"%d-" % partition)]
            assert mine == [b"%d-%d" % (partition, n) for n in range(10)]
        assert summary.fenced == 1
        assert summary.messages_in == 20

    run(test)


def test_a_transaction_that_timed_out_comes_again_but_not_for_ever() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        cluster.topic("out")
        consumer = await join(client)

        cluster.play.when("end_txn", txn_action=common_pb2.COMMIT).always(
            lambda body: cluster.end(TxnID.from_wire(body.txn_id), commit=False)
        )
        with pytest.raises(InvalidTxnState):
            await process(consumer, echo, client.transactional_producer(), batch_wait_s=0)
        assert out(cluster) == []

    run(test)


def test_poison_without_a_place_for_it_stops_and_nothing_counts() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        cluster.topic("out")
        consumer = await join(client)
        attempts: list[bytes] = []

        def transform(message: Message) -> list[Output]:
            attempts.append(message.value)
            if message.value == b"0-1":
                raise ZeroDivisionError("by hand")
            return echo(message)

        producer = client.transactional_producer()
        with pytest.raises(PoisonMessage, match="orders") as caught:
            await process(consumer, transform, producer, attempts_max=2, batch_wait_s=0)
        assert caught.value.poison.value == b"0-1"
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert attempts.count(b"0-1") == 2
        assert out(cluster) == []
        # All of it comes again.
        assert [one.offset for one in await gather(consumer, 3)] == [0, 1, 2]

    run(test)


def test_poison_moves_within_the_transaction() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1, count=4)
        cluster.topic("out")
        consumer = await join(client)

        def transform(message: Message) -> Any:
            if message.value == b"0-1":
                return [b"no output"]
            if message.value == b"0-2":
                raise ZeroDivisionError("by hand")
            return echo(message)

        producer = client.transactional_producer()
        summary = await process_all(
            cluster, consumer, producer, 2, transform, dead_letter="dead", attempts_max=1
        )
        assert out(cluster) == [b"0-0", b"0-3"]
        assert (summary.messages_in, summary.messages_out, summary.dead_lettered) == (4, 2, 2)
        letters = [one async for one in client.read("dead")]
        assert [letter.value for letter in letters] == [b"0-1", b"0-2"]
        assert letters[1].properties["magnetar-origin-topic"] == "orders"
        assert "by hand" in letters[1].properties["magnetar-dead-letter-reason"]

    run(test)


def test_a_topic_that_is_not_there_ends_the_loop() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        consumer = await join(client)
        with pytest.raises(TopicNotFound):
            await process(consumer, echo, client.transactional_producer())
        assert all(
            transaction["status"] == common_pb2.ABORTED
            for transaction in cluster.transactions.values()
        )

    run(test)


@pytest.mark.parametrize(
    "options", [{"batch_messages_max": 0}, {"attempts_max": 0}, {"batch_wait_s": -1}]
)
def test_settings_are_checked(options: dict[str, Any]) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster)
        consumer = await join(client)
        with pytest.raises(InvalidArgument):
            await process(consumer, echo, client.transactional_producer(), **options)

    run(test)


def test_a_signal_ends_it_after_the_batch() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        cluster.topic("out")
        consumer = await join(client)
        before = signal.getsignal(signal.SIGTERM)
        working = asyncio.create_task(
            process(consumer, echo, client.transactional_producer(), batch_wait_s=0)
        )
        await until(lambda: len(out(cluster)) == 3)
        os.kill(os.getpid(), signal.SIGTERM)
        summary = await working
        assert summary.messages_in == 3
        assert signal.getsignal(signal.SIGTERM) is before

    run(test)


def test_a_cancelled_loop_leaves_nothing_open() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        orders(cluster, partitions=1)
        cluster.topic("out")
        consumer = await join(client)
        stuck = asyncio.Event()

        async def transform(message: Message) -> list[Output]:
            stuck.set()
            await asyncio.Event().wait()
            return []

        working = asyncio.create_task(process(consumer, transform, client.transactional_producer()))
        await stuck.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await until(
            lambda: all(t["status"] == common_pb2.ABORTED for t in cluster.transactions.values())
        )

    run(test)
