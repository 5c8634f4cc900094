"""Messages, and errors about them, pass to other processes, and can be copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.fakes import FakeCluster, run

from magnetar import Client, Message, PoisonMessage
from magnetar.enums import CodecName
from magnetar.message import ReceivedBatch
from magnetar.messaging.receiving.assembly import Assembly
from magnetar_core.batch import encode, split
from magnetar_core.wire import broker_pb2

COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def fields(message: Message) -> tuple[object, ...]:
    names = [name for name, one in vars(Message).items() if isinstance(one, property)]
    return (repr(message), *(getattr(message, name) for name in names))


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_copy_of_a_message_is_the_same_message(how: str, codec: CodecName) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await client.admin.topics.create("t")
        producer = await client.create_producer("t", codec=codec)
        for number in range(100):
            producer.send_nowait(b"%d" % number)
            producer.send_nowait(b"v", b"k", properties={"a": "ä"}, event_time_ms=number + 1)
        await producer.flush()
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        messages = await consumer.receive_batch()
        copies = [COPIES[how](message) for message in messages]
        assert list(map(fields, copies)) == list(map(fields, messages))
        # A copy can be acknowledged as the message itself.
        await consumer.ack_many(copies)
        assert cluster.cursors["t", "s", 0].acked == set(range(200))

    run(test)


def test_a_message_is_pickled_without_the_others_of_its_batch() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await client.admin.topics.create("t")
        cluster.publish("t", [bytes(1_000)] * 1_000)
        first, *_ = [one async for one in client.read("t")]
        assert len(pickle.dumps(first)) < 4_000

    run(test)


@pytest.mark.parametrize("how", COPIES)
def test_a_message_in_parts(how: str) -> None:
    batch = encode([bytes(range(256))], [b"k"])
    assembly, whole = Assembly(1 << 20), None
    for offset, part in enumerate(split(batch, -(-len(batch) // 3))):
        wire = broker_pb2.DeliveredBatch(entry_id=offset, num_messages=1, batch=part)
        whole, _ = assembly.add(ReceivedBatch("t", 0, 1, wire))
    assert whole is not None
    message = Message(whole, 0)
    assert message.last_offset == 2
    assert fields(COPIES[how](message)) == fields(message)


@pytest.mark.parametrize("how", COPIES)
def test_columns_and_errors(how: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await client.admin.topics.create("t")
        cluster.publish("t", [b"a", b"b", b"c"])
        (columns,) = [one async for one in client.read_columns("t", 0, 1)]
        again = COPIES[how](columns)
        assert (again.values(), again.first_offset, again.last_offset) == ([b"b", b"c"], 1, 2)
        error = PoisonMessage(next(iter(columns)), 3)
        known = COPIES[how](error)
        assert (str(known), known.details) == (str(error), error.details)
        assert known.poison.value == b"b"

    run(test)
