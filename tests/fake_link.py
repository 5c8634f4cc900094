"""The transport's seam in memory: links that break on command, to a server that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from tests.waiting import turns

from magnetar.testing.envelope import command, in_columns, singles
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import service_pb2

OnFrame = Callable[[service_pb2.Frame], None]


class FakeServer(Protocol):
    """Takes what arrives."""

    def on_frame(self, link: FakeLink, frame: service_pb2.Frame) -> None: ...


class FakeLink:
    """Both directions of one conversation, each delivered in a later turn of the loop.

    Attributes:
        half_open: frames vanish in both directions, and neither side is told.
    """

    def __init__(
        self,
        transport: FakeTransport,
        address: str,
        service: str,
        on_frame: OnFrame,
        on_closed: Callable[[], None],
    ) -> None:
        self.address = address
        self.service = service
        self.closed = False
        self.half_open = False
        self.frame_count = 0
        self._transport = transport
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()

    # The client's side.

    def write(self, frame: bytes) -> None:
        if self.closed:
            return
        self.frame_count += 1
        if not self.half_open:
            self._loop.call_soon(self._arrive, frame)

    async def drain(self) -> None:
        return

    def close(self) -> None:
        self.break_now()

    # The server's side.

    def push(self, *commands: service_pb2.Command) -> None:
        if not self.closed and not self.half_open:
            self._loop.call_soon(self._deliver, in_columns(*commands))

    def say(self, body: object) -> None:
        """The server says something unasked."""
        self.push(command(body))

    def break_now(self) -> None:
        if not self.closed:
            self.closed = True
            self._transport.links.remove(self)
            self._loop.call_soon(self._on_closed)

    def _arrive(self, data: bytes) -> None:
        if not self.closed:
            self._transport.server.on_frame(self, singles(service_pb2.Frame.FromString(data)))

    def _deliver(self, data: bytes) -> None:
        if not self.closed:
            self._on_frame(service_pb2.Frame.FromString(data))


class FakeTransport:
    """Reaches one server at all addresses, but for those that are dead.

    Attributes:
        links: those that are up.
        dead: addresses without a listener.
        is_reachable: whether there is a listener at any address.
        knows: whether there is such a service at an address.
    """

    def __init__(self, server: FakeServer, knows: Callable[[str, str], bool]) -> None:
        self.server = server
        self.links: list[FakeLink] = []
        self.dead: set[str] = set()
        self.is_reachable = True
        self.connect_count = 0
        self.knows = knows

    async def connect(
        self, address: str, service: str, on_frame: OnFrame, on_closed: Callable[[], None]
    ) -> FakeLink:
        await turns()
        self.connect_count += 1
        if not self.is_reachable or address in self.dead:
            raise LinkClosed("unreachable")
        assert self.knows(address, service), f"{service} at {address}"
        link = FakeLink(self, address, service, on_frame, on_closed)
        self.links.append(link)
        return link

    def push(self, body: object) -> None:
        """The server says something unasked, on every link."""
        for link in self.links:
            link.say(body)

    def break_links(self) -> None:
        for link in list(self.links):
            link.break_now()

    async def close(self) -> None:
        return
