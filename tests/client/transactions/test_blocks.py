"""The blocks of transactions: a send or an ack in them says whether it is a part of it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from array import array
from collections.abc import Awaitable, Callable, Iterator
from typing import assert_type

import pytest
from tests.client.fakes import BROKER_ADDRESS, REAL_TIME, FakeCluster, connect, run
from tests.client.groups.test_processing import process_all
from tests.waiting import until

from magnetar import (
    BytesColumn,
    Client,
    ColumnBatch,
    CommitRefused,
    Consumer,
    GroupConsumer,
    InvalidArgument,
    InvalidTxnState,
    Message,
    MessageColumns,
    MessageId,
    NotGiven,
    Output,
    Producer,
    TopicNotFound,
    TransactionStatus,
    TxnSend,
    blocking,
    offsets,
    process,
)
from magnetar.dual_write import DbApiStore, DualWriter, Unit
from magnetar_core.wire import topic_pb2


class Scene:
    """A topic with messages that a consumer has received, and a producer for another topic."""

    producer: Producer
    consumer: Consumer
    messages: list[Message]

    def __init__(self, cluster: FakeCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client

    async def open(self) -> Scene:
        for topic in ("in", "out"):
            self.cluster.topic(topic)
        self.cluster.publish("in", [b"0", b"1", b"2"])
        self.producer = await self.client.create_producer("out", linger_ms=0)
        self.consumer = await self.client.subscribe("in", "s", initial_position="earliest")
        self.messages = await self.consumer.receive_batch(3)
        return self

    @property
    def out(self) -> list[bytes]:
        return self.cluster.topics["out"][1][0].messages

    @property
    def acked(self) -> set[int]:
        return self.cluster.cursors["in", "s", 0].acked


def scene(test: Callable[[Scene], Awaitable[None]]) -> None:
    async def main(cluster: FakeCluster, client: Client) -> None:
        await test(await Scene(cluster, client).open())

    run(main)


async def send_nowait(scene: Scene) -> None:
    scene.producer.send_nowait(b"plain")


async def ack_nowait(scene: Scene) -> None:
    scene.consumer.ack_nowait(scene.messages[0])


def column_batch() -> ColumnBatch:
    return ColumnBatch(1, BytesColumn(array("i", [0, 5]).tobytes(), b"plain"))


FORGOTTEN: dict[str, Callable[[Scene], Awaitable[object]]] = {
    "send": lambda scene: scene.producer.send(b"plain"),
    "send_nowait": send_nowait,
    "enqueue": lambda scene: scene.producer.enqueue(b"plain"),
    "send_many": lambda scene: scene.producer.send_many([b"plain"]),
    "send_columns": lambda scene: scene.producer.send_columns([column_batch()]),
    "ack": lambda scene: scene.consumer.ack(scene.messages[0]),
    "ack_many": lambda scene: scene.consumer.ack_many(scene.messages),
    "ack_nowait": ack_nowait,
    "ack_cumulative": lambda scene: scene.consumer.ack_cumulative(scene.messages[0]),
}


@pytest.mark.parametrize("call", FORGOTTEN)
@pytest.mark.parametrize("lazy", [False, True])
def test_a_forgotten_txn_is_an_error_and_the_transaction_fails(call: str, lazy: bool) -> None:
    """It was a plain send, which stayed when the transaction aborted."""

    async def test(scene: Scene) -> None:
        async def program() -> None:
            async with scene.client.transaction(lazy=lazy) as txn:
                await txn.enqueue("out", b"in the transaction")
                with pytest.raises(InvalidArgument, match=r"txn\.send\(\).*txn=None"):
                    await FORGOTTEN[call](scene)
                # A careless program goes on.

        with pytest.raises(CommitRefused, match="without txn"):
            await program()
        await scene.producer.flush()
        await scene.consumer.flush_acks()
        assert not scene.out
        assert not scene.acked
        # The block is left.
        await FORGOTTEN[call](scene)
        await scene.producer.flush()
        await scene.consumer.flush_acks()
        assert scene.out or scene.acked

    scene(test)


def test_an_ack_of_a_group_is_covered_too() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("in")
        cluster.publish("in", [b"0", b"1"])
        consumer = await client.consumer_group("g", "in", initial_position="earliest")
        messages = await consumer.receive_batch(2)

        async def program() -> None:
            async with client.transaction():
                await consumer.ack_offsets(offsets(messages))

        with pytest.raises(InvalidArgument, match=r"txn\.ack\(\)"):
            await program()
        async with client.transaction() as txn:
            await consumer.ack_offsets(offsets(messages[:1]), txn=txn)
            await txn.ack(messages[1])
        assert cluster.cursors["in", "g", 0].acked == {0, 1}

    run(test)


def test_what_is_said_to_be_no_part_of_it_stays() -> None:
    async def test(scene: Scene) -> None:
        async def program() -> None:
            async with scene.client.transaction():
                await scene.producer.send(b"tried", txn=None)
                await scene.producer.send_many([b"again"], txn=None)
                await scene.consumer.ack(scene.messages[0], txn=None)
                scene.consumer.ack_nowait(scene.messages[1], txn=None)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await program()
        await scene.producer.flush()
        await scene.consumer.flush_acks()
        assert scene.out == [b"tried", b"again"]
        assert scene.acked == {0, 1}

    scene(test)


def test_both_forms_are_in_the_transaction() -> None:
    async def test(scene: Scene) -> None:
        async with scene.client.transaction() as txn:
            await scene.producer.send(b"0", txn=txn)
            await txn.send("out", b"1")
            await scene.consumer.ack(scene.messages[0], txn=txn)
            await txn.ack(scene.messages[1])
            assert not scene.out
        assert sorted(scene.out) == [b"0", b"1"]
        assert scene.acked == {0, 1}

    scene(test)


# Which code is in a block.


def test_tasks_that_are_started_inside_are_covered_while_the_block_lasts() -> None:
    async def test(scene: Scene) -> None:
        ended = asyncio.Event()

        async def forgets() -> None:
            with pytest.raises(InvalidArgument):
                await scene.producer.send(b"forgotten")

        async def outlives() -> None:
            await forgets()
            await ended.wait()
            await scene.producer.send(b"later")

        async def program() -> None:
            async with scene.client.transaction() as txn:
                later.append(asyncio.ensure_future(outlives()))
                await asyncio.gather(forgets(), forgets())
                async with asyncio.TaskGroup() as group:
                    group.create_task(forgets())
                    group.create_task(txn.abort())
                await until(lambda: txn.failure is not None)
                await forgets()

        later: list[asyncio.Future[None]] = []
        await program()
        ended.set()
        await later[0]
        assert scene.out == [b"later"]

    scene(test)


def test_other_tasks_are_not_covered() -> None:
    """Those that run beside it, and those that it has found running."""

    async def test(scene: Scene) -> None:
        opened, sent = asyncio.Event(), asyncio.Event()

        async def beside() -> None:
            await opened.wait()
            await scene.producer.send(b"beside")
            await scene.consumer.ack(scene.messages[0])
            sent.set()

        task = asyncio.ensure_future(beside())
        async with scene.client.transaction() as txn:
            await txn.send("out", b"inside")
            opened.set()
            await sent.wait()
        await task
        assert scene.out == [b"beside", b"inside"]
        assert scene.acked == {0}

    scene(test)


def test_another_client_is_not_covered() -> None:
    async def test(scene: Scene) -> None:
        async with await connect(scene.cluster, seed=8) as other:
            producer = await other.create_producer("out")
            async with scene.client.transaction() as txn:
                await txn.send("out", b"inside")
                await producer.send(b"of another client")
                async with other.transaction():
                    with pytest.raises(InvalidArgument):
                        await scene.producer.send(b"forgotten")
                    with pytest.raises(InvalidArgument):
                        await producer.send(b"forgotten")
                await txn.abort()
        assert scene.out == [b"of another client"]

    def main(scene_: Scene) -> Awaitable[None]:
        async def ends() -> None:
            # Both transactions have failed.
            with pytest.raises(CommitRefused):
                await test(scene_)

        return ends()

    scene(main)


def test_an_inner_block_is_a_transaction_of_its_own() -> None:
    async def test(scene: Scene) -> None:
        async def program() -> None:
            async with scene.client.transaction() as outer:
                await outer.send("out", b"outer")
                async with scene.client.transaction() as inner:
                    await inner.send("out", b"inner")
                    await outer.send("out", b"outer, from inside")
                # The inner one has committed, and the outer one covers what follows.
                assert scene.out == [b"inner"]
                await scene.producer.send(b"forgotten")

        with pytest.raises(InvalidArgument):
            await program()
        assert scene.out == [b"inner"]
        async with scene.client.transaction() as outer:
            async with scene.client.transaction() as inner:
                with pytest.raises(InvalidArgument):
                    await scene.producer.send(b"forgotten")
                # The innermost one was meant.
                assert inner.failure is not None
                await inner.abort()
            assert outer.failure is None

    scene(test)


def test_a_scope_has_one_block_at_a_time() -> None:
    """A second block took the place of the first, whose transaction then stayed open, unsaid."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("out")
        scope = client.transaction()
        async with scope as outer:
            await outer.send("out", b"1")
            with pytest.raises(InvalidTxnState, match="once for each block"):
                async with scope:
                    pass
        assert outer.status is TransactionStatus.COMMITTED
        cluster.play.when("new_txn").once(InvalidTxnState())
        with pytest.raises(InvalidTxnState):
            await scope.__aenter__()
        async with scope as later:
            await later.send("out", b"2")
        assert partition.messages == [b"1", b"2"]

    run(test)


