"""Produce: what is stored, what is refused, and what is a repeat."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from tests.kafka_clients.harness import KafkaWorld, batch, produce, produced, run, sealed

from magnetar_broker import keys
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis

ID = 77


def idempotent(*values: bytes, sequence: int, epoch: int = 0) -> bytes:
    return batch(*values, producer_id=ID, epoch=epoch, sequence=sequence)


def test_a_batch_is_stored_as_it_came_and_our_readers_open_it() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        expected = 0
        for version in range(apis.PRODUCE.first, apis.PRODUCE.last + 1):
            answer = await client.ask(apis.PRODUCE, produce(batch(b"a", b"b")), version)
            assert produced(answer) == [(ErrorCode.NONE, expected)]
            expected += 2
        assert await world.read() == [b"a", b"b"] * 10
        assert world.metric("requests_total", api="Produce", error="NONE") == 10

    run(scenario)


def test_a_producer_without_an_id_leaves_no_row() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        same = batch(b"a")
        assert produced(await client.ask(apis.PRODUCE, produce(same))) == [(ErrorCode.NONE, 0)]
        assert produced(await client.ask(apis.PRODUCE, produce(same, acks=1))) == [
            (ErrorCode.NONE, 1)
        ]
        assert await world.rows(keys.PRODUCERS) == []

    run(scenario)


def test_repeats_gaps_and_unknown_producers() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()

        async def said(data: bytes) -> tuple[ErrorCode, int]:
            (found,) = produced(await client.ask(apis.PRODUCE, produce(data)))
            return found

        unknown = ErrorCode.UNKNOWN_PRODUCER_ID, -1
        out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        assert await said(idempotent(b"x", sequence=5)) == unknown
        assert await said(idempotent(b"a", b"b", sequence=0)) == (ErrorCode.NONE, 0)
        assert await said(idempotent(b"c", sequence=2)) == (ErrorCode.NONE, 2)
        assert await said(idempotent(b"a", b"b", sequence=0)) == (ErrorCode.NONE, 0)
        assert await said(idempotent(b"x", sequence=4)) == out_of_order
        assert await said(idempotent(b"b", b"c", b"d", sequence=1)) == out_of_order
        assert await world.read() == [b"a", b"b", b"c"]

    run(scenario)


def test_a_killed_broker_knows_sequences_and_epochs_again() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        await client.ask(apis.PRODUCE, produce(idempotent(b"a", sequence=0, epoch=3)))
        await client.ask(apis.PRODUCE, produce(idempotent(b"b", sequence=0, epoch=4)))
        await client.ask(apis.PRODUCE, produce(idempotent(b"c", sequence=1, epoch=4)))
        await world.restart()
        client = await world.connect()
        rows = [
            (idempotent(b"z", sequence=1, epoch=3), (ErrorCode.INVALID_PRODUCER_EPOCH, -1)),
            (idempotent(b"c", sequence=1, epoch=4), (ErrorCode.NONE, 2)),
            # The place of an earlier batch is forgotten, but not that it came.
            (idempotent(b"b", sequence=0, epoch=4), (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)),
            (idempotent(b"d", sequence=2, epoch=4), (ErrorCode.NONE, 3)),
            (idempotent(b"x", sequence=7, epoch=5), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)),
            (idempotent(b"e", sequence=0, epoch=5), (ErrorCode.NONE, 4)),
            (idempotent(b"z", sequence=3, epoch=4), (ErrorCode.INVALID_PRODUCER_EPOCH, -1)),
        ]
        for data, expected in rows:
            assert produced(await client.ask(apis.PRODUCE, produce(data))) == [expected]
        assert await world.read() == [b"a", b"b", b"c", b"d", b"e"]
        # Only the newest epoch has a row.
        assert len(await world.rows(keys.PRODUCERS)) == 1

    run(scenario)


def test_sequences_begin_at_0_again_after_the_highest() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        await client.ask(apis.PRODUCE, produce(idempotent(b"a", sequence=0)))
        producer = world.partition().producers.get(ID << 16)
        assert producer is not None
        producer.next_sequence_id = (1 << 31) - 1
        for value, sequence, offset in ((b"b", (1 << 31) - 1, 1), (b"c", 0, 2), (b"c", 0, 2)):
            answer = await client.ask(apis.PRODUCE, produce(idempotent(value, sequence=sequence)))
            assert produced(answer) == [(ErrorCode.NONE, offset)]

    run(scenario)


def test_acks_0_is_not_answered_and_an_error_ends_the_connection() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.tell(apis.PRODUCE, produce(batch(b"a"), acks=0))
        client._asked.clear()
        answer = await client.ask(apis.PRODUCE, produce(batch(b"b")))
        assert produced(answer) == [(ErrorCode.NONE, 1)]
        client.tell(apis.PRODUCE, produce(batch(b"c"), acks=0, topic="none"))
        assert await client.is_closed()
        assert world.metric("connections_closed_total", reason="refused") == 1

    run(scenario)


def damaged(at: int, value: int) -> bytes:
    made = bytearray(batch(b"a", b"b"))
    made[at] = value
    return bytes(made)


def changed(change: Callable[[bytearray], None]) -> bytes:
    made = bytearray(batch(b"a", b"b"))
    change(made)
    return sealed(made)


def count_of_3(made: bytearray) -> None:
    made[57:61] = (3).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch(b"a")[:40], ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (damaged(16, 0), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (damaged(16, 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (damaged(70, 0xFF), ErrorCode.CORRUPT_MESSAGE),
        (changed(count_of_3), ErrorCode.INVALID_RECORD),
        (batch(b"a", attributes=1 << 5), ErrorCode.INVALID_RECORD),
        (batch(b"a", attributes=1 << 4), ErrorCode.INVALID_TXN_STATE),
        (batch(b"a", attributes=1 << 3), ErrorCode.INVALID_TIMESTAMP),
        (batch(b"a", attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (batch(b"a", producer_id=1 << 47, epoch=0, sequence=0), ErrorCode.INVALID_RECORD),
        (batch(b"a", producer_id=1, epoch=-1, sequence=0), ErrorCode.INVALID_RECORD),
        (batch(b"a", producer_id=1, epoch=0, sequence=-1), ErrorCode.INVALID_RECORD),
        (batch(bytes(20_000)), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=itertools.count(),
)
def test_what_cannot_be_stored_is_refused_by_itself(data: bytes | None, code: ErrorCode) -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        answer = await client.ask(apis.PRODUCE, produce(batch(b"x"), data, batch(b"y")))
        assert produced(answer) == [(ErrorCode.NONE, 0), (code, -1), (ErrorCode.NONE, 1)]
        assert await world.read() == [b"x", b"y"]

    run(scenario, batch_bytes_max=10_000)


def test_requests_that_cannot_be_had_are_refused_whole() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        rows = [
            (produce(batch(b"a"), acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
            ({**produce(batch(b"a")), "transactional_id": "id"}, ErrorCode.INVALID_TXN_STATE),
            (produce(batch(b"a"), topic="none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (produce(batch(b"a"), number=2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (produce(batch(b"a"), number=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        for body, code in rows:
            assert produced(await client.ask(apis.PRODUCE, body)) == [(code, -1)]
        assert await world.read() == []

    run(scenario)


def test_an_answer_waits_until_the_batch_is_durable_and_the_next_request_does_not() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        world.stall()
        client.tell(apis.PRODUCE, produce(batch(b"a")))
        client.tell(apis.PRODUCE, produce(batch(b"b")))
        client.tell(apis.API_VERSIONS, {})
        from tests.waiting import until

        await until(lambda: world.partition().log.end_offset == 2)
        assert world.partition().log.durable_end == 0
        assert not world.metric("requests_total", api="Produce", error="NONE")
        await world.go_on()
        assert produced(await client.answer()) == [(ErrorCode.NONE, 0)]
        assert produced(await client.answer()) == [(ErrorCode.NONE, 1)]
        assert (await client.answer())["api_keys"]

    run(scenario)


def test_a_batch_of_ours_cannot_claim_to_be_of_kafka() -> None:
    from tests.broker.harness import partition

    from magnetar_core.batch import wrapped_records
    from magnetar_core.errors import InvalidArgument
    from magnetar_core.wire import broker_pb2 as wire

    async def scenario(world: KafkaWorld) -> None:
        data = wrapped_records(batch(b"a"), 1)
        with pytest.raises(InvalidArgument, match="port for Kafka's clients"):
            await world.client.ask(
                wire.CommandSend(
                    partition=partition(), producer_id=1, sequence_id=0, num_messages=1, batch=data
                )
            )

    run(scenario)
