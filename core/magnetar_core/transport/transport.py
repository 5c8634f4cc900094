"""Interface between programs and the transport that carries their frames.

A link is an ordered conversation with a server. Frames arrive whole and in order until the link
breaks. Then the last frames in either direction are lost, and neither side knows how many. The gRPC
transport implements this interface for processes, the simulator for virtual processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from magnetar_core.errors import AuthenticationFailed, MagnetarError
from magnetar_core.transport.frames import Carried


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
