"""Calls to gRPC servers, and to what is none: each failure names its cause."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from tests.core.envelope import framed
from tests.core.stream_world import served
from tests.core.test_http2 import DATA, HEADERS, RST_STREAM, SETTINGS, frame, headers, number
from tests.waiting import for_ever, until

from magnetar.testing.envelope import command
from magnetar_core.config import ListenConfig
from magnetar_core.errors import InvalidArgument
from magnetar_core.link import client_call, dialing
from magnetar_core.link.client_call import ClientCall
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import LinkClosed, LinkRefused
from magnetar_core.wire import broker_pb2, service_pb2

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ACCEPTED = headers((":status", "200"), ("content-type", "application/grpc"))


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[str]:
    """A server that talks as it likes. Yields its address."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        server.close()


async def refusal(address: str, *, timeout_ms: float = 30_000) -> LinkClosed:
    """Return why no conversation comes about."""
    transport = GrpcTransport(connect_timeout_ms=timeout_ms)
    try:
        with pytest.raises(LinkClosed) as caught:
            await transport.connect(address, "Broker", lambda _: None, lambda: None)
        return caught.value
    finally:
        await transport.close()


def refusal_of(talk: Talk, *, timeout_ms: float = 30_000) -> LinkClosed:
    async def run() -> LinkClosed:
        async with listening(talk) as address:
            return await refusal(address, timeout_ms=timeout_ms)

    return asyncio.run(run())


def saying(*said: bytes, ends: bool = False) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.writelines(said)
        if ends:
            writer.close()
        while await reader.read(1 << 16):
            pass
        writer.close()

    return talk


def test_a_name_that_nobody_knows() -> None:
    error = asyncio.run(refusal("no-such-host.invalid:6650"))
    assert "the name 'no-such-host.invalid' cannot be resolved" in str(error)
    assert not isinstance(error, LinkRefused)


def test_a_port_at_which_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = asyncio.run(refusal(f"127.0.0.1:{taken.getsockname()[1]}"))
    assert str(error).endswith(": Connection refused")
    assert not isinstance(error, LinkRefused)


def test_a_port_that_is_silent() -> None:
    error = refusal_of(saying(), timeout_ms=50)
    assert "accepts connections, and is silent" in str(error)
    assert not isinstance(error, LinkRefused)


@pytest.mark.parametrize(
    ("talk", "cause"),
    [
        (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "an HTTP/1 server answers there"),
        (saying(b"\x15\x03\x01\x00\x02\x02\x46"), "a server that talks TLS answers there"),
        (saying(b"220 mail.example ESMTP\r\n"), "not speak HTTP/2: it begins with b'220 mail"),
        (
            saying(frame(SETTINGS), headers((":status", "404"), ("content-type", "text/html"))),
            "an HTTP server answers there, with status 404",
        ),
        (
            saying(
                frame(SETTINGS),
                headers(
                    (":status", "200"),
                    ("content-type", "application/grpc"),
                    ("grpc-status", "12"),
                    ("grpc-message", "Method%20not found"),
                ),
            ),
            r"another service answers there \(Method not found\)",
        ),
    ],
)
def test_another_program_at_the_port(talk: Talk, cause: str) -> None:
    error = refusal_of(talk)
    assert isinstance(error, LinkRefused)
    assert error.kind is InvalidArgument
    with pytest.raises(LinkRefused, match=cause):
        raise error


@pytest.mark.parametrize(
    ("talk", "cause"),
    [
        (saying(ends=True), "the server ended the conversation at once"),
        (
            saying(frame(SETTINGS), frame(RST_STREAM, number(7), 0, 1)),
            "the server has reset the call, with code 7",
        ),
        (
            saying(
                frame(SETTINGS),
                headers(
                    (":status", "200"),
                    ("content-type", "application/grpc"),
                    ("grpc-status", "14"),
                    ("grpc-message", "in recovery: 50%25"),
                ),
            ),
            "in recovery: 50%",
        ),
        (saying(frame(SETTINGS), ACCEPTED), "no server of Magnetar answers there"),
    ],
)
def test_a_server_that_may_be_there_later(talk: Talk, cause: str) -> None:
    error = refusal_of(talk)
    assert not isinstance(error, LinkRefused)
    with pytest.raises(LinkClosed, match=cause):
        raise error


async def call_of(address: str, message_bytes_max: int = 1_000) -> ClientCall:
    return await client_call.begin(address, "/a.B/C", (), message_bytes_max)


def test_messages_arrive_in_whatever_frames_they_come() -> None:
    messages = [b"", b"one", b"two" * 300]
    content = b"".join(b"\0" + number(len(message)) + message for message in messages)
    for size in (1, 7, len(content)):
        pieces = [content[at : at + size] for at in range(0, len(content), size)]
        talk = saying(
            frame(SETTINGS),
            ACCEPTED,
            *(frame(DATA, piece, 0, 1) for piece in pieces),
            frame(HEADERS, b"", 0x5, 1),
        )

        async def run(talk: Talk = talk) -> None:
            async with listening(talk) as address:
                call = await call_of(address)
                found = [await call.read() for _ in messages]
                assert found == messages
                assert await call.read() is None
                assert (await call.ended()).code != client_call.OK

        asyncio.run(run())


