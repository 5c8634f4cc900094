"""The seam between the programs and whatever carries their frames.

A link is one ordered conversation with a server. Frames arrive whole, in order, until the link
breaks; then a tail of them, in either direction, is lost, and nobody knows how long that tail is.
The gRPC transport implements this for processes, the simulator for virtual ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from magnetar_core.answers import AnswerBudget
from magnetar_core.frames import Carried
from magnetar_core.wire import service_pb2 as pb


class LinkClosed(ConnectionError):
    """The conversation is over; what was under way may or may not have arrived."""


class Link(Protocol):
    """The client's end of a conversation."""

    def write(self, frame: pb.Frame) -> None:
        """Queue a frame. Does nothing when the link is broken: the reader is told."""
        ...

    async def drain(self) -> None:
        """Wait while too much is queued. Returns at once when the link is broken."""
        ...

    def close(self) -> None:
        """End the conversation. Calls on_closed once, later."""
        ...


class Transport(Protocol):
    """How a client reaches servers."""

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> Link:
        """Open a conversation with the server at an address.

        Args:
            service: "Broker" or "TransactionCoordinator".
            on_frame: called on the event loop with each frame, or its parts, in order.
            on_closed: called once, after the last frame.
        Raises:
            LinkClosed: nobody answers there.
        """
        ...

    async def close(self) -> None: ...


class Session(Protocol):
    """The server's end of a conversation.

    Attributes: set by the transport.
        frame_bytes_max: to be told to the client.
        push_bytes_max: with more to be sent, nothing is pushed until there is room again.
        answers: how much the client may leave unread.
        origin: the machine at the other end.
    """

    frame_bytes_max: int
    push_bytes_max: int
    answers: AnswerBudget
    origin: str

    def on_frame(self, frame: Carried) -> None:
        """Handle all of its commands, whatever their answers take."""
        ...

    def handle(self, requests: Sequence[pb.Command], start: int = 0) -> int:
        """Handle commands from the start-th on.

        Returns:
            Where it stopped: at one whose answer there is no room for, or at the end.
        """
        ...

    def on_writable(self, writable: bool) -> None:
        """Much is queued for the client, or there is room again. At first there is."""
        ...

    def on_closed(self) -> None: ...


class Acceptor(Protocol):
    """What a server is to its transport: something that answers conversations."""

    def accept(self, write: Callable[[pb.Frame], None]) -> Session:
        """A conversation begins; `write` sends frames to its client, and never blocks."""
        ...
