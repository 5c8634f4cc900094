"""A message in pieces is what protobuf itself would have written, whatever stands in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.envelope import parsed

from magnetar.testing.envelope import command
from magnetar_core.transport.frames import FRAME_BYTES_SOFT_MAX, FrameWriter
from magnetar_core.transport.spliced import (
    PAYLOAD_BYTES_MIN,
    Spliced,
    byte_count_of,
    field_start,
    joined,
    serialized,
    spliced,
    varint,
    with_messages,
    with_payload,
)
from magnetar_core.transport.spliced import whole as whole_of
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2, transaction_pb2

# Lengths at which a varint gets another byte, and others.
SIZES = st.sampled_from([0, 1, 127, 128, 129, 16_383, 16_384, 70_000])


@given(st.lists(st.tuples(SIZES, st.integers(0, 1 << 40)), max_size=5), st.integers(0, 1 << 31))
def test_it_is_the_message_that_protobuf_makes(
    batches: list[tuple[int, int]], consumer_id: int
) -> None:
    head = broker_pb2.CommandDeliver(consumer_id=consumer_id, topic_id=7, partition=3)
    untouched = head.SerializeToString()
    whole = broker_pb2.CommandDeliver()
    whole.CopyFrom(head)
    parts = []
    for size, entry_id in batches:
        payload = bytes([size % 251]) * size
        fields: dict[str, Any] = {
            "entry_id": entry_id,
            "num_messages": 3,
            "excluded": [common_pb2.OffsetRange(first=1, last=2)],
        }
        whole.batches.add(batch=payload, **fields)
        parts.append(spliced(broker_pb2.DeliveredBatch(**fields), "batch", (payload,)))
    made = spliced(head, "batches", parts)
    assert broker_pb2.CommandDeliver.FromString(made.to_bytes()) == whole
    assert byte_count_of(made) == len(made.to_bytes()) == len(serialized(made))
    assert byte_count_of(whole) == len(serialized(whole))
    assert made.kind is type(head)
    assert whole_of(made) == whole
    assert head.SerializeToString() == untouched


@given(st.lists(st.sampled_from([0, 1, PAYLOAD_BYTES_MIN - 1, PAYLOAD_BYTES_MIN]), max_size=5))
def test_small_payloads_have_no_pieces_and_nobody_sees_a_difference(sizes: list[int]) -> None:
    whole = broker_pb2.CommandReadResponse(next_offset=7)
    bodies = []
    for number, size in enumerate(sizes):
        whole.batches.add(entry_id=number, batch=bytes(size))
        one = with_payload(broker_pb2.DeliveredBatch(entry_id=number), "batch", bytes(size))
        assert isinstance(one, Spliced) is (size >= PAYLOAD_BYTES_MIN)
        bodies.append(one)
    made = with_messages(broker_pb2.CommandReadResponse(next_offset=7), "batches", bodies)
    assert isinstance(made, Spliced) is (PAYLOAD_BYTES_MIN in sizes)
    assert broker_pb2.CommandReadResponse.FromString(serialized(made)) == whole
    assert byte_count_of(made) == len(serialized(made))


@given(st.integers(0, (1 << 64) - 1))
def test_a_number_is_written_as_protobuf_writes_it(number: int) -> None:
    message = broker_pb2.CommandFlow(consumer_id=number)
    tag = varint(broker_pb2.CommandFlow.DESCRIPTOR.fields_by_name["consumer_id"].number << 3)
    assert message.SerializeToString() == (tag + varint(number) if number else b"")


@given(SIZES, st.integers(0, 1 << 40))
def test_pieces_in_a_row_are_a_message(size: int, sequence_id: int) -> None:
    common = broker_pb2.CommandSend(producer_id=7, sequence_id=1).SerializeToString()
    own = broker_pb2.CommandSend(sequence_id=sequence_id or 2).SerializeToString()
    start = field_start(broker_pb2.CommandSend, "batch", size)
    made = joined(broker_pb2.CommandSend, common, own, start, bytes(size))
    expected = broker_pb2.CommandSend(
        producer_id=7, sequence_id=sequence_id or 2, batch=bytes(size)
    )
    assert whole_of(made) == expected
    assert byte_count_of(made) == len(made.to_bytes())


def test_a_field_without_a_length_cannot_have_pieces() -> None:
    with pytest.raises(TypeError, match="entry_id has no length"):
        spliced(broker_pb2.DeliveredBatch(), "entry_id", (b"x",))


@pytest.mark.parametrize("size", [10, 300 << 10])
def test_frames_have_commands_in_order_whether_in_pieces_or_not(size: int) -> None:
    def send(number: int) -> broker_pb2.CommandSend:
        return broker_pb2.CommandSend(sequence_id=number, batch=bytes(size))

    async def scenario() -> list[service_pb2.Frame]:
        frames: list[service_pb2.Frame] = []
        writer = FrameWriter(parsed(frames.append))
        for number in range(1, 13):
            if number % 4 == 3:
                writer.send(common_pb2.CommandHello(client_name="c"), number)
            elif number % 4 == 0:
                writer.send(send(number), number)
            else:
                head = broker_pb2.CommandSend(sequence_id=number)
                writer.send(spliced(head, "batch", (bytes(size),)), number, traceparent=b"t")
        assert writer.gathered_bytes > 9 * size
        writer.flush()
        assert writer.gathered_bytes == 0
        return frames

    frames = asyncio.run(scenario())
    commands = [one for frame in frames for one in frame.commands]
    for number, one in enumerate(commands, start=1):
        if number % 4 == 3:
            assert one == command(common_pb2.CommandHello(client_name="c"), number)
        else:
            expected = command(send(number), number)
            expected.traceparent = b"" if number % 4 == 0 else b"t"
            assert one == expected
    assert len(commands) == 12
    assert (len(frames) > 1) is (size > 10)
    assert all(frame.ByteSize() < FRAME_BYTES_SOFT_MAX + (301 << 10) for frame in frames)


def test_the_same_commands_are_the_same_bytes_in_every_run() -> None:
    """Simulations are repeated by their seeds, and a map has no order of its own."""
    properties = {f"name-{number}": "x" for number in range(20)}
    backwards = dict(reversed(properties.items()))

    async def frame_of(given: dict[str, str]) -> bytes:
        frames: list[bytes] = []
        writer = FrameWriter(frames.append)
        message = broker_pb2.Message(value=b"v", properties=given)
        writer.send(broker_pb2.CommandPublish(messages=[message]), 1)
        writer.send(spliced(transaction_pb2.CommandNewTxn(), "partitions", (b"\x08\x01",)), 2)
        writer.flush()
        (frame,) = frames
        return frame

    first, second = (asyncio.run(frame_of(given)) for given in (properties, backwards))
    assert first == second
