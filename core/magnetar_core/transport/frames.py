"""Frames: all commands that become ready in a turn of the event loop leave in a single frame.

Both ends of a conversation use this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_core.transport.spliced import Body, Spliced, spliced
from magnetar_core.wire import service_pb2 as pb

log = logging.getLogger(__name__)

# A frame is closed once it holds this much. gRPC's limit of a message lies above it.
FRAME_BYTES_SOFT_MAX = 1 << 20
# The largest command in a large frame, unless it carries messages or counts many writers.
COMMAND_BYTES_MAX = 1 << 20
# Commands that may be larger.
LARGE_COMMANDS = ("send", "publish", "end_txn")
# A larger frame is parsed command by command, since parsed commands take up to fifty times the
# memory of the frame.
FRAME_READ_WHOLE_BYTES_MAX = 2 << 20
# The most commands in a frame that exceeds a writer's usual size: well-behaved clients send a
# handful.
FRAME_COMMANDS_MAX = 1 << 16
# How many commands are handled in a turn of the event loop.
COMMANDS_AT_ONCE = 64

# The name of a message's field in the envelope. Keys are message classes.
FIELD_OF_BODY: dict[type, str] = {
    type(getattr(pb.Command(), field.name)): field.name
    for field in pb.Command.DESCRIPTOR.oneofs_by_name["body"].fields
}

_EMPTY_FRAME: Final = pb.Frame()

BodyT = TypeVar("BodyT", bound=Message)


def detached(body: BodyT) -> BodyT:
    """Return a copy of a received message: the message itself would keep its whole frame alive."""
    copy = type(body)()
    copy.CopyFrom(body)
    return copy


class Carried(Protocol):
    """Commands that arrive together: a frame, or a part of a frame."""

    @property
    def commands(self) -> Sequence[pb.Command]:
        """The commands, in the order in which they were sent."""


class _Part(NamedTuple):
    commands: Sequence[pb.Command]


class Turns:
    """Divides the commands of a conversation among turns of the event loop.

    A process that handles hundreds of commands at once makes all others wait for the last command:
    commits, replies, and the other side, which could work meanwhile. They may come in one frame, or
    in many small ones that arrive together.
    """

    def __init__(self) -> None:
        # Handled since others had a turn.
        self._commands = 0

    async def of(self, frame: pb.Frame) -> AsyncIterator[Carried]:
        """Yield a frame, or the parts of a large one, and give others a turn where it is due."""
        commands = frame.commands
        if len(commands) <= COMMANDS_AT_ONCE:
            yield frame
            await self._handled(len(commands))
            return
        for start in range(0, len(commands), COMMANDS_AT_ONCE):
            part = commands[start : start + COMMANDS_AT_ONCE]
            yield _Part(part)
            await self._handled(len(part))

    async def received(self, data: bytes) -> AsyncIterator[Carried]:
        """Parse the bytes that a client sent, and yield them as `of` does.

        A command that cannot be parsed is yielded without a body, so that it gets an answer and the
        other commands are not lost with it.

        Raises:
            DecodeError: the bytes are not a frame, or the frame has too many commands.
        """
        if len(data) <= FRAME_READ_WHOLE_BYTES_MAX:
            try:
                frame = pb.Frame.FromString(data)
            except DecodeError:
                log.info(
                    "a frame has a command that cannot be parsed; its commands are parsed one at a"
                    " time"
                )
            else:
                async for part in self.of(frame):
                    yield part
                return
        sealed = pb.SealedFrame.FromString(data)
        if len(sealed.commands) > FRAME_COMMANDS_MAX:
            raise DecodeError(f"a frame of {len(sealed.commands)} commands")
        for command in sealed.commands:
            yield _Part([_read_command(command)])
            # To parse it alone may have taken as long as many others take.
            await self._handled(COMMANDS_AT_ONCE)

    async def _handled(self, commands: int) -> None:
        # Also a frame without commands takes time.
        self._commands += max(commands, 1)
        if self._commands >= COMMANDS_AT_ONCE:
            self._commands = 0
            await asyncio.sleep(0)


def _read_command(data: bytes) -> pb.Command:
    """Parse a command; return an empty command if it cannot be parsed."""
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
    """Gathers commands and writes them as frames at the end of the event loop's turn.

    Each command is copied once, to its place in the frame. CopyFrom does that in memory; giving
    messages to a constructor or to append() would serialize and parse them instead. The content of
    a message in pieces is copied when the frame is written, and not before.

    Args:
        write: takes a serialized frame.
        call_soon: has a function called at the end of the turn, and answers for its failure; by
            default the event loop's.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        call_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._write = write
        self._call_soon = call_soon
        # Frames in parts: in a row, serialized frames are a frame with the commands of all.
        self._frames: list[list[Message | Spliced]] = []
        # Bytes of the last frame, and of all frames.
        self._frame_bytes = 0
        self._gathered_bytes = 0

    @property
    def gathered_bytes(self) -> int:
        """Approximate size of the commands that wait for the end of this turn."""
        return self._gathered_bytes

    def send(
        self,
        body: Body,
        request_id: int = 0,
        byte_count: int = 0,
        traceparent: bytes = b"",
    ) -> None:
        """Gather a message; its envelope is made in the frame.

        Args:
            body: the message.
            request_id: the number of the request that it answers; 0 for a push.
            byte_count: the message's size, if the caller knows it: asking protobuf for the size
                costs as much as a copy.
            traceparent: names the span that sends it; empty: none does.
        """
        if isinstance(body, Spliced):
            head = pb.Command(request_id=request_id, traceparent=traceparent)
            command = spliced(head, FIELD_OF_BODY[type(body.message)], (body,))
            self._parts(body.byte_count).append(spliced(_EMPTY_FRAME, "commands", (command,)))
            return
        parts = self._parts(byte_count or body.ByteSize())
        last = parts[-1] if parts else None
        if not isinstance(last, pb.Frame):
            last = pb.Frame()
            parts.append(last)
        place = last.commands.add()
        place.request_id = request_id
        if traceparent:
            place.traceparent = traceparent
        getattr(place, FIELD_OF_BODY[type(body)]).CopyFrom(body)

    def send_frame(self, frame: Message, byte_count: int) -> None:
        """Gather the commands of a frame, which the caller no longer changes.

        Args:
            frame: any message whose serialization is that of a frame; not a Frame itself, to which
                others would be added.
            byte_count: its approximate size.
        """
        self._parts(byte_count).append(frame)

    def flush(self) -> None:
        """Write the gathered commands now."""
        frames, self._frames = self._frames, []
        self._gathered_bytes = 0
        for parts in frames:
            self._write(_joined(parts))

    def _parts(self, size: int) -> list[Message | Spliced]:
        """Return the parts of the frame that a command of this size goes to."""
        if not self._frames:
            call_soon = self._call_soon or asyncio.get_running_loop().call_soon
            call_soon(self.flush)
        if not self._frames or self._frame_bytes >= FRAME_BYTES_SOFT_MAX:
            self._frames.append([])
            self._frame_bytes = 0
        self._frame_bytes += size
        self._gathered_bytes += size
        return self._frames[-1]


def _joined(parts: Sequence[Message | Spliced]) -> bytes:
    """Return the serialized frame. The same commands become the same bytes in every run."""
    pieces: list[bytes] = []
    for part in parts:
        if isinstance(part, Spliced):
            pieces += part.pieces
        else:
            pieces.append(part.SerializeToString(deterministic=True))
    return b"".join(pieces)
