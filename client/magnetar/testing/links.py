"""Links without sockets between event loops of a process, and the network that they make up.

Frames are serialised and parsed as on a wire. A link keeps order and loses nothing, until a fault
or a crash ends it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from google.protobuf.message import DecodeError

from magnetar.testing.envelope import command, in_columns, singles
from magnetar.testing.faults import Fault, Faults, Kind
from magnetar.testing.lives import CURRENT, Incarnation
from magnetar.testing.paced_loop import PacedLoop
from magnetar_core.server.commands import Acceptor, CommandSession, Conversation
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import service_pb2 as pb

OnFrame = Callable[[Carried], None]


class End:
    """The event loop and the context of one end of a link."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self.loop = loop
        self._context = context

    def post(self, function: Callable[..., object], *args: Any) -> bool:
        """Call a function at this end, from any thread. Returns False if its loop is closed."""
        try:
            self.loop.call_soon_threadsafe(function, *args, context=self._context)
        except RuntimeError:
            return False
        return True


class MemoryLink:
    """Both ends of a conversation. Methods of the client's end implement `Link`.

    Attributes:
        client: the client's end.
        server: the server's end.
        life: the server that is the client here; None: it is a program's client.
    """

    def __init__(
        self, network: MemoryNetwork, client: End, on_frame: OnFrame, on_closed: Callable[[], None]
    ) -> None:
        self._network = network
        self.client = client
        self.life = CURRENT.get()
        self._on_frame = on_frame
        self._on_closed = on_closed
        # Each is used at its end alone.
        self._is_client_over = False
        self._is_server_over = False
        self.server: End = network.end
        self._session: CommandSession | None = None
        # Requests whose answers do not leave.
        self._doomed: set[int] = set()
        # Commands that wait, with the fault that holds the first of each.
        self._held: dict[str, tuple[Fault, deque[pb.Command]]] = {}

    # The client's end.

    def write(self, frame: bytes) -> None:
        """Queue a frame; see `Link.write`."""
        if not self._is_client_over:
            self._network.post(self.server, self._arrive, bytes(frame))

    async def drain(self) -> None:
        """Return at once; see `Link.drain`."""

    def close(self) -> None:
        """End the conversation; see `Link.close`."""
        if not self._is_client_over:
            self._is_client_over = True
            self.client.post(self._on_closed)
            self.server.post(self._server_closed)

    def _deliver(self, frame: bytes) -> None:
        if not self._is_client_over:
            self._on_frame(pb.Frame.FromString(frame))

    def client_closed(self) -> None:
        """Tell the client, at its end, that the link is over."""
        if not self._is_client_over:
            self._is_client_over = True
            self._on_closed()

    # The server's end.

    def open(self, incarnation: Incarnation, acceptor: Acceptor) -> None:
        """Begin the conversation with a server."""
        self.server = End(self._network.end.loop, incarnation.context)
        conversation = Conversation(write=self._write, end=self.break_off, origin="memory")
        self._session = incarnation.context.copy().run(acceptor.accept, conversation)

    def break_off(self) -> None:
        """End the conversation, with what has not left yet."""
        if not self._is_server_over:
            self.server.post(self._server_closed)
            self._network.post(self.client, self.client_closed)

    def _server_closed(self) -> None:
        if not self._is_server_over:
            self._is_server_over = True
            self._network.forget(self)
            self._held.clear()
            if self._session is not None:
                self._session.on_closed()

    def _arrive(self, data: bytes) -> None:
        session = self._session
        if self._is_server_over or session is None:
            return
        try:
            frame = pb.Frame.FromString(data)
            if self._network.faults.are_armed or self._held:
                self._sift(session, frame)
            else:
                session.on_frame(frame)
        except DecodeError:
            self.break_off()

    def _sift(self, session: CommandSession, frame: pb.Frame) -> None:
        """Handle the commands of a frame that no fault strikes."""
        passing: list[pb.Command] = []
        is_lost = False
        for one in singles(frame).commands:
            field = one.WhichOneof("body") or ""
            held = self._held.get(field)
            if held is not None:
                # It does not overtake the one that is held.
                held[1].append(one)
                continue
            fault = self._network.faults.striking(field)
            if fault is None:
                passing.append(one)
            elif fault.kind is Kind.HOLD:
                self._held[field] = (fault, deque([one]))
            elif fault.kind is Kind.REFUSE and fault.error is not None:
                answer = command(fault.error.to_wire(), one.request_id)
                self._network.post(self.client, self._deliver, in_columns(answer))
            elif fault.kind is Kind.LOSE_ANSWER:
                passing.append(one)
                if one.request_id:
                    self._doomed.add(one.request_id)
                else:
                    is_lost = True
            else:
                is_lost = True
                break
        if passing:
            session.on_frame(pb.Frame.FromString(in_columns(*passing)))
        if is_lost:
            self.break_off()

    def release(self, fault: Fault) -> None:
        """Handle the commands that a fault has held here."""
        for field, (holding, commands) in list(self._held.items()):
            if holding is fault:
                del self._held[field]
                self._arrive(in_columns(*commands))

    def _write(self, frame: bytes) -> None:
        if self._is_server_over:
            return
        if self._doomed:
            answered = {one.request_id for one in singles(pb.Frame.FromString(frame)).commands}
            if answered & self._doomed:
                self.break_off()
                return
        if not self._network.post(self.client, self._deliver, bytes(frame)):
            self.server.post(self._server_closed)


