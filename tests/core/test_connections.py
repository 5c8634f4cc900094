"""Connections to a server: how many there may be, and how long they may be silent."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from prometheus_client import CollectorRegistry
from tests.core.stream_world import Conversation, World, play
from tests.waiting import turns, until

from magnetar_core.config import InvalidConfig, ListenConfig
from magnetar_core.process import descriptors, metrics_http
from magnetar_core.process.descriptors import shares_of
from magnetar_core.server.connection_metrics import tell_connections
from magnetar_core.server.grpc_server import GrpcServer

PLACES = 6


def config(handshake_timeout_ms: int = 60_000, *, streams: bool = True) -> ListenConfig:
    return ListenConfig(
        stop_grace_ms=100,
        connections_max=PLACES,
        handshake_timeout_ms=handshake_timeout_ms,
        streams=streams,
    )


async def stranger(world: World) -> asyncio.StreamReader:
    """Connect to the port of gRPC, and send nothing."""
    host, _, port = world.server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    # Kept open for as long as the reader is there.
    reader.writer = writer  # type: ignore[attr-defined]
    return reader


async def is_shown_out(reader: asyncio.StreamReader) -> bool:
    """Wait until the server closes a connection."""
    try:
        while await reader.read(1_000):
            pass
    except ConnectionError:
        pass
    return True


def test_more_connections_are_closed_at_once_and_clients_go_on() -> None:
    async def scenario(world: World) -> None:
        one = await world.connect()
        waiting = [await stranger(world) for _ in range(PLACES - 1)]
        for _ in range(3):
            assert await is_shown_out(await stranger(world))
        await one.ask(1)
        assert not any(one.at_eof() for one in waiting)
        waiting[0].writer.close()  # type: ignore[attr-defined]
        await (await connected(world)).ask(2)

    play(scenario, config())


def test_a_closed_link_gives_its_place_back_though_its_object_is_kept() -> None:
    """gRPC keeps a closed channel's connection while there is a reference to a call of it."""

    async def scenario(world: World) -> None:
        kept = [await world.connect() for _ in range(PLACES)]
        for one in kept:
            one.link.close()
            await one.closed.wait()
        async with asyncio.timeout(30):
            await (await connected(world)).ask(1)

    play(scenario, config())


async def connected(world: World) -> Conversation:
    """Connect, as soon as the server has seen that a connection has ended."""
    while True:
        with suppress(ConnectionError):
            return await world.connect()
        await turns()


@pytest.mark.parametrize(
    "says", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4] + [0] * 5)]
)
def test_connections_without_a_call_are_closed(says: bytes) -> None:
    async def scenario(world: World) -> None:
        one = await world.connect()
        await one.ask(0)
        for _ in range(2):
            waiting = [await stranger(world) for _ in range(PLACES - 1)]
            for each in waiting:
                each.writer.write(says)  # type: ignore[attr-defined]
            await asyncio.gather(*map(is_shown_out, waiting))
            await one.ask(1)
        assert not one.closed.is_set()

    play(scenario, config(300))


@pytest.mark.parametrize("streams", [True, False])
def test_a_conversation_begins_with_a_command_or_ends(streams: bool) -> None:
    async def scenario(world: World) -> None:
        registry = CollectorRegistry()
        tell_connections(registry, world.server)
        speaking, silent = await world.connect(), await world.connect()
        await speaking.ask(1)
        assert registry.get_sample_value("magnetar_conversations") == 2
        await silent.closed.wait()
        assert registry.get_sample_value("magnetar_silent_conversations_total") == 1
        await speaking.ask(2)
        assert not speaking.closed.is_set()
        await until(lambda: registry.get_sample_value("magnetar_conversations") == 1)

    play(scenario, config(300, streams=streams))


def test_a_server_that_stood_still_reads_before_it_judges() -> None:
    async def scenario(world: World) -> None:
        one = await world.connect()
        (session,) = world.server._sessions
        # The first timer is due, and the command is not read yet.
        session._look_for_command()
        await one.ask(1)
        assert session._silence_timer is None
        assert not one.closed.is_set()

    play(scenario, config())


def test_settings() -> None:
    with pytest.raises(InvalidConfig, match="handshake_timeout_ms"):
        ListenConfig(handshake_timeout_ms=0)
    with pytest.raises(InvalidConfig, match="connections_max"):
        ListenConfig(connections_max=-1)


def test_more_connections_than_the_limit_of_open_files_allows_are_refused() -> None:
    async def scenario() -> None:
        room = descriptors.shares().connections
        with pytest.raises(InvalidConfig, match=f"room for {room} connections: raise the limit"):
            await GrpcServer("Broker", ListenConfig(connections_max=room + 1)).open()

    asyncio.run(scenario())


@contextmanager
def metrics(connections_max: int, request_seconds: float = 60.0) -> Iterator[int]:
    """Serve metrics; yield the port."""
    registry = CollectorRegistry()
    server = metrics_http.serve(
        registry, "127.0.0.1", 0, connections_max, request_seconds=request_seconds
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def scrape(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        return int(reply.status)


def test_connections_for_metrics_are_limited_in_number() -> None:
    with ExitStack() as stack:
        port = stack.enter_context(metrics(2))
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2)
        ]
        beyond = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        beyond.settimeout(30)
        assert beyond.recv(1) == b""
        silent[0].close()
        while True:
            try:
                assert scrape(port) == 200
                break
            except OSError:
                continue


def test_connections_for_metrics_may_not_be_silent() -> None:
    with ExitStack() as stack:
        port = stack.enter_context(metrics(1, request_seconds=0.1))
        silent = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        silent.settimeout(30)
        assert silent.recv(1) == b""
        while True:
            try:
                assert scrape(port) == 200
                break
            except OSError:
                continue


@pytest.mark.parametrize("limit", [256, 1_024, 4_096, 20_000, 1 << 20, 1 << 30])
def test_what_connections_take_leaves_files_their_share(limit: int) -> None:
    shares = shares_of(limit)
    assert min(shares) > 0
    # Of gRPC there are connections to two addresses, and a client has a stream as well.
    assert shares.files + shares.metrics + shares.strangers + 3 * shares.connections <= limit
    assert shares.files >= min(limit // 2, 1_024)


def test_a_server_raises_its_limit_to_the_hard_one() -> None:
    program = (
        "import resource; from magnetar_core.process import descriptors as d;"
        "before = d.limit(); d.raise_limit();"
        "print(before, d.limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[1])"
    )
    hard = min(4_096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    command = f'ulimit -n {hard}; ulimit -S -n 256; exec "$0" -c "$1"'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["256", str(hard), str(hard)]


def test_open_files_are_counted() -> None:
    before = descriptors.open_count()
    with socket.socket(), socket.socket():
        assert descriptors.open_count() == before + 2
