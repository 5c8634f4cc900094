"""Frames: everything that becomes ready in one turn of the event loop leaves in one.

Used by both ends of a conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from google.protobuf.message import DecodeError

from magnetar_core.wire import service_pb2 as pb

log = logging.getLogger(__name__)

# A frame is closed once it holds this much; gRPC's limit on a message is set above it.
FRAME_BYTES_SOFT_MAX = 1 << 20
# Of a command in a large frame, unless it carries messages or counts many writers.
COMMAND_BYTES_MAX = 1 << 20
# Those that may be larger.
LARGE_COMMANDS = ("send", "publish", "end_txn")
# A larger frame is read command by command, since what is read takes up to fifty times the memory
# of what was sent.
FRAME_READ_WHOLE_BYTES_MAX = 2 << 20
# Of a frame that is larger than a writer makes it: a well-behaved one has a handful.
FRAME_COMMANDS_MAX = 1 << 16
# Handled in one turn of the event loop.
COMMANDS_AT_ONCE = 64

# A message's field in the envelope, by the message's class.
FIELD_OF_BODY: dict[type, str] = {
    type(getattr(pb.Command(), field.name)): field.name
    for field in pb.Command.DESCRIPTOR.oneofs_by_name["body"].fields
}


class Carried(Protocol):
    """Commands that arrive together: a frame, or a part of one."""

    @property
    def commands(self) -> Sequence[pb.Command]: ...


class _Part(NamedTuple):
    commands: Sequence[pb.Command]


async def in_turns(frame: pb.Frame) -> AsyncIterator[Carried]:
    """A frame in parts, one for each turn of the event loop.

    Whoever gets hundreds of commands at once and handles them in one go makes everybody wait for
    the last: commits, replies and the other side, which would have something to do meanwhile.
    """
    commands = frame.commands
    if len(commands) <= COMMANDS_AT_ONCE:
        yield frame
        return
    for start in range(0, len(commands), COMMANDS_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        yield _Part(commands[start : start + COMMANDS_AT_ONCE])


async def received(data: bytes) -> AsyncIterator[Carried]:
    """What a client sent, in parts, one for each turn of the event loop.

    A command that cannot be read comes without a body, so that it is answered and the others are
    not lost with it.

    Raises:
        DecodeError: it is no frame at all, or one of too many commands.
    """
    if len(data) <= FRAME_READ_WHOLE_BYTES_MAX:
        try:
            frame = pb.Frame.FromString(data)
        except DecodeError:
            log.info("a frame with a command that cannot be read is read one by one")
        else:
            async for part in in_turns(frame):
                yield part
            return
    sealed = pb.SealedFrame.FromString(data)
    if len(sealed.commands) > FRAME_COMMANDS_MAX:
        raise DecodeError(f"a frame of {len(sealed.commands)} commands")
    for place, command in enumerate(sealed.commands):
        if place:
            await asyncio.sleep(0)
        yield _Part([_read_command(command)])


def _read_command(data: bytes) -> pb.Command:
    """A command, or what stands for one that cannot be read."""
    try:
        head = pb.CommandHead.FromString(data)
    except DecodeError:
        return pb.Command()
    if len(data) <= COMMAND_BYTES_MAX or any(map(head.HasField, LARGE_COMMANDS)):
        try:
            return pb.Command.FromString(data)
        except DecodeError:
            pass
    return pb.Command(request_id=head.request_id)


class FrameWriter:
    """Gathers commands and writes them as frames at the end of the loop's turn.

    Each command is copied once, to where it belongs in its frame. CopyFrom does that in memory;
    giving messages to a constructor or to append() would serialize and parse them instead.
    """

    def __init__(self, write: Callable[[pb.Frame], None]) -> None:
        self._write = write
        self._frames: list[pb.Frame] = []
        # Of the last frame, and of all.
        self._frame_bytes = 0
        self._gathered_bytes = 0

    @property
    def gathered_bytes(self) -> int:
        """About what waits for the end of this turn."""
        return self._gathered_bytes

    def send(self, body: Any, request_id: int = 0, byte_count: int = 0) -> None:
        """Gather a message; its envelope is made in the frame.

        Args:
            byte_count: its size, from who knows it: to ask for it costs as much as a copy.
        """
        command = self._next(byte_count or body.ByteSize())
        command.request_id = request_id
        getattr(command, FIELD_OF_BODY[type(body)]).CopyFrom(body)

    def flush(self) -> None:
        """Write what is gathered now."""
        frames, self._frames = self._frames, []
        self._gathered_bytes = 0
        for frame in frames:
            self._write(frame)

    def _next(self, size: int) -> pb.Command:
        """A place for a command of so many bytes."""
        if not self._frames:
            asyncio.get_running_loop().call_soon(self.flush)
        if not self._frames or self._frame_bytes >= FRAME_BYTES_SOFT_MAX:
            self._frames.append(pb.Frame())
            self._frame_bytes = 0
        self._frame_bytes += size
        self._gathered_bytes += size
        return self._frames[-1].commands.add()
