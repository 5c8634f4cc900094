"""Messages without a value, and empty keys, in the commands that show or build messages."""

from __future__ import annotations

import pytest
from google.protobuf import json_format
from tests.broker.harness import World, partition, run, send, txn

from magnetar_core.batch import Codec, encode, split
from magnetar_core.errors import InvalidArgument
from magnetar_core.wire import broker_pb2 as wire

MESSAGES = [
    wire.Message(key=b"k", value=b"v"),
    wire.Message(key=b"k", null_value=True),
    wire.Message(key=b"", value=b""),
    wire.Message(null_value=True, event_time_ms=5, properties={"a": "b"}),
    wire.Message(value=b"v"),
]


def content(message: wire.Message) -> tuple[bytes | None, bytes | None]:
    assert not (message.null_value and message.value)
    return (
        message.key if message.HasField("key") else None,
        None if message.null_value else message.value,
    )


@pytest.mark.parametrize("in_transaction", [False, True])
def test_what_is_published_is_peeked(in_transaction: bool) -> None:
    async def scenario(world: World) -> None:
        publish = wire.CommandPublish(partition=partition(), messages=MESSAGES)
        if in_transaction:
            publish.txn_id.CopyFrom(txn(1).to_wire())
        await world.client.ask(publish)
        found = await world.client.ask(
            wire.CommandPeek(partition=partition(), uncommitted=in_transaction)
        )
        assert list(map(content, found.messages)) == list(map(content, MESSAGES))
        shown = json_format.MessageToDict(found.messages[1])
        assert (shown["nullValue"], shown["key"]) == (True, "aw==")
        assert "nullValue" not in json_format.MessageToDict(found.messages[2])

    run(scenario)


@pytest.mark.parametrize("codec", list(Codec))
def test_what_an_sdk_sends_is_peeked(codec: Codec) -> None:
    async def scenario(world: World) -> None:
        command = send(*[b""] * 3)
        command.batch = encode([None, b"", b"v"], [b"", b"k", None], codec=codec)
        await world.client.ask(command)
        found = await world.client.ask(wire.CommandPeek(partition=partition()))
        assert list(map(content, found.messages)) == [(b"", None), (b"k", b""), (None, b"v")]

    run(scenario)


def test_a_part_of_a_message_without_a_value_is_shown_as_its_piece() -> None:
    async def scenario(world: World) -> None:
        whole = encode([None], [bytes(100)])
        first, *_ = split(whole, 100)
        command = send(b"", in_txn=txn(1))
        command.batch = first
        await world.client.ask(command)
        peek = wire.CommandPeek(partition=partition(), uncommitted=True)
        (found,) = (await world.client.ask(peek)).messages
        assert found.value == whole[: len(found.value)]
        assert content(found)[0] is None

    run(scenario)


def test_a_value_beside_the_word_that_there_is_none_is_refused() -> None:
    async def scenario(world: World) -> None:
        messages = [wire.Message(value=b"v"), wire.Message(value=b"v", null_value=True)]
        with pytest.raises(InvalidArgument, match="message 1 has null_value, and a value"):
            await world.client.ask(wire.CommandPublish(partition=partition(), messages=messages))
        assert world.partition().log.end_offset == 0

    run(scenario)
