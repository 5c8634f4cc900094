"""Frames: all commands that become ready in a turn of the event loop leave in a single frame.

Both ends of a conversation use this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_core.transport.columns.column import ROWS_MAX, Rows
from magnetar_core.transport.columns.kinds import ANSWERS, COLUMNS, COLUMNS_OF, KIND_OF, Row
from magnetar_core.transport.spliced import Body, Spliced, field_start, varint
from magnetar_core.wire import service_pb2 as pb

log = logging.getLogger(__name__)

# A frame is closed once it holds this much. gRPC's limit of a message lies above it.
FRAME_BYTES_SOFT_MAX = 1 << 20
# The largest command in a large frame, unless it carries messages or counts many writers.
COMMAND_BYTES_MAX = 1 << 20
# Commands that may be larger.
LARGE_COMMANDS = (
    "send",
    "sends",
    "publish",
    "end_txn",
    "end_txns",
    "end_txns_on_participants",
)
# A larger frame is parsed command by command, since parsed commands take up to fifty times the
# memory of the frame.
FRAME_READ_WHOLE_BYTES_MAX = 2 << 20
# The most commands in a frame that exceeds a writer's usual size: well-behaved clients send a
# handful.
FRAME_COMMANDS_MAX = 1 << 16
# How many commands are handled in a turn of the event loop, or a few more if they are in columns.
COMMANDS_AT_ONCE = ROWS_MAX

# The name of a message's field in the envelope. Keys are message classes.
FIELD_OF_BODY: dict[type, str] = {
    type(getattr(pb.Command(), field.name)): field.name
    for field in pb.Command.DESCRIPTOR.oneofs_by_name["body"].fields
}

# Commands that are many, and have no number together.
_IN_COLUMNS: Final = COLUMNS.keys() & pb.CommandHead.DESCRIPTOR.fields_by_name.keys()
# What stands before the number of a request: its field's number, with the wire type of integers.
_REQUEST_ID: Final = varint(pb.Command.DESCRIPTOR.fields_by_name["request_id"].number << 3)

BodyT = TypeVar("BodyT", bound=Message | Row)
# The number of a request, the span that sends it (empty: none does), and its row.
Numbered = tuple[int, bytes, Row]


def name_of(body: Message | Row) -> str:
    """Return the field in the envelope of a command alone, as message or as row."""
    kind = KIND_OF.get(type(body))
    return FIELD_OF_BODY[type(body)] if kind is None else kind.name


def detached(body: BodyT) -> BodyT:
    """Return a copy of a received message: the message itself would keep its whole frame alive.

    A row is not a part of its frame.
    """
    if isinstance(body, Message):
        copy = type(body)()
        copy.CopyFrom(body)
        return copy
    return body


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
        counts = list(map(_count, commands))
        total = sum(counts)
        if total <= COMMANDS_AT_ONCE:
            yield frame
            await self._handled(total)
            return
        start = gathered = 0
        for end, count in enumerate(counts, 1):
            gathered += count
            if gathered >= COMMANDS_AT_ONCE or end == len(commands):
                yield _Part(commands[start:end])
                await self._handled(gathered)
                start, gathered = end, 0

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


def _count(command: pb.Command) -> int:
    """Return how many commands there are in an envelope."""
    name = command.WhichOneof("body")
    if name in COLUMNS:
        return max(1, len(getattr(command, name).request_ids))
    return max(1, getattr(command, name).count) if name in ANSWERS else 1


def _read_command(data: bytes) -> pb.Command:
    """Parse a command; return an empty command if it cannot be parsed.

    Raises:
        DecodeError: it has columns, and so there is no number to answer.
    """
    try:
        head = pb.CommandHead.FromString(data)
    except DecodeError:
        return pb.Command()
    if len(data) <= COMMAND_BYTES_MAX or any(map(head.HasField, LARGE_COMMANDS)):
        try:
            return pb.Command.FromString(data)
        except DecodeError:
            if any(map(head.HasField, _IN_COLUMNS)):
                raise
    return pb.Command(request_id=head.request_id)


def _enveloped(body: Any, request_id: int, traceparent: bytes) -> tuple[int, list[bytes]]:
    """Return the size and the pieces of a command in a frame."""
    if isinstance(body, Spliced):
        kind, pieces, size = body
    else:
        kind, data = type(body), body.SerializeToString(deterministic=True)
        pieces, size = (data,), len(data)
    head = field_start(pb.Command, FIELD_OF_BODY[kind], size)
    if traceparent:
        head = field_start(pb.Command, "traceparent", len(traceparent)) + traceparent + head
    if request_id:
        head = _REQUEST_ID + varint(request_id) + head
    size += len(head)
    return size, [field_start(pb.Frame, "commands", size), head, *pieces]


class FrameWriter:
    """Gathers commands and writes them as frames at the end of the event loop's turn.

    A command is serialized when it is sent, and its envelope consists of pieces around it. All
    pieces are copied once, when their frame is written: serialized commands in a row are a frame.
    The same commands become the same bytes in every run.

    Rows are gathered by kind until another command is sent, and then stand before it, in columns if
    there are enough of them. So sends and acks change places with each other, which are never of
    the same writer; everything else arrives in its order.

    Args:
        write: takes a serialized frame.
        call_soon: has a function called at the end of the turn, and answers for its failure; by
            default the event loop's.
        on_together: told the request ids of commands that leave in a message, if that has an answer
            as a whole.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        on_together: Callable[[Sequence[int]], None] = lambda _: None,
    ) -> None:
        self._write = write
        self._on_together = on_together
        self._call_soon = call_soon
        # The pieces of each frame, and those of the last one.
        self._frames: list[list[bytes]] = []
        self._pieces: list[bytes] = []
        # How many bytes the last frame lacks until another one begins.
        self._room_bytes = 0
        # Bytes of the frames before it.
        self._full_bytes = 0
        # Rows of the last frame that are not among its pieces, by the field of their columns.
        self._rows: dict[str, list[Numbered]] = {}

    @property
    def gathered_bytes(self) -> int:
        """Size of the commands that wait for the end of this turn."""
        if not self._frames:
            return 0
        return self._full_bytes + FRAME_BYTES_SOFT_MAX - self._room_bytes

    def send(self, body: Body | Row, request_id: int = 0, traceparent: bytes = b"") -> None:
        """Gather a command, with an envelope if it is a message.

        Args:
            body: the message, or the row.
            request_id: the number of the request that it answers; 0 for a push.
            traceparent: names the span that sends it; empty: none does.
        """
        columns = COLUMNS_OF.get(type(body))
        if columns is not None:
            row: Any = body
            gathered = self._rows.get(columns.field)
            if gathered is None or len(gathered) >= ROWS_MAX or self._room_bytes <= 0:
                gathered = self._room_for_row(columns.field)
            self._room_bytes -= row.byte_count
            gathered.append((request_id, traceparent, row))
            return
        if self._rows:
            self._write_rows()
        size, pieces = _enveloped(body, request_id, traceparent)
        if self._room_bytes <= 0:
            self._begin_frame()
        self._room_bytes -= size
        self._pieces += pieces

    def send_rows(self, rows: Sequence[Numbered]) -> None:
        """Gather rows of one kind, at least one, as send() does with each."""
        field = COLUMNS_OF[type(rows[0][2])].field
        gathered = self._room_for_row(field)
        for one in rows:
            if self._room_bytes <= 0 or len(gathered) >= ROWS_MAX:
                gathered = self._room_for_row(field)
            self._room_bytes -= one[2].byte_count
            gathered.append(one)

    def flush(self) -> None:
        """Write the gathered commands now."""
        self._write_rows()
        frames, self._frames, self._pieces = self._frames, [], []
        self._room_bytes = 0
        for pieces in frames:
            self._write(b"".join(pieces))

    def _write_rows(self) -> None:
        """Put the gathered rows into the last frame."""
        if self._rows:
            gathered, self._rows = self._rows, {}
            for field, rows in gathered.items():
                columns = COLUMNS[field]
                if len(rows) >= columns.rows_min:
                    gathered_rows = Rows(*zip(*rows, strict=True))
                    self._pieces += _enveloped(columns.pack(gathered_rows), 0, b"")[1]
                    if columns.answers is not None:
                        self._on_together(gathered_rows.request_ids)
                    continue
                for request_id, traceparent, row in rows:
                    self._pieces += _enveloped(row.to_wire(), request_id, traceparent)[1]

    def _room_for_row(self, field: str) -> list[Numbered]:
        """Return the rows of these columns, among which there is room for one more."""
        if self._room_bytes <= 0 or len(self._rows.get(field, ())) >= ROWS_MAX:
            self._write_rows()
            if self._room_bytes <= 0:
                self._begin_frame()
        return self._rows.setdefault(field, [])

    def _begin_frame(self) -> None:
        self._full_bytes = self.gathered_bytes
        if not self._frames:
            call_soon = self._call_soon or asyncio.get_running_loop().call_soon
            call_soon(self.flush)
        self._pieces = []
        self._frames.append(self._pieces)
        self._room_bytes = FRAME_BYTES_SOFT_MAX
