"""What becomes ready in one turn of the loop leaves in one frame, and no frame grows too far."""

import asyncio

from tests.core.envelope import command

from magnetar_core.frames import FRAME_BYTES_SOFT_MAX, FrameWriter
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
