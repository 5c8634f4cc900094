"""Frames: everything that becomes ready in one turn of the event loop leaves in one.

Used by both ends of a conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from magnetar_core.wire import service_pb2 as pb

# A frame is closed once it holds this much; gRPC's limit on a message is set above it.
FRAME_BYTES_SOFT_MAX = 1 << 20
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


class FrameWriter:
    """Gathers commands and writes them as frames at the end of the loop's turn.

    Each command is copied once, to where it belongs in its frame. CopyFrom does that in memory;
    giving messages to a constructor or to append() would serialize and parse them instead.
    """

    def __init__(self, write: Callable[[pb.Frame], None]) -> None:
        self._write = write
        self._frames: list[pb.Frame] = []
        # Of the last frame.
        self._frame_bytes = 0

    def send(self, body: Any, request_id: int = 0) -> None:
        """Gather a message; its envelope is made in the frame."""
        command = self._next(body.ByteSize())
        command.request_id = request_id
        getattr(command, FIELD_OF_BODY[type(body)]).CopyFrom(body)

    def flush(self) -> None:
        """Write what is gathered now."""
        frames, self._frames = self._frames, []
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
        return self._frames[-1].commands.add()
