"""Frames: everything that becomes ready in one turn of the event loop leaves in one.

Used by both ends of a conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_core.wire import service_pb2 as pb

# A frame is closed once it holds this much; gRPC's limit on a message is set above it.
FRAME_BYTES_SOFT_MAX = 1 << 20
FRAME_BYTES_MAX = 64 << 20


class FrameWriter:
    """Gathers commands and writes them as frames at the end of the loop's turn."""

    def __init__(self, write: Callable[[pb.Frame], None]) -> None:
        self._write = write
        self._commands: list[pb.Command] = []
        self._scheduled = False

    def send(self, command: pb.Command) -> None:
        self._commands.append(command)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write what is gathered now."""
        self._scheduled = False
        commands, self._commands = self._commands, []
        frame: list[pb.Command] = []
        frame_bytes = 0
        for command in commands:
            frame.append(command)
            frame_bytes += command.ByteSize()
            if frame_bytes >= FRAME_BYTES_SOFT_MAX:
                self._write(pb.Frame(commands=frame))
                frame, frame_bytes = [], 0
        if frame:
            self._write(pb.Frame(commands=frame))
