"""What becomes ready in one turn of the loop leaves in one frame, and no frame grows too far."""

import asyncio

import pytest
from tests.core.envelope import command

from magnetar_core.frames import COMMANDS_AT_ONCE, FRAME_BYTES_SOFT_MAX, FrameWriter, in_turns
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2


def test_one_turn_makes_one_frame() -> None:
    async def scenario() -> list[service_pb2.Frame]:
        frames: list[service_pb2.Frame] = []
        writer = FrameWriter(frames.append)
        for request_id in range(1, 101):
            writer.send(common_pb2.CommandHello(), request_id)
        assert not frames
        await asyncio.sleep(0)
        writer.send(common_pb2.CommandHello(), 101)
        await asyncio.sleep(0)
        return frames

    frames = asyncio.run(scenario())
    assert [len(frame.commands) for frame in frames] == [100, 1]
    assert [one.request_id for one in frames[0].commands] == list(range(1, 101))


def test_large_commands_are_spread_over_frames_in_order() -> None:
    async def scenario() -> list[service_pb2.Frame]:
        frames: list[service_pb2.Frame] = []
        writer = FrameWriter(frames.append)
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
        writer = FrameWriter(frames.append)
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
        return [[one.request_id for one in part.commands] async for part in in_turns(frame)]

    parts = asyncio.run(scenario())
    assert [request_id for part in parts for request_id in part] == list(range(count))
    assert all(len(part) <= COMMANDS_AT_ONCE for part in parts)
    assert len(parts) == max(1, -(-count // COMMANDS_AT_ONCE))
