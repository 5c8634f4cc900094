"""An asyncio client belongs to the event loop in which it was made: everywhere else it says so."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.fakes import BROKER_ADDRESS, REAL_TIME, FakeCluster
from tests.waiting import turns, until

import magnetar
from magnetar import Client, CommitRefused, WrongEventLoop


async def connect(cluster: FakeCluster) -> Client:
    """Connect in real time, on whatever event loop runs."""
    return await magnetar.connect(BROKER_ADDRESS, transport=cluster.transport(), config=REAL_TIME)


class Things:
    """A client, and all that it makes."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    async def make(self) -> Things:
        self.client = await connect(self._cluster)
        await self.client.admin.topics.create("t")
        self.producer = await self.client.create_producer("t")
        self.consumer = await self.client.subscribe("t", "s", initial_position="earliest")
        self.group = await self.client.consumer_group("g", "t")
        self.txn = await self.client.begin_transaction()
        self.transactional = self.client.transactional_producer()
        self.message = await self._received()
        return self

    async def _received(self) -> magnetar.Message:
        await self.producer.send(b"first")
        return await self.consumer.receive()

    async def check(self, *, txn_fails: bool = False) -> None:
        """Everything still works where it was made.

        Args:
            txn_fails: a call in the transaction did not succeed.
        """
        await self.consumer.ack(self.message)
        if txn_fails:
            with pytest.raises(CommitRefused):
                await self.txn.commit()
        else:
            await self.producer.send(b"later", txn=self.txn)
            await self.txn.commit()
        stored = [b"first"] if txn_fails else [b"first", b"later"]
        assert [one.value async for one in self.client.read("t")] == stored
        await self.client.close()


async def _transaction(things: Things) -> None:
    async with things.client.transaction():
        pass


async def _read(things: Things) -> None:
    async for _ in things.client.read("t"):
        pass


CALLS: dict[str, Callable[[Things], Any]] = {
    "send": lambda things: things.producer.send(b"x"),
    "send_nowait": lambda things: things.producer.send_nowait(b"x"),
    "send_nowait with a key": lambda things: things.producer.send_nowait(b"x", b"k"),
    "send_many": lambda things: things.producer.send_many([b"x"]),
    "enqueue": lambda things: things.producer.enqueue(b"x"),
    "send in a transaction": lambda things: things.producer.send(b"x", txn=things.txn),
    "flush": lambda things: things.producer.flush(),
    "close of a producer": lambda things: things.producer.close(),
    "receive": lambda things: things.consumer.receive(),
    "receive_batch": lambda things: things.consumer.receive_batch(),
    "ack": lambda things: things.consumer.ack(things.message),
    "ack_nowait": lambda things: things.consumer.ack_nowait(things.message),
    "ack in a transaction": lambda things: things.consumer.ack(things.message, txn=things.txn),
    "nack": lambda things: things.consumer.nack(things.message),
    "flush_acks": lambda things: things.consumer.flush_acks(),
    "seek": lambda things: things.consumer.seek(offset=0),
    "close of a consumer": lambda things: things.consumer.close(),
    "poll": lambda things: things.group.poll(),
    "close of a group's consumer": lambda things: things.group.close(),
    "commit": lambda things: things.txn.commit(),
    "abort": lambda things: things.txn.abort(),
    "leave": lambda things: things.txn.leave(),
    "begin": lambda things: things.transactional.begin(),
    "begin_transaction": lambda things: things.client.begin_transaction(),
    "transaction": _transaction,
    "create_producer": lambda things: things.client.create_producer("t"),
    "subscribe": lambda things: things.client.subscribe("t", "other"),
    "consumer_group": lambda things: things.client.consumer_group("other", "t"),
    "read": _read,
    "cut": lambda things: things.client.cut("t"),
    "admin": lambda things: things.client.admin.topics.list(),
    "close": lambda things: things.client.close(),
}


async def _call(things: Things, call: Callable[[Things], Any]) -> None:
    result = call(things)
    if asyncio.iscoroutine(result):
        await result