class MemoryNetwork:
    """Servers that listen in a cluster, and the links between them and their clients.

    Attributes:
        end: the servers' loop, for what belongs to no server.
        posted_count: functions that links have called on loops of clients, so far.
    """

    def __init__(self, loop: PacedLoop, faults: Faults) -> None:
        self.end = End(loop, Context())
        self.faults = faults
        self.posted_count = 0
        self._listeners: dict[tuple[str, str], tuple[Incarnation, Acceptor]] = {}
        self._links: dict[MemoryLink, Incarnation] = {}

    def post(self, end: End, function: Callable[..., object], *args: Any) -> bool:
        """Call a function at an end of a link: see End.post."""
        if end.loop is not self.end.loop:
            self.posted_count += 1
        return end.post(function, *args)

    def listen(
        self, address: str, service: str, incarnation: Incarnation, acceptor: Acceptor
    ) -> None:
        """Let a server take conversations."""
        self._listeners[address, service] = (incarnation, acceptor)

    def begin(
        self, link: MemoryLink, address: str, service: str, tell: Callable[[bool], None]
    ) -> None:
        """Begin a conversation, on the servers' loop. Tells whether a server listens there."""
        found = self._listeners.get((address, service))
        if found is not None:
            incarnation, acceptor = found
            self._links[link] = incarnation
            link.open(incarnation, acceptor)
        tell(found is not None)

    def forget(self, link: MemoryLink) -> None:
        """Forget a link that has ended."""
        self._links.pop(link, None)

    def crash(self, incarnation: Incarnation) -> None:
        """End the links of a server that is dead."""
        for key, (listener, _) in list(self._listeners.items()):
            if listener is incarnation:
                del self._listeners[key]
        for link, server in list(self._links.items()):
            if server is incarnation:
                del self._links[link]
                link.client.post(link.client_closed)
            elif link.life is incarnation:
                link.break_off()

    def release(self, fault: Fault) -> None:
        """Handle the commands that a fault has held, at all links."""
        for link in list(self._links):
            link.server.post(link.release, fault)

    def break_all(self) -> None:
        """End all links: the cluster is over."""
        for link in list(self._links):
            link.client.post(link.client_closed)


class MemoryTransport:
    """Way of a client, or of a server as a client, to servers: a `Transport` of the core."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._links: dict[MemoryLink, None] = {}

    async def connect(
        self, address: str, service: str, on_frame: OnFrame, on_closed: Callable[[], None]
    ) -> MemoryLink:
        """Open a conversation; see `Transport.connect`."""
        loop = asyncio.get_running_loop()
        client = End(loop, copy_context())
        opened: asyncio.Future[bool] = loop.create_future()

        def ended() -> None:
            self._links.pop(link, None)
            on_closed()

        def told(is_open: bool) -> None:
            if not opened.done():
                opened.set_result(is_open)

        link = MemoryLink(self._network, client, on_frame, ended)
        begun = self._network.post(
            self._network.end,
            self._network.begin,
            link,
            address,
            service,
            lambda is_open: self._network.post(client, told, is_open),
        )
        if not begun:
            raise LinkClosed("the test server is closed")
        try:
            if not await opened:
                raise LinkClosed(f"no server listens at {address}")
        except asyncio.CancelledError:
            link.close()
            raise
        self._links[link] = None
        return link

    async def close(self) -> None:
        """End all conversations."""
        for link in list(self._links):
            link.close()
