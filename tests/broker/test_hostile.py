"""Hostile and clumsy clients: declared sizes, deep texts, acks of too much."""

from __future__ import annotations

from array import array
from typing import Any

import google_crc32c
import pytest
from tests.broker.harness import (
    Client,
    World,
    ack,
    flow,
    nack,
    partition,
    run,
    send,
    subscribe,
    subscription,
    txn,
)

from magnetar_broker.commands.subscription_commands import RANGES_MAX
from magnetar_broker.commands.views import PEEK_BYTES_MAX
from magnetar_core.batch import CHECKSUM, HEADER, Codec, decode, encode, encode_columns
from magnetar_core.errors import InternalError, InvalidArgument, MagnetarError, MessageTooLarge
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire


async def refused(client: Client, body: Any, error: type[MagnetarError]) -> MagnetarError:
    with pytest.raises(error) as raised:
        await client.ask(body)
    return raised.value


def declaring(
    batch: bytes, *, count: int | None = None, body_bytes: int | None = None
) -> wire.CommandSend:
    """A batch whose header says something else than it holds, with the right checksum."""
    magic, version, kind, real_count, real_body, stored, key_hash = HEADER.unpack_from(batch)
    count = real_count if count is None else count
    body_bytes = real_body if body_bytes is None else body_bytes
    header = HEADER.pack(magic, version, kind, count, body_bytes, stored, key_hash)
    sealed = header + batch[HEADER.size : -CHECKSUM.size]
    sealed += CHECKSUM.pack(google_crc32c.value(sealed))
    return wire.CommandSend(partition=partition(), producer_id=1, num_messages=count, batch=sealed)


# Sizes and counts


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_batch_may_not_declare_more_than_it_can_hold(codec: Codec, in_transaction: bool) -> None:
    async def scenario(world: World) -> None:
        batch = encode([b"x"], codec=codec)
        for lie in (
            declaring(batch, count=4_000_000),
            declaring(batch, count=3),
            declaring(batch, body_bytes=7 << 20),
        ):
            if in_transaction:
                lie.txn_id.CopyFrom(txn(1).to_wire())
            with pytest.raises((InvalidArgument, MessageTooLarge)):
                await world.client.ask(lie)
        assert world.partition().log.end_offset == 0
        assert not world.partition().index.open

    run(scenario)


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4])
def test_a_small_batch_that_opens_into_much_is_refused_before_it_is_stored(codec: Codec) -> None:
    """49 KB declared 1.5 GiB and were stored: a Peek then took all memory."""

    async def scenario(world: World) -> None:
        bomb = encode([bytes(20 << 20)], codec=codec)
        assert len(bomb) < 200_000
        body = wire.CommandSend(partition=partition(), producer_id=1, num_messages=1, batch=bomb)
        error = await refused(world.client, body, MessageTooLarge)
        assert error.details["body_bytes_max"] == str(8 << 20)
        assert world.partition().log.end_offset == 0

    run(scenario)


def test_the_size_of_an_opened_batch_and_its_count_at_their_edge() -> None:
    async def scenario(world: World) -> None:
        fits = encode([bytes(9_988)], codec=Codec.ZSTD)
        assert len(decode(fits).value_bytes) == 9_988  # and twelve bytes of columns
        await world.client.ask(send_batch(fits, 1))
        over = encode([bytes(9_989)], codec=Codec.ZSTD)
        await refused(world.client, send_batch(over, 1, sequence=1), MessageTooLarge)
        await world.client.ask(send_batch(encode([b""] * 5), 5, sequence=1))
        await refused(world.client, send_batch(encode([b""] * 6), 6, sequence=6), MessageTooLarge)
        publish = wire.CommandPublish(
            partition=partition(), producer_id=9, messages=[wire.Message()] * 6
        )
        await refused(world.client, publish, MessageTooLarge)

    run(scenario, batch_bytes_max=10_000, batch_body_bytes_max=10_000, batch_messages_max=5)


def send_batch(batch: bytes, count: int, *, sequence: int = 0) -> wire.CommandSend:
    return wire.CommandSend(
        partition=partition(),
        producer_id=1,
        sequence_id=sequence,
        num_messages=count,
        batch=batch,
    )


@pytest.mark.parametrize("uncommitted", [False, True])
def test_a_peek_shows_a_bounded_number_of_bytes_and_says_where_to_go_on(uncommitted: bool) -> None:
    async def scenario(world: World) -> None:
        value = bytes(1 << 20)
        for sequence in range(12):
            batch = encode([value], codec=Codec.ZSTD)
            body = send_batch(batch, 1, sequence=sequence)
            if uncommitted:
                body.txn_id.CopyFrom(txn(1).to_wire())
            await world.client.ask(body)
        at, peeked = 0, 0
        while at < 12:
            answer = await world.client.ask(
                wire.CommandPeek(
                    partition=partition(),
                    start_offset=at,
                    messages_max=12,
                    uncommitted=uncommitted,
                )
            )
            assert answer.messages
            assert answer.ByteSize() < PEEK_BYTES_MAX + (2 << 20)
            peeked += len(answer.messages)
            at = answer.next_offset
        assert peeked == 12

    run(scenario)


# Every command is answered