def test_a_transaction_that_the_program_begins_has_a_block_when_it_is_used_as_one() -> None:
    async def test(scene: Scene) -> None:
        txn = await scene.client.begin_transaction()
        await scene.producer.send(b"no block")
        await txn.abort()

        async def program(named: bool) -> None:
            begun = (
                await scene.client.begin_named_transaction("n", 1, "run")
                if named
                else await scene.client.begin_transaction()
            )
            async with begun:
                await scene.producer.send(b"forgotten")

        for named in (False, True):
            with pytest.raises(InvalidArgument):
                await program(named)
        assert scene.out == [b"no block"]

    scene(test)


@pytest.mark.parametrize("how", ["an error", "a cancellation", "an abort", "a commit"])
def test_the_block_ends_however_it_is_left(how: str) -> None:
    async def test(scene: Scene) -> None:
        async def program() -> None:
            async with scene.client.transaction() as txn:
                if how == "an error":
                    raise ZeroDivisionError
                if how == "a cancellation":
                    raise asyncio.CancelledError
                await (txn.abort() if how == "an abort" else txn.commit())
                # Until it is left: whoever means a plain send says so.
                with pytest.raises(InvalidArgument):
                    await scene.producer.send(b"forgotten")

        try:
            await program()
        except (ZeroDivisionError, asyncio.CancelledError):
            pass
        await scene.producer.send(b"after it")
        assert scene.out == [b"after it"]
        assert not scene.client._runtime.open_blocks

    scene(test)


