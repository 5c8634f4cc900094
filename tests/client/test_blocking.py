"""The facade without asyncio."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tests.client.fakes import BROKER_ADDRESS, FAST, FakeCluster, connect
from tests.forking import in_child
from tests.playbook import BREAK
from tests.waiting import PATIENCE_S, for_ever, wait_until

from magnetar import (
    ClientClosed,
    CommitRefused,
    Consumer,
    InvalidArgument,
    TopicNotFound,
    TransactionStatus,
    UsedAfterFork,
    WrongEventLoop,
    blocking,
)
from magnetar.blocking.loop_thread import LoopThread
from magnetar_core.errors import LogUnavailable, OutcomeUnknown


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def loops() -> list[threading.Thread]:
    """Threads of clients. Others come and go, such as those that resolve names."""
    return [one for one in threading.enumerate() if one.name == "magnetar"]


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[blocking.Client]:
    assert loops() == []
    with blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=FAST) as client:
        assert len(loops()) == 1
        yield client
    assert loops() == []


def test_everything_from_one_end_to_the_other(client: blocking.Client) -> None:
    client.admin.topics.create("flights", partitions=2)
    assert [one.topic for one in client.admin.topics.list()] == ["flights"]
    with (
        client.create_producer("flights") as producer,
        client.subscribe("flights", "s", initial_position="earliest") as consumer,
    ):
        producer.send(b"a", partition=0)
        producer.send_many([b"b", b"c"], partition=0)
        producer.send_nowait(b"d", partition=0)
        producer.flush()
        with client.transaction() as txn:
            producer.enqueue(b"e", partition=1, txn=txn)
            message = consumer.receive(timeout_s=5)
            consumer.ack(message, txn=txn)
        assert txn.status is TransactionStatus.COMMITTED
        received = [message.value]
        for message in consumer:
            received.append(message.value)
            consumer.ack_nowait(message)
            if len(received) == 5:
                break
        consumer.flush_acks()
        assert sorted(received) == [b"a", b"b", b"c", b"d", b"e"]
        assert consumer.receive_batch(1, timeout_s=0.001) == []
    assert [one.value for one in client.read("flights", 1)] == [b"e"]


def test_an_exception_aborts(client: blocking.Client) -> None:
    client.admin.topics.create("flights")
    producer = client.create_producer("flights")
    txn = client.begin_transaction()

    def work() -> None:
        with txn:
            producer.send(b"x", txn=txn)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert txn.status is TransactionStatus.ABORTED
    assert not list(client.read("flights"))


def test_errors_are_those_of_the_asyncio_client(client: blocking.Client) -> None:
    with pytest.raises(TopicNotFound):
        client.create_producer("nowhere")


def test_a_forked_child_is_refused(client: blocking.Client) -> None:
    def work() -> None:
        with pytest.raises(UsedAfterFork):
            client.admin.topics.list()
        client.close()  # Does nothing there.

    assert in_child(work) == 0
    assert client.admin.topics.list() == []


def test_a_closed_client_is_refused(cluster: FakeCluster) -> None:
    client = blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=FAST)
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.admin.topics.list()
    assert not cluster.net.links


class Caller:
    """A thread that makes a call.

    Attributes:
        error: what it raised.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self.error = error

    def ended(self) -> bool:
        """Whether the call has ended, within some seconds."""
        self._thread.join(PATIENCE_S)
        return not self._thread.is_alive()


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_call_of_another_thread_ends_with_the_client(has_begun: bool) -> None:
    """It hung for ever: the loop stood still, and nobody was left to answer."""
    loop = LoopThread()
    waiting, holding, may_go_on = (threading.Event() for _ in range(3))

    def hold() -> None:
        holding.set()
        may_go_on.wait(PATIENCE_S)

    async def work() -> None:
        waiting.set()
        await for_ever()

    if not has_begun:
        # The loop takes nothing up before it is to stop.
        loop.post(hold)
        assert holding.wait(PATIENCE_S)
        caller = Caller(lambda: loop.wait(work()))
        wait_until(lambda: len(loop._running.loop._ready) > 0)  # type: ignore[attr-defined]
        closer = Caller(loop.close)
        wait_until(lambda: loop._running._closed)
        may_go_on.set()
    else:
        caller = Caller(lambda: loop.wait(work()))
        assert waiting.wait(PATIENCE_S)
        closer = Caller(loop.close)
    assert closer.ended()
    assert caller.ended()
    assert isinstance(caller.error, OutcomeUnknown)


def test_a_call_that_is_answered_as_the_client_closes_returns_the_answer() -> None:
    """It raised ClientClosed, "No effect", and a message was stored: fuzzed at real servers."""
    loop = LoopThread()
    waiting, holding, may_go_on = (threading.Event() for _ in range(3))
    answered = asyncio.Event()

    async def work() -> str:
        answer = asyncio.ensure_future(answered.wait())
        waiting.set()
        await asyncio.shield(answer)
        return "stored"

    def hold() -> None:
        holding.set()
        may_go_on.wait(PATIENCE_S)

    answers: list[str] = []
    caller = Caller(lambda: answers.append(loop.wait(work())))
    assert waiting.wait(PATIENCE_S)
    # The answer and the end of the loop come at the same moment.
    loop.post(hold)
    assert holding.wait(PATIENCE_S)
    loop.post(answered.set)
    closer = Caller(loop.close)
    wait_until(lambda: loop._running._closed)
    may_go_on.set()
    assert closer.ended()
    assert caller.ended()
    assert answers == ["stored"]


