"""message_bytes_max holds for every message, however it comes: whole, in parts, compressed."""

from __future__ import annotations

import google_crc32c
import pytest
from tests.client.fakes import FakeCluster, run

from magnetar import BytesColumn, Client, ColumnBatch, MessageTooLarge
from magnetar.message import ReceivedBatch
from magnetar.messaging.receiving.assembly import Assembly
from magnetar_core.batch import (
    CHECKSUM,
    HEADER,
    ONE_MESSAGE_OVERHEAD_BYTES,
    Codec,
    decode,
    encode,
    encoded_properties,
    split,
)
from magnetar_core.errors import ChecksumMismatch
from magnetar_core.wire import broker_pb2

LIMIT = 1_000


def received(data: bytes, count: int = 1, first: int = 0) -> ReceivedBatch:
    wire = broker_pb2.DeliveredBatch(entry_id=first, num_messages=count, batch=data)
    return ReceivedBatch("t", 0, 1, wire, message_bytes_max=LIMIT)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    ("value", "key", "properties", "fits"),
    [
        (1_000, 0, {}, True),
        (1_001, 0, {}, False),
        (990, 10, {}, True),
        (990, 11, {}, False),
        (0, 1_000, {}, True),
        (0, 1_001, {}, False),
        (0, 0, {"p": "x" * 991}, True),
        (0, 0, {"p": "x" * 992}, False),
    ],
)
def test_of_a_message_all_that_it_is_counts(
    codec: Codec, value: int, key: int, properties: dict[str, str], fits: bool
) -> None:
    small = [b"a"] * 300
    batch = received(
        encode(
            [*small, bytes(value)],
            [b""] * 300 + [bytes(key)],
            properties=[b""] * 300 + [encoded_properties(properties)],
            codec=codec,
        ),
        301,
    )
    batch.check_sizes([(0, 299)], LIMIT)
    if fits:
        batch.check_sizes([(0, 300)], LIMIT)
    else:
        with pytest.raises(MessageTooLarge):
            batch.check_sizes([(0, 2), (300, 300)], LIMIT)


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("codec", list(Codec))
def test_a_message_in_parts_at_the_limit(codec: Codec, fits: bool) -> None:
    value = bytes(LIMIT if fits else LIMIT + 1)
    parts = split(encode([value], codec=codec), 200)
    assembly = Assembly(LIMIT)
    *before, last = (received(part, first=place) for place, part in enumerate(parts))
    for one in before:
        assert assembly.add(one) == (None, [])
    if fits:
        whole, _ = assembly.add(last)
        assert whole is not None
        assert whole.values == [value]
    else:
        with pytest.raises(MessageTooLarge):
            assembly.add(last)


def test_a_message_in_parts_that_opens_into_more_than_it_may_is_not_opened() -> None:
    """Small parts became 1.6 GB in the hands of the application, under a limit of 1 MiB."""
    parts = split(encode([bytes(50 << 20)], codec=Codec.ZSTD), 4_000)
    assembly = Assembly(1 << 20)
    *before, last = (received(part, first=place) for place, part in enumerate(parts))
    for one in before:
        assembly.add(one)
    with pytest.raises(MessageTooLarge):
        assembly.add(last)


def test_a_batch_that_declares_gigabytes_is_not_opened() -> None:
    batch = encode([b"x"], codec=Codec.ZSTD)
    fields = list(HEADER.unpack_from(batch))
    fields[4] = 3 << 29
    lie = HEADER.pack(*fields) + batch[HEADER.size : -CHECKSUM.size]
    lie += CHECKSUM.pack(google_crc32c.value(lie))
    with pytest.raises(MessageTooLarge):
        received(lie).check_sizes([(0, 0)], LIMIT)
    with pytest.raises(MessageTooLarge):
        decode(lie)


def test_what_one_message_adds_to_a_body() -> None:
    body = encode([None], [b""], event_times_ms=[1], properties=[b"{}"])
    columns = decode(body)
    size = HEADER.unpack_from(body)[4] - columns.largest_message_bytes(0, 0)
    assert size == ONE_MESSAGE_OVERHEAD_BYTES


def test_a_consumer_stops_at_a_message_that_is_too_large() -> None:
    """5,000 bytes passed a limit of 1,000, for they came whole."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        consumer = await client.subscribe(
            "t", "s", initial_position="earliest", message_bytes_max=LIMIT
        )
        await producer.send(b"x" * LIMIT)
        assert (await consumer.receive()).value == b"x" * LIMIT
        await producer.send(b"x" * (LIMIT + 1))
        with pytest.raises(MessageTooLarge, match="raise message_bytes_max"):
            await consumer.receive()

    run(test)


def test_a_producer_refuses_what_is_too_large_however_small_its_batch() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", message_bytes_max=LIMIT)
        with pytest.raises(MessageTooLarge):
            await producer.send(b"x" * 1_001)
        with pytest.raises(MessageTooLarge):
            await producer.send(b"x" * 900, b"k" * 101)
        with pytest.raises(MessageTooLarge):
            await producer.send(b"", properties={"p": "x" * 1_000})
        with pytest.raises(MessageTooLarge):
            producer.send_nowait(b"x" * 1_001)
        with pytest.raises(MessageTooLarge):
            await producer.send_many([b"a", b"x" * 990], [b"k", b"k" * 11])
        with pytest.raises(MessageTooLarge):
            await producer.send_columns([columns(1_001)])
        await producer.send_columns([columns(1_000)])
        await producer.send(b"y" * 1_000)
        assert [len(one) for one in partition.messages] == [1_000, 1_000]

    run(test)


def columns(length: int) -> ColumnBatch:
    offsets = bytes(4) + length.to_bytes(4, "little")
    return ColumnBatch(1, BytesColumn(offsets, bytes(length)))


def test_a_damaged_batch_is_left_to_whoever_is_handed_it_out() -> None:
    data = bytearray(encode([bytes(2_000)], codec=Codec.ZSTD))
    data[HEADER.size + 3] ^= 0xFF
    batch = received(bytes(data))
    batch.check_sizes([(0, 0)], LIMIT)
    with pytest.raises(ChecksumMismatch):
        _ = batch.columns
