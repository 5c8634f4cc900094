"""Messages are checked and copied at the call: one caller's mistake fails that call alone.

Others lost their messages to it (FLINK-29207; KIP-228), or stored what was changed after the call
(KAFKA-19012).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from inspect import isawaitable
from typing import Any

import numpy as np
import pytest
from tests.client.fakes import BROKER_ADDRESS, REAL_TIME, FakeCluster, run
from tests.playbook import HOLD
from tests.waiting import turns

from magnetar import Client, ClientConfig, Message, Producer, blocking
from magnetar.message import ReceivedBatch
from magnetar_core.errors import InvalidArgument, QuotaExceeded
from magnetar_core.wire import broker_pb2

INT64_MAX = (1 << 63) - 1


class Unreadable(Mapping[str, str]):
    """What another thread changes while it is read."""

    def __getitem__(self, key: str) -> str:
        raise KeyError(key)

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("dictionary changed size during iteration")


def released() -> memoryview:
    view = memoryview(b"v")
    view.release()
    return view


# What names the argument in the error, and a message that has it.
BAD: list[tuple[str, dict[str, Any]]] = [
    ("value", {"value": "text"}),
    ("value", {"value": [None]}),
    ("value", {"value": 5}),
    ("value", {"value": [1, 2]}),
    ("value", {"value": released()}),
    ("key", {"key": "text"}),
    ("key", {"key": 5}),
    ("event_time_ms", {"event_time_ms": 1 << 63}),
    ("event_time_ms", {"event_time_ms": -(1 << 63)}),
    ("event_time_ms", {"event_time_ms": (1 << 64) - 1}),
    ("event_time_ms", {"event_time_ms": 1_700_000_000_000.5}),
    ("event_time_ms", {"event_time_ms": "5"}),
    ("event_time_ms", {"event_time_ms": True}),
    ("event_time_ms", {"event_time_ms": np.float64(5)}),
    ("properties", {"properties": {"a": 1}}),
    ("properties", {"properties": {"a": None}}),
    ("properties", {"properties": {"a": b"1"}}),
    ("properties", {"properties": {"a": ["x"]}}),
    ("properties", {"properties": {"a": {"b": "c"}}}),
    ("properties", {"properties": {b"a": "x"}}),
    ("properties", {"properties": {1: "x"}}),
    ("properties", {"properties": {"a": "\ud800"}}),
    ("properties", {"properties": {"\udfff": "a"}}),
    ("properties", {"properties": [("a", "b")]}),
    ("properties", {"properties": []}),
    ("properties", {"properties": "ab"}),
    ("properties", {"properties": Unreadable()}),
    ("partition", {"partition": "0"}),
    ("partition", {"partition": 0.0}),
    ("partition", {"partition": True}),
    ("partition", {"partition": -1}),
    ("partition", {"partition": 1}),
    ("partition", {"partition": 1 << 70}),
]
SENDS: list[Callable[[Producer], Callable[..., Any]]] = [
    lambda producer: producer.send,
    lambda producer: producer.send_nowait,
    lambda producer: producer.enqueue,
]
each_send = pytest.mark.parametrize("send_of", SENDS, ids=["send", "send_nowait", "enqueue"])


def received(cluster: FakeCluster, topic: str = "t") -> list[Message]:
    """What consumers get of a topic's only partition."""
    (partition,) = cluster.topics[topic][1]
    found = []
    for first, count, data, _ in partition.batches:
        wire = broker_pb2.DeliveredBatch(entry_id=first, num_messages=count, batch=data)
        found += [Message(ReceivedBatch(topic, 0, 1, wire), place) for place in range(count)]
    return found


async def call(send: Callable[..., Any], message: dict[str, Any]) -> None:
    called = send(**message)
    if isawaitable(called):
        await called


@each_send
def test_a_bad_message_is_refused_at_once_and_nothing_else_is_harmed(
    send_of: Callable[[Producer], Callable[..., Any]],
) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t", linger_ms=20)
        for name, bad in BAD:
            good = [asyncio.ensure_future(producer.send(b"awaited"))]
            await turns()
            producer.send_nowait(b"not awaited")
            with pytest.raises(InvalidArgument, match=name) as raised:
                await call(send_of(producer), {"value": b"bad", **bad})
            assert raised.value.details["argument"] == name, bad
            await asyncio.gather(*good)
            await producer.flush()
            assert [one.value for one in received(cluster)[-2:]] == [b"awaited", b"not awaited"]
        assert len(received(cluster)) == 2 * len(BAD)

    run(test)


def test_columns_of_many_messages_are_refused_as_a_whole() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer: Any = await client.create_producer("t", batch_messages_max=2)
        for name, values, keys in (
            ("values", 5, None),
            ("values", b"text", None),
            (r"values\[4\]", [b"v"] * 4 + ["v"], None),
            (r"keys\[1\]", [b"v"] * 2, [b"k", 5]),
            ("1 keys for 2 values", [b"v"] * 2, [b"k"]),
            ("0 keys for 2 values", [b"v"] * 2, []),
        ):
            with pytest.raises(InvalidArgument, match=name):
                await producer.send_many(values, keys)
        with pytest.raises(InvalidArgument, match="partition"):
            await producer.send_many([b"v"], partition="0")
        with pytest.raises(InvalidArgument, match="batches"):
            await producer.send_columns([b"v"])
        await producer.send_many((bytearray(b"a"), memoryview(b"b")), iter([b"k", bytearray(b"l")]))
        await producer.flush()
        assert [(one.value, one.key) for one in received(cluster)] == [(b"a", b"k"), (b"b", b"l")]
        assert partition.messages == [b"a", b"b"]

    run(test)


