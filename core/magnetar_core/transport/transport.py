"""Interface between programs and the transport that carries their frames.

A link is an ordered conversation with a server. Frames arrive whole and in order until the link
breaks. Then the last frames in either direction are lost, and neither side knows how many. The gRPC
transport implements this interface for processes, the simulator for virtual processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from magnetar_core.access.principal import Principal
from magnetar_core.errors import AuthenticationFailed, MagnetarError
from magnetar_core.traces.spans import ServerTraces
from magnetar_core.transport.answers import AnswerBudget
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.slow_operations import SlowOperations
from magnetar_core.wire import service_pb2 as pb


class LinkClosed(ConnectionError):
    """The conversation is over; commands under way may or may not have arrived."""


class LinkRefused(LinkClosed):
    """A program listens there, but the two sides cannot talk: TLS, credentials, or another program.

    The text says what to do; nothing was sent.

    Attributes:
        kind: the error that it is for a program.
    """

    def __init__(self, text: str, kind: type[MagnetarError] = AuthenticationFailed) -> None:
        super().__init__(text)
        self.kind = kind


class Link(Protocol):
    """Client's end of a conversation."""

    def write(self, frame: bytes) -> None:
        """Queue a serialized frame.

        Does nothing when the link is broken; on_closed reports that.
        """
        ...

    async def drain(self) -> None:
        """Wait while too much is queued. Returns at once when the link is broken."""
        ...

    def close(self) -> None:
        """End the conversation. Calls on_closed once, later."""
        ...


class Transport(Protocol):
    """Way of a client to its servers."""

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> Link:
        """Open a conversation with the server at an address.

        Args:
            address: "host:port"; "host:port#shard.epoch" names a shard of the server.
            service: "Broker" or "TransactionCoordinator".
            on_frame: called on the event loop with each frame, or its parts, in order.
            on_closed: called once, after the last frame.
        Raises:
            LinkClosed: no server answers there, or it does not have the shard.
            LinkRefused: TLS or credentials do not fit, or another program listens there.
        """
        ...

    async def close(self) -> None:
        """End all conversations."""


class Session(Protocol):
    """Server's end of a conversation. The transport sets its attributes.

    Attributes:
        frame_bytes_max: limit of a frame, which the client is told.
        push_bytes_max: with more bytes to send, pushes pause until there is room again.
        answers: budget of the answers that the client may leave unread.
        origin: the client's machine.
        principal: who the client is.
        gate: checks the client's commands first, a commands.Gate; None: there is none.
        end: ends the conversation at once; what is queued does not leave.
        slow_operations: is told how long answers took; None: they are not logged.
        traces: makes the spans of commands; None: there are none.
    """

    frame_bytes_max: int
    push_bytes_max: int
    answers: AnswerBudget
    origin: str
    principal: Principal
    gate: Any
    end: Callable[[], None]
    slow_operations: SlowOperations | None
    traces: ServerTraces | None

    def push(self, body: Any) -> None:
        """Send a command that the client did not ask for. Does nothing after the end."""
        ...

    def on_frame(self, frame: Carried) -> None:
        """Handle all commands of a frame, whatever size their answers have."""
        ...

    def handle(self, requests: Sequence[pb.Command], start: int = 0) -> int:
        """Handle commands, beginning with index start.

        Returns:
            Index of the first command that was not handled because its answer has no room, or the
            number of commands.
        """
        ...

    def on_writable(self, writable: bool) -> None:
        """Note that the client's queue is long (False), or has room again (True)."""
        ...

    def look(self) -> None:
        """End the work that the client no longer has a right to do."""
        ...

    def on_closed(self) -> None:
        """Note that the conversation has ended."""


class Acceptor(Protocol):
    """Server as its transport sees it: it accepts conversations."""

    def accept(self, write: Callable[[bytes], None]) -> Session:
        """Begin a conversation; `write` sends serialized frames to its client and never blocks."""
        ...
