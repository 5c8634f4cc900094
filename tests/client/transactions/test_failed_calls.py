"""A send or an ack that does not succeed makes its transaction fail, whatever the reason was.

Half of a transaction was committed by programs that logged the error and went on. Source:
KafkaProducer.doSend, which puts the transaction into an abortable error; KAFKA-9279.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.fakes import BROKER_ADDRESS, REAL_TIME, FakeCluster, connect, run
from tests.playbook import HOLD
from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar import (
    BytesColumn,
    Client,
    ClientClosed,
    ClientConfig,
    ColumnBatch,
    CommitRefused,
    Consumer,
    IllegalGeneration,
    InvalidTxnState,
    LogUnavailable,
    MessageId,
    MessageTooLarge,
    OutcomeUnknown,
    OutOfRange,
    Producer,
    QuotaExceeded,
    TopicNotFound,
    TopicPartition,
    Transaction,
    TransactionStatus,
    blocking,
)
from magnetar.message import Message
from magnetar_core.errors import InvalidArgument, MagnetarError

Begin = Callable[[Client], Awaitable[Transaction]]
BEGINS: dict[str, Begin] = {
    "begun": lambda client: client.begin_transaction(),
    "lazy": lambda client: client.begin_transaction(lazy=True),
    "named": lambda client: client.begin_named_transaction("n", 1, "r"),
}
each_begin = pytest.mark.parametrize("begin", BEGINS.values(), ids=BEGINS)
TOO_LARGE = bytes(2_000)


async def is_refused(txn: Transaction, cause: type[BaseException], **details: str) -> CommitRefused:
    """The commit is, and says which call has failed, where and why."""
    with pytest.raises(CommitRefused, match=cause.__name__) as raised:
        await txn.commit()
    assert isinstance(raised.value.__cause__, cause)
    assert details.items() <= dict(raised.value.details).items()
    for detail in details.values():
        assert detail in str(raised.value)
    assert txn.status in (TransactionStatus.ABORTED, TransactionStatus.ABORTING)
    return raised.value


async def made(call: Any) -> None:
    if asyncio.iscoroutine(call):
        await call


def column(value: bytes) -> BytesColumn:
    return BytesColumn(bytes(4) + len(value).to_bytes(4, "little"), value)


SENDS: list[tuple[type[MagnetarError], Callable[[Producer, Transaction], Any], dict[str, str]]] = [
    (InvalidArgument, lambda p, txn: p.send("v", txn=txn), {}),  # type: ignore[arg-type]
    (InvalidArgument, lambda p, txn: p.send(b"v", event_time_ms=1 << 63, txn=txn), {}),
    (InvalidArgument, lambda p, txn: p.send(b"v", partition=7, txn=txn), {"partition": "7"}),
    (MessageTooLarge, lambda p, txn: p.send(TOO_LARGE, partition=1, txn=txn), {"partition": "1"}),
    (MessageTooLarge, lambda p, txn: p.send(TOO_LARGE, b"k", txn=txn), {"partition": "0"}),
    (InvalidArgument, lambda p, txn: p.send_nowait(b"v", properties={1: "a"}, txn=txn), {}),  # type: ignore[dict-item]
    (MessageTooLarge, lambda p, txn: p.send_nowait(TOO_LARGE, txn=txn), {}),
    (InvalidArgument, lambda p, txn: p.enqueue(b"v", "k", txn=txn), {}),  # type: ignore[arg-type]
    (MessageTooLarge, lambda p, txn: p.enqueue(TOO_LARGE, txn=txn), {}),
    (InvalidArgument, lambda p, txn: p.send_many(["v"], txn=txn), {}),  # type: ignore[list-item]
    (InvalidArgument, lambda p, txn: p.send_many([b"v"], [], txn=txn), {}),
    (MessageTooLarge, lambda p, txn: p.send_many([b"v", TOO_LARGE], txn=txn), {}),
    (InvalidArgument, lambda p, txn: p.send_columns([b"v"], txn=txn), {}),  # type: ignore[list-item]
    (
        MessageTooLarge,
        lambda p, txn: p.send_columns([ColumnBatch(1, column(TOO_LARGE))], partition=1, txn=txn),
        {"partition": "1"},
    ),
]


@each_begin
@pytest.mark.parametrize(("error", "send", "details"), SENDS)
def test_a_send_that_is_refused_makes_its_transaction_fail(
    begin: Begin,
    error: type[MagnetarError],
    send: Callable[[Producer, Transaction], Any],
    details: dict[str, str],
) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        partitions = cluster.topic("t", 2)
        producer = await client.create_producer("t", message_bytes_max=1_000)
        txn = await begin(client)
        await producer.enqueue(b"first half", txn=txn)
        with pytest.raises(error):
            await made(send(producer, txn))
        with pytest.raises(InvalidTxnState, match=error.__name__):
            producer.send_nowait(b"more", txn=txn)
        await is_refused(txn, error, topic="t", **details)
        assert [partition.messages for partition in partitions] == [[], []]
        # The producer is as good as before.
        await producer.send(b"plain", partition=0)
        assert partitions[0].messages == [b"plain"]

    run(test)


@each_begin
def test_a_block_that_swallows_the_error_does_not_commit(begin: Begin) -> None:
    async def swallow(producer: Producer, txn: Transaction) -> None:
        async with txn:
            await producer.enqueue(b"first half", txn=txn)
            with pytest.raises(InvalidArgument):
                await producer.send(b"v", partition=-1, txn=txn)

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        txn = await begin(client)
        with pytest.raises(CommitRefused, match="partition"):
            await swallow(producer, txn)
        assert txn.status is TransactionStatus.ABORTED
        assert partition.messages == []

    run(test)


@each_begin
@pytest.mark.parametrize("name", ["send", "enqueue", "send_many", "send_columns"])
def test_a_send_that_is_cancelled_while_it_waits_for_room(begin: Begin, name: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", batch_messages_max=1)
        txn = await begin(client)
        cluster.play.when("send").once(HOLD)
        producer.send_nowait(b"full")
        given: Any = {"send_many": [b"v"], "send_columns": [ColumnBatch(1, column(b"v"))]}
        sending = asyncio.ensure_future(getattr(producer, name)(given.get(name, b"v"), txn=txn))
        await turns(5)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        cluster.play.release()
        await is_refused(txn, OutcomeUnknown, topic="t")
        await producer.flush()
        assert partition.messages == [b"full"]

    run(test, ClientConfig(pending_messages_max=1))


def test_a_send_for_which_there_is_no_room() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", batch_messages_max=1)
        txn = await client.begin_transaction()
        cluster.play.when("send").once(HOLD)
        producer.send_nowait(b"full")
        with pytest.raises(QuotaExceeded):
            producer.send_nowait(b"v", txn=txn)
        await cluster.play.holds(1)
        cluster.play.release()
        await is_refused(txn, QuotaExceeded, topic="t")
        assert partition.messages == [b"full"]

    run(test, ClientConfig(pending_messages_max=1))


@each_begin
@pytest.mark.parametrize("held", ["send", "new_txn", "add_partition_to_txn"])
def test_a_send_that_is_cancelled_while_it_waits_for_an_answer(begin: Begin, held: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        txn = await begin(client)
        cluster.play.when(held).always(HOLD)
        sending = asyncio.ensure_future(producer.send(b"v", txn=txn))
        await time_passes(0.1)
        if sending.done():
            return  # This transaction has nothing to wait for there.
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        cluster.play.forget()
        cluster.play.release()
        await is_refused(txn, OutcomeUnknown, topic="t")
        assert partition.messages == []

    run(test)


def test_a_send_by_a_closed_producer() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        await producer.close()
        txn = await client.begin_transaction()
        with pytest.raises(ClientClosed):
            producer.send_nowait(b"v", txn=txn)
        await is_refused(txn, ClientClosed, topic="t")

    run(test)


ACKS: list[tuple[type[MagnetarError], Callable[[Consumer, Message, Transaction], Any]]] = [
    (InvalidArgument, lambda c, message, txn: c.ack(b"message", txn=txn)),  # type: ignore[arg-type]
    (InvalidArgument, lambda c, message, txn: c.ack_many(5, txn=txn)),  # type: ignore[arg-type]
    (InvalidArgument, lambda c, message, txn: c.ack_many([message, None], txn=txn)),  # type: ignore[list-item]
    (InvalidArgument, lambda c, message, txn: c.ack(MessageId(1, 0, 0, 5), txn=txn)),
    (InvalidArgument, lambda c, message, txn: c.ack_nowait(MessageId(1, 0, 0, 5), txn=txn)),
    (InvalidArgument, lambda c, message, txn: c.ack_cumulative(message, txn=txn)),
    (OutOfRange, lambda c, message, txn: c.ack(MessageId(9, 0, 0, 0), txn=txn)),
    (OutOfRange, lambda c, message, txn: c.ack_nowait(MessageId(9, 0, 0, 0), txn=txn)),
]


@each_begin
@pytest.mark.parametrize(("error", "ack"), ACKS)
def test_an_ack_that_is_refused_makes_its_transaction_fail(
    begin: Begin,
    error: type[MagnetarError],
    ack: Callable[[Consumer, Message, Transaction], Any],
) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        cluster.publish("t", [b"input"])
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", type="shared", initial_position="earliest")
        message = await consumer.receive()
        txn = await begin(client)
        await producer.enqueue(b"output", txn=txn)
        with pytest.raises(error):
            await made(ack(consumer, message, txn))
        await is_refused(txn, error, subscription="s")
        assert partition.messages == [b"input"]
        await consumer.ack(message)

    run(test)


@pytest.mark.parametrize("name", ["ack", "ack_many", "ack_cumulative"])
def test_an_ack_that_is_cancelled_makes_its_transaction_fail(name: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.publish("t", [b"input"])
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        message = await consumer.receive()
        txn = await client.begin_transaction()
        cluster.play.when("ack").once(HOLD)
        given: Any = [message] if name == "ack_many" else message
        acking = asyncio.ensure_future(getattr(consumer, name)(given, txn=txn))
        await cluster.play.holds(1)
        acking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acking
        cluster.play.release()
        await is_refused(txn, OutcomeUnknown, topic="t", partition="0", subscription="s")

    run(test)


def test_offsets_that_were_not_received_or_are_elsewhere() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.publish("t", [b"input"])
        consumer = await client.consumer_group("g", "t", initial_position="earliest")
        await consumer.receive()
        wrong: list[tuple[type[MagnetarError], Any]] = [
            (InvalidArgument, {TopicPartition("t", 0): 9}),
            (InvalidArgument, {TopicPartition("t", 0): "1"}),
            (InvalidArgument, {"t": 1}),
            (InvalidArgument, 5),
            (IllegalGeneration, {TopicPartition("t", 7): 1}),
        ]
        for error, offsets in wrong:
            txn = await client.begin_transaction()
            with pytest.raises(error):
                await consumer.ack_offsets(offsets, txn=txn)
            await is_refused(txn, error, subscription="g")

    run(test)


# Transactional producers


@pytest.mark.parametrize("transactional_id", ["id", None])
def test_a_transactional_producer_does_not_commit_without_what_it_could_not_send(
    transactional_id: str | None,
) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer: Any = client.transactional_producer(transactional_id)
        if transactional_id is not None:
            await producer.init()
        cluster.play.when("lookup", topic="away").always(LogUnavailable())
        calls: list[tuple[type[MagnetarError], str, Callable[[], Awaitable[object]]]] = [
            (TopicNotFound, "nowhere", lambda: producer.send("nowhere", b"v")),
            (TopicNotFound, "nowhere", lambda: producer.enqueue("nowhere", b"v")),
            (LogUnavailable, "away", lambda: producer.send("away", b"v")),
            (InvalidArgument, "t", lambda: producer.send("t", "v")),
            (InvalidArgument, "t", lambda: producer.enqueue("t", b"v", partition=9)),
            (InvalidArgument, "", lambda: producer.send("\ud800", b"v")),
            (InvalidArgument, "", lambda: producer.send(5, b"v")),
            (InvalidTxnState, "", lambda: producer.send_offsets_to_transaction({})),
        ]
        for error, topic, call in calls:
            await producer.begin()
            await producer.send("t", b"first half")
            with pytest.raises(error):
                await call()
            with pytest.raises(CommitRefused, match=error.__name__) as raised:
                await producer.commit()
            if topic:
                assert raised.value.details["topic"] == topic
        await producer.begin()
        await producer.send("t", b"whole")
        await producer.commit()
        assert partition.messages == [b"whole"]

    run(test)


def test_a_transactional_producer_that_looks_a_topic_up_is_cancelled() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        cluster.topic("u")
        producer = client.transactional_producer("id")
        await producer.init()
        await producer.begin()
        await producer.send("t", b"first half")
        cluster.play.when("lookup", topic="u").always(HOLD)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await producer.send("u", b"second half")
        with pytest.raises(CommitRefused, match="cancelled") as raised:
            await producer.commit()
        assert raised.value.details["topic"] == "u"
        assert partition.messages == []

    run(test)


# What does not make a transaction fail


def test_a_call_that_comes_too_late_changes_no_outcome() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        txn = await client.begin_transaction()
        await producer.send(b"v", txn=txn)
        cluster.play.when("end_txn").once(HOLD)
        committing = asyncio.ensure_future(txn.commit())
        await cluster.play.holds(1)
        with pytest.raises(InvalidTxnState):
            producer.send_nowait(b"late", txn=txn)
        with pytest.raises(InvalidArgument):
            await producer.send(b"late", partition=9, txn=txn)
        cluster.play.release()
        await committing
        assert txn.failure is None
        with pytest.raises(InvalidTxnState):
            producer.send_nowait(b"later", txn=txn)
        assert partition.messages == [b"v"]
        await txn.commit()

    run(test)


def test_the_first_failure_is_the_reason() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t", 3)
        producer = await client.create_producer("t")
        txn = await client.begin_transaction()
        for partition in (8, 9):
            with pytest.raises(MagnetarError):
                await producer.send(b"v", partition=partition, txn=txn)
        await is_refused(txn, InvalidArgument, topic="t", partition="8")

    run(test)


@pytest.mark.parametrize("txn", [5, "txn", object()])
def test_what_is_no_transaction_is_refused(txn: Any) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        cluster.publish("t", [b"input"])
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        message = await consumer.receive()
        for call in (
            lambda: producer.send(b"v", txn=txn),
            lambda: producer.send_nowait(b"v", txn=txn),
            lambda: producer.enqueue(b"v", txn=txn),
            lambda: producer.send_many([b"v"], txn=txn),
            lambda: consumer.ack(message, txn=txn),
            lambda: consumer.ack_nowait(message, txn=txn),
            lambda: consumer.ack_cumulative(message, txn=txn),
        ):
            with pytest.raises(InvalidArgument, match="txn must be a Transaction"):
                await made(call())
        await producer.flush()
        assert partition.messages == [b"input"]

    run(test)


def test_the_same_without_asyncio() -> None:
    cluster = FakeCluster()
    with blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=REAL_TIME) as client:
        client.admin.topics.create("t")
        producer = client.create_producer("t")

        def swallow() -> None:
            with client.transaction() as txn:
                producer.send(b"first half", txn=txn)
                with pytest.raises(InvalidArgument):
                    producer.send(b"v", partition=7, txn=txn)

        with pytest.raises(CommitRefused, match="partition 7 of 't'"):
            swallow()
        assert list(client.read("t")) == []


def test_a_transaction_of_another_client_is_refused() -> None:
    """Each client numbered its own: the message went into the transaction of the same number."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        cluster.publish("t", [b"input"])
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        message = await consumer.receive()
        own = await client.begin_transaction()
        await producer.send(b"own", txn=own)
        async with await connect(cluster, seed=8) as other:
            others = [await other.begin_transaction() for _ in range(8)]
            for txn in others[::2]:
                with pytest.raises(InvalidArgument, match="belongs to another client"):
                    await producer.send(b"another's", txn=txn)
            for txn in others[1::2]:
                with pytest.raises(InvalidArgument, match="belongs to another client"):
                    await consumer.ack(message, txn=txn)
            for txn in others:
                await is_refused(txn, InvalidArgument)
        await own.commit()
        assert partition.messages == [b"input", b"own"]

    run(test)