@each_send
def test_what_is_changed_after_the_call_changes_nothing(
    send_of: Callable[[Producer], Callable[..., Any]],
) -> None:
    """All messages had the properties of the last one."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t", linger_ms=20)
        value, key, properties = bytearray(b"0"), bytearray(b"0"), {"n": "0"}
        sends = []
        for number in range(5):
            value[:] = key[:] = b"%d" % number
            properties["n"] = str(number)
            called = send_of(producer)(value, memoryview(key), properties=properties)
            if isawaitable(called):
                sends.append(asyncio.ensure_future(called))
                # A coroutine takes its arguments with its first step.
                await turns()
        await producer.flush()
        await asyncio.gather(*sends)
        assert [(one.value, one.key, one.properties["n"]) for one in received(cluster)] == [
            (b"%d" % number, b"%d" % number, str(number)) for number in range(5)
        ]

    run(test)


def test_what_is_changed_while_a_call_waits_for_room_changes_nothing() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.play.when("send").once(HOLD)
        producer = await client.create_producer("t", batch_messages_max=1)
        producer.send_nowait(b"first")
        with pytest.raises(QuotaExceeded):
            producer.send_nowait(b"second")
        value, properties, values = bytearray(b"v"), {"a": "b"}, [b"x", b"y"]
        calls: list[Awaitable[object]] = [
            producer.send(value, properties=properties),  # type: ignore[arg-type]
            producer.enqueue(value, properties=properties),  # type: ignore[arg-type]
            producer.send_many(values),
        ]
        waiting = [asyncio.ensure_future(one) for one in calls]
        await turns()
        value[:] = b"changed"
        properties.clear()
        values.clear()
        await cluster.play.holds(1)
        cluster.play.release()
        await asyncio.gather(*waiting)
        await producer.flush()
        found = [(one.value, dict(one.properties)) for one in received(cluster)]
        expected = [(b"v", {"a": "b"}), (b"v", {"a": "b"}), (b"x", {}), (b"y", {})]
        assert sorted(found, key=repr) == sorted([(b"first", {}), *expected], key=repr)

    run(test, ClientConfig(pending_messages_max=1))


def test_what_is_changed_while_a_topic_is_looked_up_changes_nothing() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.topic("u")
        producer = client.transactional_producer()
        await producer.begin()
        cluster.play.when("lookup").in_turn(HOLD, HOLD)
        value, key, properties = bytearray(b"v"), bytearray(b"k"), {"a": "b"}
        given: Any = {"value": value, "key": key, "properties": properties}
        waiting = [
            asyncio.ensure_future(producer.send("t", **given)),
            asyncio.ensure_future(producer.enqueue("u", **given)),
        ]
        await cluster.play.holds(2)
        value[:] = b"!"
        key[:] = b"!"
        properties.clear()
        cluster.play.release()
        await asyncio.gather(*waiting)
        await producer.commit()
        for topic in "t", "u":
            (found,) = received(cluster, topic)
            assert (found.value, found.key, dict(found.properties)) == (b"v", b"k", {"a": "b"})

    run(test)


@pytest.mark.parametrize("txn", [5, {}, "transaction", object()])
def test_what_is_no_transaction_is_refused_with_nothing_to_send(txn: Any) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        with pytest.raises(InvalidArgument, match="txn must be a Transaction"):
            await producer.send_many([], txn=txn)
        with pytest.raises(InvalidArgument, match="txn must be a Transaction"):
            await producer.send_columns([], txn=txn)

    run(test)


def test_event_times_at_their_edges_and_none() -> None:
    """The first millisecond of 1970 came back as no time."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer: Any = await client.create_producer("t", linger_ms=20)
        times = [None, 0, 1, -1, None, INT64_MAX, -INT64_MAX, np.int64(7)]
        for time_ms in times:
            producer.send_nowait(b"v", event_time_ms=time_ms)
        await producer.flush()
        assert [one.event_time_ms for one in received(cluster)] == times

    run(test)


def test_texts_of_properties_come_back() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t", linger_ms=20)
        texts = [
            {"": ""},
            {'"': "\\", "\n": "\x00\x1f\x7f", "é": "e\u0301", "\U0001f600": "\u2028"},
            {f"name {number}": "x" * number for number in range(300)},
        ]
        for properties in texts:
            producer.send_nowait(b"v", properties=properties)
        await producer.flush()
        assert [one.properties for one in received(cluster)] == texts

    run(test)


def test_a_blocking_producer_refuses_the_same() -> None:
    cluster = FakeCluster()
    with blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=REAL_TIME) as client:
        client.admin.topics.create("t")
        producer: Any = client.create_producer("t")
        for name, bad in BAD:
            for send in (producer.send, producer.send_nowait, producer.enqueue):
                with pytest.raises(InvalidArgument, match=name):
                    send(**{"value": b"bad", **bad})
        producer.send(b"good")
        assert [one.value for one in client.read("t")] == [b"good"]