@pytest.mark.parametrize(
    "properties",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"a": 5}',
        '{"a": null}',
        '{"a": "\\ud800"}',
        "[1]",
        "{",
    ],
    ids=["lists", "objects", "a number", "null", "half a character", "a list", "cut"],
)
@pytest.mark.parametrize("uncommitted", [False, True])
@pytest.mark.usefixtures("full_stack")
def test_a_peek_of_properties_that_are_none_is_answered(properties: str, uncommitted: bool) -> None:
    """The handler raised what nobody caught, and its client waited for ever."""

    async def scenario(world: World) -> None:
        body = send_batch(with_properties(properties.encode()), 1)
        if uncommitted:
            body.txn_id.CopyFrom(txn(1).to_wire())
        await world.client.ask(body)
        peek = wire.CommandPeek(partition=partition(), uncommitted=uncommitted)
        await refused(world.client, peek, InvalidArgument)
        end = 0 if uncommitted else 1
        answer = await world.client.ask(wire.CommandPeek(partition=partition(), start_offset=end))
        assert not answer.messages

    run(scenario)


def with_properties(text: bytes) -> bytes:
    """A batch of one message whose properties are this text."""
    return encode_columns(1, (_offsets(1), b"v"), properties=(_offsets(len(text)), text))


def _offsets(length: int) -> bytes:
    return array("i", [0, length]).tobytes()


@pytest.mark.parametrize("error", [RecursionError("deep"), KeyError("none"), InternalError("!")])
def test_a_command_whose_task_fails_is_answered(error: Exception) -> None:
    async def scenario(world: World) -> None:
        async def fails(*_: object, **__: object) -> None:
            raise error

        world.partition().reader.read = fails  # type: ignore[method-assign,assignment]
        await refused(world.client, wire.CommandRead(partition=partition()), InternalError)
        await world.client.ask(send(b"next"))

    run(scenario)


LONG = "n" * 5_000


@pytest.mark.parametrize(
    "body",
    [
        topic_wire.CommandLookup(topic=LONG),
        topic_wire.CommandDescribeTopic(topic=LONG),
        topic_wire.CommandCreateTopic(topic=LONG),
        wire.CommandRead(partition=common.Partition(topic=LONG)),
        wire.CommandSend(partition=common.Partition(topic=LONG)),
        wire.CommandSubscribe(subscription=common.Subscription(topic="t", subscription=LONG)),
        wire.CommandSubscribe(
            subscription=subscription("s"), consumer_id=1, consumer_name=LONG, attach_epoch=1
        ),
        wire.CommandAck(subscription=common.Subscription(topic="t", subscription=LONG)),
        common.CommandHello(protocol_version=PROTOCOL_VERSION, client_name=LONG),
        common.CommandHello(protocol_version=PROTOCOL_VERSION, cluster_hash=LONG),
    ],
    ids=lambda body: f"{type(body).__name__}",
)
def test_a_name_of_5000_characters_is_an_invalid_argument(body: Any) -> None:
    async def scenario(world: World) -> None:
        error = await refused(world.client, body, InvalidArgument)
        assert len(str(error)) < 1_000

    run(scenario)


# Acks that say less or more than they do


@pytest.mark.parametrize("kind", [wire.SHARED, wire.KEY_SHARED])
@pytest.mark.parametrize("in_txn", [None, txn(1)])
def test_a_cumulative_ack_does_not_take_what_other_consumers_hold(kind: int, in_txn: Any) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(*(b"%d" % number for number in range(4))))
        first, second = world.client, Client(world)
        for number, client in enumerate((first, second), start=1):
            await client.ask(subscribe(consumer=number, kind=kind))
        first.tell(flow(1, consumer=1))
        await world.settle()
        await refused(first, ack((0, 3), cumulative=True, in_txn=in_txn), InvalidArgument)
        cursor = world.subscription().cursor
        assert cursor.floor == 0
        assert not cursor.deleted
        assert not cursor.pending

    run(scenario)


def test_a_cumulative_ack_of_an_id_in_a_transaction_is_refused() -> None:
    """It acknowledged that one message, and said that all below it were."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(*(b"%d" % number for number in range(4))))
        await world.client.ask(subscribe(consumer=1))
        raw = ack(in_txn=txn(1), cumulative=True)
        raw.message_ids.add(ledger_id=1, entry_id=0, index=3)
        await refused(world.client, raw, InvalidArgument)
        assert not world.subscription().index.open
        await world.client.ask(ack((0, 3), in_txn=txn(1), cumulative=True))
        assert len(world.subscription().cursor.pending) == 4

    run(scenario)


@pytest.mark.parametrize("kind", ["ack", "transactional", "nack"])
def test_a_command_has_a_bounded_number_of_ranges(kind: str) -> None:
    """Half a million of them in one command held up everybody for a second."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        await world.client.ask(subscribe(consumer=1))
        for count, fits in ((RANGES_MAX, True), (RANGES_MAX + 1, False)):
            ranges = [(0, 0)] * count
            body = (
                nack(*ranges)
                if kind == "nack"
                else ack(*ranges, in_txn=txn(1) if kind == "transactional" else None)
            )
            if fits:
                await world.client.ask(body)
            else:
                await refused(world.client, body, InvalidArgument)

    run(scenario)
