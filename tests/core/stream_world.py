"""A server with streams, and clients whose frames move there from gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.core.envelope import framed
from tests.core.fakes import FakeServer
from tests.waiting import until

from magnetar.testing.envelope import command
from magnetar_core.config import ListenConfig
from magnetar_core.link.grpc_transport import GrpcLink, GrpcTransport
from magnetar_core.security.link_security import PLAIN, LinkSecurity
from magnetar_core.security.stream_tls import client_context
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.transport.frame_stream import FrameStream
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.stream_offers import StreamOffers
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2


class Conversation:
    """A client's link, and what came over it."""

    def __init__(self) -> None:
        self.link: GrpcLink
        self.closed = asyncio.Event()
        self._commands: asyncio.Queue[service_pb2.Command] = asyncio.Queue()

    async def ask(
        self, number: int = 0, size: int = 10, batch: bytes | None = None
    ) -> service_pb2.Command:
        """Send a command, and return its answer."""
        batch = bytes(size) if batch is None else batch
        body = broker_pb2.CommandSend(sequence_id=number, batch=batch)
        self.link.write(framed(command(body, number + 1)))
        return await self._commands.get()

    def on_frame(self, frame: Carried) -> None:
        for one in frame.commands:
            self._commands.put_nowait(one)

    @property
    def answer_count(self) -> int:
        return self._commands.qsize()


class World:
    """A server, and clients of it."""

    def __init__(self, server: GrpcServer, fake: FakeServer, security: LinkSecurity) -> None:
        self.server = server
        self.fake = fake
        self.security = security
        self.transport = GrpcTransport(security)

    @property
    def offers(self) -> StreamOffers:
        assert self.server._streams is not None
        return self.server._streams

    @property
    def stream_port(self) -> int:
        return self.offers._port

    async def connect(self) -> Conversation:
        conversation = Conversation()
        conversation.link = await self.transport.connect(
            self.server.address, "Broker", conversation.on_frame, conversation.closed.set
        )
        return conversation

    async def is_shown_out(self, said: bytes | None = None) -> bool:
        """Return whether a stranger who says this, or nothing, gets no answer but the end."""
        try:
            stranger = await self.stranger()
            if said is not None:
                await stranger.write(said)
            return await stranger.read() is None
        except ConnectionError:
            # Within TLS's handshake.
            return True

    async def listen_no_more(self) -> None:
        """From now on the port of streams is closed, and the server offers it as before."""
        for listening in self.offers._listening:
            listening.cancel()
        await asyncio.wait(self.offers._listening)

    async def stranger(self) -> FrameStream:
        """A connection to the port of streams that has said nothing yet."""
        tls = self.security.tls is not None
        _, stream = await asyncio.get_running_loop().create_connection(
            lambda: FrameStream(1 << 20),
            "127.0.0.1",
            self.stream_port,
            ssl=client_context() if tls else None,
            server_hostname="" if tls else None,
        )
        return stream


Scenario = Callable[[World], Awaitable[None]]


@asynccontextmanager
async def served(
    config: ListenConfig | None = None, security: LinkSecurity = PLAIN
) -> AsyncIterator[World]:
    fake = FakeServer()
    server = GrpcServer("Broker", config or ListenConfig(stop_grace_ms=100))
    await server.open()
    await server.serve(fake)
    world = World(server, fake, security)
    try:
        yield world
    finally:
        await world.transport.close()
        await server.close()


def play(
    scenario: Scenario,
    config: ListenConfig | None = None,
    security: LinkSecurity = PLAIN,
) -> None:
    async def run() -> None:
        async with asyncio.timeout(30), served(config, security) as world:
            await scenario(world)

    asyncio.run(run())


async def fill_the_network(world: World, one: Conversation) -> tuple[asyncio.Transport, int]:
    """Let a client ask for more than the network holds, and read nothing.

    Returns:
        The client's end, which reads nothing until it is told to; how many answers it is owed.
    """
    (session,) = world.server._sessions
    assert one.link._stream is not None
    assert isinstance(session._carrier, FrameStream)
    network, servers = one.link._stream._transport, session._carrier._transport
    assert network is not None
    assert servers is not None
    network.pause_reading()
    hello = common_pb2.CommandHello(client_name="n" * 900)
    asked = 0
    while not servers.get_write_buffer_size():
        one.link.write(framed(*(command(hello, number) for number in range(1, 101))))
        asked += 100
        await until(lambda: world.fake.hello_count == asked)  # noqa: B023
        await until(lambda: session._outbox.byte_count == 0)
    return network, asked
