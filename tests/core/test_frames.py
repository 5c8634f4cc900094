"""Commands of the same turn of the loop share a frame, and no frame grows too large."""

import asyncio

import pytest
from google.protobuf.message import DecodeError
from tests.core.envelope import parsed
from tests.waiting import turns

from magnetar.testing.envelope import command
from magnetar_core.transport.frames import (
    COMMAND_BYTES_MAX,
    COMMANDS_AT_ONCE,
    FRAME_BYTES_SOFT_MAX,
    FRAME_COMMANDS_MAX,
    FRAME_READ_WHOLE_BYTES_MAX,
    FrameWriter,
    Turns,
)
from magnetar_core.wire import (
    broker_pb2,
    common_pb2,
    service_pb2,
    topic_pb2,
    transaction_pb2,
)


def test_one_turn_makes_one_frame() -> None:
    async def scenario() -> list[service_pb2.Frame]:
        frames: list[service_pb2.Frame] = []
        writer = FrameWriter(parsed(frames.append))
        for request_id in range(1, 101):
            writer.send(common_pb2.CommandHello(), request_id)
        assert not frames
        await turns()
        writer.send(common_pb2.CommandHello(), 101)
        await turns()
        return frames

    frames = asyncio.run(scenario())
    assert [len(frame.commands) for frame in frames] == [100, 1]
    assert [one.request_id for one in frames[0].commands] == list(range(1, 101))


def test_large_commands_are_spread_over_frames_in_order() -> None:
    async def scenario() -> list[service_pb2.Frame]:
        frames: list[service_pb2.Frame] = []
        writer = FrameWriter(parsed(frames.append))
        for request_id in range(1, 9):
            writer.send(broker_pb2.CommandSend(batch=bytes(400 << 10)), request_id)
        writer.flush()
        return frames

    frames = asyncio.run(scenario())
    assert len(frames) > 1
    for frame in frames:
        assert frame.ByteSize() < FRAME_BYTES_SOFT_MAX + (401 << 10)
    ids = [one.request_id for frame in frames for one in frame.commands]
    assert ids == list(range(1, 9))


def test_a_message_without_fields_still_names_its_command() -> None:
    async def scenario() -> list[service_pb2.Frame]:
        frames: list[service_pb2.Frame] = []
        writer = FrameWriter(parsed(frames.append))
        writer.send(common_pb2.CommandHello())
        writer.send(common_pb2.CommandHelloResponse(server_name="broker-0"), 7)
        writer.flush()
        return frames

    (frame,) = asyncio.run(scenario())
    assert [one.WhichOneof("body") for one in frame.commands] == ["hello", "hello_response"]
    assert frame.commands[1] == command(common_pb2.CommandHelloResponse(server_name="broker-0"), 7)


@pytest.mark.parametrize("count", [0, 1, COMMANDS_AT_ONCE, COMMANDS_AT_ONCE + 1, 1_000])
def test_a_large_frame_is_handled_in_portions_in_order(count: int) -> None:
    frame = service_pb2.Frame()
    for request_id in range(count):
        frame.commands.add(request_id=request_id)

    async def scenario() -> list[list[int]]:
        return [[one.request_id for one in part.commands] async for part in Turns().of(frame)]

    parts = asyncio.run(scenario())
    assert [request_id for part in parts for request_id in part] == list(range(count))
    assert all(len(part) <= COMMANDS_AT_ONCE for part in parts)
    assert len(parts) == max(1, -(-count // COMMANDS_AT_ONCE))


def commands_of(data: bytes) -> list[service_pb2.Command]:
    async def gathered() -> list[service_pb2.Command]:
        return [one async for part in Turns().received(data) for one in part.commands]

    return asyncio.run(gathered())


def lookup(request_id: int, topic: str = "t") -> service_pb2.Command:
    return command(topic_pb2.CommandLookup(topic=topic), request_id)


@pytest.mark.parametrize("padding", [0, FRAME_READ_WHOLE_BYTES_MAX])
def test_a_command_that_cannot_be_read_leaves_the_others_whole(padding: int) -> None:
    send = command(broker_pb2.CommandSend(batch=bytes(padding)), 3)
    frame = service_pb2.Frame(commands=[lookup(1), lookup(2, "broken"), send, lookup(4)])
    data = frame.SerializeToString().replace(b"broken", b"\xff\xfe\xff\xfe\xff\xfe")
    first, second, third, fourth = commands_of(data)
    assert (first, third, fourth) == (lookup(1), send, lookup(4))
    assert second == service_pb2.Command(request_id=2)


def test_a_large_command_is_read_only_if_it_may_carry_much() -> None:
    ranges = [common_pb2.OffsetRange()] * (COMMAND_BYTES_MAX // 2)
    acks = [
        command(broker_pb2.CommandAck(ranges=ranges[len(ranges) // 2 :]), 1),
        command(broker_pb2.CommandAck(ranges=ranges), 2),
    ]
    send = command(broker_pb2.CommandSend(batch=bytes(COMMAND_BYTES_MAX + 1)), 3)
    writers = list(range(1 << 40, (1 << 40) + COMMAND_BYTES_MAX // 6))
    end = command(transaction_pb2.CommandEndTxn(selected_writer_ids=writers), 4)
    assert end.ByteSize() > COMMAND_BYTES_MAX
    data = service_pb2.Frame(commands=[*acks, send, end]).SerializeToString()
    first, second, third, fourth = commands_of(data)
    assert len(first.ack.ranges) == COMMAND_BYTES_MAX // 4
    assert second == service_pb2.Command(request_id=2)
    assert (third, fourth) == (send, end)


def test_a_large_frame_of_very_many_commands_is_none() -> None:
    flow = command(broker_pb2.CommandFlow(permits=1), 1 << 60)
    data = service_pb2.Frame(commands=[flow] * (FRAME_COMMANDS_MAX + 1)).SerializeToString()
    padded = service_pb2.Frame(
        commands=[command(broker_pb2.CommandSend(batch=bytes(FRAME_READ_WHOLE_BYTES_MAX)), 1)]
    )
    with pytest.raises(DecodeError):
        commands_of(padded.SerializeToString() + data)


def test_bytes_that_are_no_frame_are_none() -> None:
    with pytest.raises(DecodeError):
        commands_of(b"\xff\xff\xff")