def test_a_transactional_producer_has_no_block() -> None:
    """Between its begin() and its commit() other objects of the client are as ever."""

    async def test(scene: Scene) -> None:
        producer = scene.client.transactional_producer()
        await producer.begin()
        await producer.send("out", b"inside", properties={"a": "b"}, partition=0)
        await scene.producer.send(b"plain")
        await scene.consumer.ack(scene.messages[0])
        await producer.abort()
        assert scene.out == [b"plain"]
        assert scene.acked == {0}
        await producer.close()

    scene(test)


def test_transform_is_in_the_block_of_its_batch() -> None:
    """What process() runs sends by what it returns."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        for topic in ("orders", "out", "log"):
            cluster.topic(topic)
        cluster.publish("orders", [b"0"])
        consumer = await client.consumer_group("g", "orders", initial_position="earliest")
        plain = await client.create_producer("log")
        says_so = False

        async def transform(message: Message) -> list[Output]:
            if says_so:
                await plain.send(b"tried", txn=None)
            else:
                await plain.send(b"forgotten")
            return [Output("out", message.value)]

        producer = client.transactional_producer()
        with pytest.raises(Exception, match="could not be transformed") as error:
            await process(consumer, transform, producer, attempts_max=1)
        assert isinstance(error.value.__cause__, InvalidArgument)
        assert "Output" in str(error.value.__cause__)
        says_so = True
        await process_all(cluster, consumer, producer, 1, transform)
        assert cluster.topics["out"][1][0].messages == [b"0"]
        assert cluster.topics["log"][1][0].messages == [b"tried"]

    run(test)


# What a transaction sends and acknowledges by itself.


def test_a_send_says_where_the_message_is_in_the_transaction() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t", 4)
        async with client.transaction() as txn:
            sent = await txn.send("t", b"0", b"key", properties={"a": "b"}, event_time_ms=7)
            assert sent == TxnSend(txn.txn_id, sent.partition, 0)
            second = await txn.send("t", b"1", b"key")
            assert second == TxnSend(txn.txn_id, sent.partition, 1)
            assert (await txn.send("t", b"2", partition=3)).partition == 3
            await txn.enqueue("t", b"3", partition=3, properties={"c": "d"})
        read = [message async for message in client.read("t", sent.partition)]
        assert [(one.value, one.key) for one in read] == [(b"0", b"key"), (b"1", b"key")]
        assert read[0].properties == {"a": "b"}
        assert read[0].event_time_ms == 7
        assert [one.value async for one in client.read("t", 3)] == [b"2", b"3"]

    run(test)


def test_all_messages_to_a_topic_go_through_one_producer() -> None:
    """Otherwise they would have no order; also when tasks send for the first time at once."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        for topic in ("t", "u"):
            cluster.topic(topic)
        async with client.transaction() as txn:
            await asyncio.gather(*(txn.enqueue("t", b"%d" % number) for number in range(5)))
        async with client.transaction() as txn:
            await txn.send("t", b"5")
            await txn.send("u", b"6")
        assert cluster.topics["t"][1][0].messages == [b"%d" % number for number in range(6)]
        producers: dict[str, set[int]] = {
            one.partition.topic: set() for one in cluster.play.commands("send")
        }
        for one in cluster.play.commands("send"):
            producers[one.partition.topic].add(one.producer_id)
        assert {topic: len(ids) for topic, ids in producers.items()} == {"t": 1, "u": 1}
        assert len(client._opened.producers._open) == 2

    run(test)