@pytest.mark.parametrize(
    "content", [b"\0" + number(1_001), b"\1" + number(3) + b"abc"], ids=["too large", "compressed"]
)
def test_a_message_that_cannot_be_taken_ends_the_call(content: bytes) -> None:
    async def run() -> None:
        talk = saying(frame(SETTINGS), ACCEPTED, frame(DATA, content, 0, 1))
        async with listening(talk) as address:
            call = await call_of(address)
            assert await call.read() is None
            with pytest.raises(client_call.CallEnded):
                await call.write(b"x")

    asyncio.run(run())


def test_a_server_that_is_gone_without_a_word_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine has lost power, or what lies between forgets the connection."""
    monkeypatch.setattr(client_call, "KEEPALIVE_INTERVAL_S", 0.01)
    monkeypatch.setattr(client_call, "KEEPALIVE_TIMEOUT_S", 0.01)

    async def run() -> None:
        async with listening(saying(frame(SETTINGS), ACCEPTED)) as address:
            call = await call_of(address)
            assert await call.read() is None
            assert (await call.ended()).message == "no sign of life"

    asyncio.run(run())


def test_a_server_that_is_there_answers_a_ping() -> None:
    async def run() -> None:
        async with served() as world:
            one = await world.connect()
            call = one.link._call
            call._ping()
            assert call._is_pinged
            await until(lambda: not call._is_pinged)
            await one.ask()

    asyncio.run(run())


def test_a_call_that_is_cancelled_when_its_connection_is_made_sends_no_ping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """uvloop closes the connection then, and the timer of the ping wrote to it later."""
    made: list[ClientCall] = []

    async def cancelled(*args: Any, **options: Any) -> ClientCall:
        made.append(await dialing.dial(*args, **options))
        raise asyncio.CancelledError

    async def run() -> None:
        async with served() as world:
            monkeypatch.setattr(client_call, "dial", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await world.connect()
            (call,) = made
            assert call._keepalive is not None
            assert call._keepalive.cancelled()
            call._ping()
            assert (await call.ended()).message == "the call was closed"

    uvloop.run(run())


def test_frames_that_are_larger_than_all_windows_pass_both_ways() -> None:
    """Without a stream; this side reads nothing while the server sends."""
    size = 20 << 20

    async def run() -> None:
        async with served(ListenConfig(streams=False, stop_grace_ms=100)) as world:
            one = await world.connect()
            assert (await one.ask(size=size)).send_response.message_id is not None
            received = 0

            def on_frame(carried: Carried) -> None:
                nonlocal received
                received += sum(map(_size, carried.commands))

            link = await world.transport.connect(
                world.server.address, "Broker", on_frame, lambda: None
            )
            link.write(framed(command(broker_pb2.CommandFlow(permits=200), 1)))
            await until(lambda: received >= 200 * 1_000)
            # What arrives is taken as it comes: nothing is owed to the server.
            assert link._call._unread_bytes == 0

    asyncio.run(run())


def _size(one: service_pb2.Command) -> int:
    return one.ByteSize()


def test_addresses_of_a_host_are_tried_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 8305: the first one may swallow everything."""
    monkeypatch.setattr(dialing, "STAGGER_S", 0.01)
    connected = dialing._connected

    async def some_swallow(place: dialing.Place) -> socket.socket:
        return await (for_ever() if place[1][1] == 1 else connected(place))

    async def run() -> None:
        async with listening(saying()) as address:
            port = int(address.rpartition(":")[2])
            places: list[dialing.Place] = [
                (socket.AF_INET, ("127.0.0.1", 1)),
                (socket.AF_INET, ("127.0.0.1", port)),
            ]
            monkeypatch.setattr(dialing, "_connected", some_swallow)
            with await dialing._first_connected(places) as connection:
                assert connection.getpeername()[1] == port

    asyncio.run(run())


def test_the_error_of_the_first_address_is_told() -> None:
    async def run() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            places: list[dialing.Place] = [
                (socket.AF_INET, taken.getsockname()),
                (socket.AF_INET6, ("::1", 1, 0, 0)),
            ]
            with pytest.raises(ConnectionRefusedError, match=str(taken.getsockname()[1])):
                await dialing._first_connected(places)

    asyncio.run(run())


def test_names_are_resolved_without_the_threads_of_asyncio() -> None:
    """The interpreter waits for those at its exit, for as long as the resolver takes."""

    async def run() -> None:
        places = await dialing.resolve("localhost", 80)
        assert places[0][1][:2] in (("127.0.0.1", 80), ("::1", 80))
        assert asyncio.get_running_loop()._default_executor is None  # type: ignore[attr-defined]

    asyncio.run(run())