def refused(things: Things, name: str) -> BaseException | None:
    """Return what a call raises in an event loop of its own."""
    try:
        asyncio.run(asyncio.wait_for(_call(things, CALLS[name]), 5))
    except BaseException as error:
        return error
    return None


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_loop_that_has_ended(name: str) -> None:
    """One asyncio.run() for each call, as of tasks and views. Some calls waited for ever."""
    things = asyncio.run(Things(FakeCluster()).make())
    error = refused(things, name)
    assert isinstance(error, WrongEventLoop), error
    assert "which has ended, and here is another one" in str(error)


@pytest.mark.parametrize("name", CALLS)
def test_a_loop_of_another_thread(name: str) -> None:
    async def main() -> None:
        things = await Things(FakeCluster()).make()
        error = await asyncio.to_thread(refused, things, name)
        assert isinstance(error, WrongEventLoop), error
        assert "and here is another one" in str(error)
        await things.check(txn_fails=name.endswith("in a transaction"))

    asyncio.run(main())


def test_a_thread_without_a_loop() -> None:
    async def main() -> None:
        things = await Things(FakeCluster()).make()
        for call in (
            lambda: things.producer.send_nowait(b"x"),
            lambda: things.consumer.ack_nowait(things.message),
            lambda: things.client.transactional_producer("id"),
        ):
            with pytest.raises(WrongEventLoop, match="here is no event loop"):
                await asyncio.to_thread(call)
        await things.check()

    asyncio.run(main())


def test_messages_that_wait_when_the_loop_ends_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main() -> magnetar.Producer:
        client = await connect(FakeCluster())
        await client.admin.topics.create("t")
        producer = await client.create_producer("t", linger_ms=60_000)
        for _ in range(3):
            producer.send_nowait(b"x")
        return producer

    with pytest.warns(ResourceWarning, match=r"unclosed magnetar\.Client"):
        producer = asyncio.run(main())
    assert "3 messages were not stored or confirmed: 3 to 't'" in capsys.readouterr().err

    async def again() -> None:
        # Not into the batch that waits: no timer will send it.
        producer.send_nowait(b"x")

    with pytest.raises(WrongEventLoop):
        asyncio.run(again())
    assert capsys.readouterr().err == ""


def test_a_loop_may_move_to_another_thread() -> None:
    """Between two runs of it, as frameworks do."""
    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(connect(FakeCluster()))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            loop.run_until_complete(client.admin.topics.list())
            loop.run_until_complete(client.close())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    loop.close()
    assert failures == []


def test_a_program_that_cancels_its_tasks_keeps_its_client() -> None:
    """It ends no loop by that: links are made again."""

    async def main() -> None:
        client = await connect(FakeCluster())
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await client.admin.topics.create("t")
        await client.close()

    asyncio.run(main())


Make = Callable[[Client], Awaitable[object]]


async def _nothing(client: Client) -> None:
    pass


async def _producer(client: Client) -> object:
    producer = await client.create_producer("t")
    producer.send_nowait(b"x")
    return producer


async def _consumer(client: Client) -> object:
    return await client.subscribe("t", "s")


async def _member(client: Client) -> object:
    return await client.consumer_group("g", "t")


async def _txn(client: Client) -> object:
    txn = await client.begin_transaction()
    await txn.abort()
    return txn


@pytest.mark.parametrize("make", [_nothing, _producer, _consumer, _member, _txn])
def test_a_client_that_is_dropped_closes(make: Make) -> None:
    """It kept its connections and tasks until the end of the process."""

    async def main() -> None:
        cluster = FakeCluster()

        def is_closed() -> bool:
            gc.collect()
            return not cluster.net.links

        others = asyncio.all_tasks()
        client = await connect(cluster)
        await client.admin.topics.create("t")
        held: list[object] = [client, await make(client)]
        del client
        if held[1] is not None:
            # What it has made works without a name for the client.
            del held[0]
            gc.collect()
            await turns(5)
            assert cluster.net.links
        with pytest.warns(ResourceWarning, match=r"unclosed magnetar\.Client"):  # noqa: PT031
            held.clear()
            await until(is_closed)
        await until(lambda: asyncio.all_tasks() == others)
        if make is _producer:
            assert cluster.topics["t"][1][0].messages == [b"x"]

    asyncio.run(main())


def test_a_closed_client_that_is_dropped_says_nothing() -> None:
    async def main() -> None:
        async with await connect(FakeCluster()):
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gc.collect()

    asyncio.run(main())