@pytest.mark.filterwarnings("error")
def test_a_call_that_comes_as_the_client_closes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It raised what asyncio says of a closed loop, or hung."""
    loop = LoopThread()
    give = asyncio.run_coroutine_threadsafe

    def close_first(*args: Any) -> Any:
        # As a signal handler may, between the check and what follows.
        loop.close()
        return give(*args)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", close_first)
    with pytest.raises(ClientClosed):
        loop.wait(for_ever())


@pytest.mark.parametrize(
    ("command", "reactions", "error"),
    [
        # What the first copy did is not known, whatever became of the second one.
        ("create_topic", (BREAK, LogUnavailable("busy")), OutcomeUnknown),
        ("create_topic", (LogUnavailable("busy"),), OutcomeUnknown),
        ("list_topics", (LogUnavailable("busy"),), ClientClosed),
    ],
    ids=["sent and refused", "refused", "asked"],
)
def test_a_request_of_another_thread_ends_with_the_client(
    cluster: FakeCluster, command: str, reactions: tuple[object, ...], error: type[Exception]
) -> None:
    """It hung for ever if it was about to be repeated, or heard that nothing had happened."""
    for_long = dataclasses.replace(
        FAST, backoff_ms_min=600_000, backoff_ms_max=600_000, operation_timeout_ms=600_000
    )
    client = blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=for_long)
    cluster.play.when(command).in_turn(*reactions)
    topics = client.admin.topics
    calls: dict[str, Callable[[], object]] = {
        "create_topic": lambda: topics.create("flights"),
        "list_topics": topics.list,
    }
    caller = Caller(calls[command])
    wait_until(lambda: len(cluster.play.commands(command)) == len(reactions))
    closers = [Caller(client.close) for _ in range(2)]
    for one in (*closers, caller):
        assert one.ended()
    assert [one.error for one in closers] == [None, None]
    assert isinstance(caller.error, error)


def test_threads_share_the_messages_of_a_consumer(
    cluster: FakeCluster, client: blocking.Client
) -> None:
    count = 5_000
    client.admin.topics.create("flights")
    producer = client.create_producer("flights")
    producer.send_many([b"%d" % n for n in range(count)])
    producer.flush()
    consumer = client.subscribe("flights", "s", initial_position="earliest")
    received: list[list[int]] = [[], [], []]

    def work(mine: list[int]) -> None:
        while True:
            try:
                message = consumer.receive(timeout_s=0.2)
            except TimeoutError:
                return
            assert message.value == b"%d" % message.offset
            mine.append(message.offset)
            consumer.ack_nowait(message)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in received]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine in received:
        assert mine == sorted(mine)
    assert sorted(offset for mine in received for offset in mine) == list(range(count))
    consumer.flush_acks()
    assert cluster.cursors["flights", "s", 0].acked == set(range(count))


def test_a_loop_needs_few_visits_of_the_clients_thread(
    client: blocking.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin.topics.create("flights")
    producer = client.create_producer("flights")
    producer.send_many([b"x"] * 400)
    producer.flush()
    consumer = client.subscribe("flights", "s", initial_position="earliest")
    visits = 0
    wait = consumer.loop.wait

    def counted(work: Coroutine[Any, Any, Any]) -> Any:
        nonlocal visits
        visits += 1
        return wait(work)

    monkeypatch.setattr(consumer.loop, "wait", counted)
    for message in consumer:
        consumer.ack_nowait(message)
        if message.offset == 399:
            break
    consumer.flush_acks()
    assert visits < 100


def test_a_closed_client_hands_out_nothing_more(cluster: FakeCluster) -> None:
    client = blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=FAST)
    client.admin.topics.create("flights")
    producer = client.create_producer("flights")
    producer.send_many([b"x"] * 10)
    producer.flush()
    consumer = client.subscribe("flights", "s", initial_position="earliest")
    first, second = consumer.receive(), consumer.receive()
    consumer.ack_nowait(first)
    client.close()
    with pytest.raises(ClientClosed):
        consumer.receive()
    with pytest.raises(ClientClosed):
        consumer.ack_nowait(second)
    assert list(consumer) == []


def test_a_forked_child_gets_no_message_and_acknowledges_none(client: blocking.Client) -> None:
    client.admin.topics.create("flights")
    producer = client.create_producer("flights")
    producer.send_many([b"x"] * 10)
    producer.flush()
    consumer = client.subscribe("flights", "s", initial_position="earliest")
    messages = [consumer.receive() for _ in range(3)]
    consumer.ack_nowait(messages[0])

    def work() -> None:
        with pytest.raises(UsedAfterFork):
            consumer.receive()
        with pytest.raises(UsedAfterFork):
            consumer.ack_nowait(messages[1])

    assert in_child(work) == 0
    assert consumer.receive().offset == 3


def test_a_wrong_consumer_fails_the_transaction(
    cluster: FakeCluster, client: blocking.Client
) -> None:
    """It was refused before the transaction heard of it, and the commit succeeded."""
    client.admin.topics.create("flights")
    others = asyncio.run(an_asyncio_consumer(cluster))
    for consumer in (None, "flights", others):
        producer: Any = client.transactional_producer()
        producer.begin()
        producer.send("flights", b"x")
        with pytest.raises((InvalidArgument, WrongEventLoop)):
            producer.acknowledge(consumer, [])
        with pytest.raises(CommitRefused):
            producer.commit()
    assert cluster.topics["flights"][1][0].messages == []


async def an_asyncio_consumer(cluster: FakeCluster) -> Consumer:
    other = await connect(cluster)
    return await other.subscribe("flights", "s")