def test_a_producer_with_settings_of_its_own_is_another_one() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        own = await client.create_producer("t", codec="zstd")
        async with client.transaction() as txn:
            await txn.send("t", b"default settings")
            await own.send(b"own settings", txn=txn)
        ids = {one.producer_id for one in cluster.play.commands("send")}
        assert own.producer_id in ids
        assert len(ids) == 2

    run(test)


def test_a_topic_that_is_missing_fails_the_transaction() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        async def program() -> None:
            async with client.transaction() as txn:
                with pytest.raises(TopicNotFound):
                    await txn.send("nowhere", b"x")

        with pytest.raises(CommitRefused, match="TopicNotFound"):
            await program()

    run(test)


def test_a_topic_that_was_made_anew_gets_another_producer() -> None:
    """The one before knew the topic that is gone, and nobody could have replaced it."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        async with client.transaction() as txn:
            await txn.send("t", b"before")
        cluster.play.when("send").once(TopicNotFound("another topic has this name"))

        async def program() -> None:
            async with client.transaction() as txn:
                await txn.enqueue("t", b"lost")

        with pytest.raises(CommitRefused):
            await program()
        cluster.on_delete_topic(cluster.net.links[0], topic_pb2.CommandDeleteTopic(topic="t"))
        cluster.topic("t", 2)
        async with client.transaction() as txn:
            await txn.send("t", b"after", partition=1)
        assert cluster.topics["t"][1][1].messages == [b"after"]

    run(test)


def test_a_transaction_that_has_ended_takes_nothing() -> None:
    async def test(scene: Scene) -> None:
        async with scene.client.transaction() as txn:
            await txn.abort()
            for call in (
                txn.send("out", b"x"),
                txn.enqueue("out", b"x"),
                txn.ack(scene.messages[0]),
                txn.ack_many(scene.messages),
                txn.ack_cumulative(scene.messages[0]),
            ):
                with pytest.raises(InvalidTxnState):
                    await call
        assert not scene.out
        assert txn.status is TransactionStatus.ABORTED

    scene(test)


def test_acks_go_to_the_consumers_that_received_the_messages() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        consumers: list[Consumer | GroupConsumer] = []
        for topic in ("a", "b"):
            cluster.topic(topic)
            cluster.publish(topic, [b"%d" % number for number in range(6)])
            for name in ("s", "u"):
                consumers.append(await client.subscribe(topic, name, initial_position="earliest"))
        consumers.append(await client.consumer_group("g", "a", initial_position="earliest"))
        received = [await consumer.receive_batch(6) for consumer in consumers]
        columns = MessageColumns(received[0][0].batch, 4, 6)
        async with client.transaction() as txn:
            await txn.ack(received[0][0])
            await txn.ack_many([one[place] for one in received for place in (1, 2)])
            await txn.ack_many(columns)
            await txn.ack_cumulative(received[3][3])
        assert cluster.cursors["a", "s", 0].acked == {0, 1, 2, 4, 5}
        assert cluster.cursors["a", "u", 0].acked == {1, 2}
        assert cluster.cursors["b", "s", 0].acked == {1, 2}
        assert cluster.cursors["b", "u", 0].acked == {0, 1, 2, 3}
        assert cluster.cursors["a", "g", 0].acked == {1, 2}

    run(test)


@pytest.mark.parametrize("whose", ["a reader", "another client", "closed", "an id"])
def test_what_no_consumer_of_the_client_received_cannot_be_acknowledged(whose: str) -> None:
    async def test(scene: Scene) -> None:
        message: Message | MessageId = scene.messages[0]
        if whose == "a reader":
            (message, *_) = [one async for one in scene.client.read("in")]
        elif whose == "an id":
            message = scene.messages[0].message_id
        elif whose == "closed":
            await scene.consumer.close()

        async def program(client: Client) -> None:
            async with client.transaction() as txn:
                # A careless program goes on.
                with pytest.raises(InvalidArgument, match=r"only a consumer of|not a message"):
                    await txn.ack(message)  # type: ignore[arg-type]

        if whose == "another client":
            async with await connect(scene.cluster, seed=8) as other:
                await other.subscribe("in", "another", initial_position="earliest")
                with pytest.raises(CommitRefused):
                    await program(other)
        else:
            with pytest.raises(CommitRefused):
                await program(scene.client)
        assert not scene.acked

    scene(test)


async def _mistakes(
    client: Client, unit: Unit[DbApiStore], blocking_client: blocking.Client, message: Message
) -> None:
    """Never called: mypy reads it, and says where a mistake is not found any more."""
    producer = client.transactional_producer("app")
    await producer.send("t", b"x", partitin=0)  # type: ignore[call-arg]
    await producer.enqueue("t", b"x", event_time="now")  # type: ignore[call-arg]
    unit.send("t", b"x", txn=None)  # type: ignore[call-arg]
    assert_type(await producer.send("t", b"x"), TxnSend)
    plain = await client.create_producer("t")
    async with client.transaction() as txn:
        await txn.send("t", "text")  # type: ignore[arg-type]
        await txn.ack(message.message_id)  # type: ignore[arg-type]
        await plain.send(b"x", txn="txn")  # type: ignore[arg-type]
        await plain.send(b"x", txn=None)
        await plain.send(b"x", txn=txn)
        await plain.send(b"x", txn=NotGiven.NOT_GIVEN)
    with blocking_client.transaction() as blocking_txn:
        assert_type(blocking_txn.send("t", b"x"), TxnSend)
        blocking_txn.send("t", b"x", partitin=0)  # type: ignore[call-arg]
        blocking_client.create_producer("t").send(b"x", txn=txn)  # type: ignore[arg-type]


# Without asyncio.


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    for topic in ("in", "out"):
        cluster.topic(topic)
    cluster.publish("in", [b"%d" % number for number in range(9)])
    return cluster


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[blocking.Client]:
    with blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=REAL_TIME) as client:
        yield client


def test_a_block_of_the_blocking_client_covers_its_thread(
    cluster: FakeCluster, client: blocking.Client
) -> None:
    producer = client.create_producer("out")
    consumer = client.subscribe("in", "s", initial_position="earliest")
    messages = [consumer.receive() for _ in range(9)]
    errors: list[Exception] = []

    def another_thread() -> None:
        try:
            producer.send(b"of another thread")
            consumer.ack_nowait(messages[0])
        except Exception as error:
            errors.append(error)

    def program() -> None:
        with client.transaction() as txn:
            txn.send("out", b"inside")
            txn.ack(messages[1])
            thread = threading.Thread(target=another_thread)
            thread.start()
            thread.join()
            calls: list[Callable[[], object]] = [
                lambda: producer.send(b"forgotten"),
                lambda: producer.send_nowait(b"forgotten"),
                lambda: consumer.ack(messages[2]),
                lambda: consumer.ack_nowait(messages[2]),
            ]
            for call in calls:
                with pytest.raises(InvalidArgument):
                    call()
            with client.transaction(lazy=True) as inner:
                inner.send("out", b"inner")
            with pytest.raises(InvalidArgument):
                producer.send(b"forgotten")
            producer.send(b"meant", txn=None)
            consumer.ack_nowait(messages[3], txn=None)

    with pytest.raises(CommitRefused):
        program()
    producer.send(b"after it")
    consumer.ack_nowait(messages[4])
    consumer.flush_acks()
    assert errors == []
    assert cluster.topics["out"][1][0].messages == [
        b"of another thread",
        b"inner",
        b"meant",
        b"after it",
    ]
    assert cluster.cursors["in", "s", 0].acked == {0, 3, 4}


def test_a_unit_of_a_dual_writer_is_a_block(cluster: FakeCluster, client: blocking.Client) -> None:
    producer = client.create_producer("out")
    database = sqlite3.connect(":memory:")
    writer = DualWriter(
        client.transactional_producer("2pc-app", two_phase_commit=True),
        DbApiStore(database, "qmark"),
    )
    writer.start()

    def program() -> None:
        with writer.unit() as unit:
            unit.send("out", b"inside", b"key", properties={"a": "b"})
            # A careless program goes on.
            with pytest.raises(InvalidArgument, match=r"unit\.send\(\)"):
                producer.send(b"forgotten")

    with pytest.raises(CommitRefused):
        program()
    with writer.unit() as unit:
        unit.send("out", b"second")
        producer.send(b"meant", txn=None)
    producer.send(b"after it")
    assert sorted(cluster.topics["out"][1][0].messages) == [b"after it", b"meant", b"second"]
