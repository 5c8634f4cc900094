"""Conversations whose frames move from gRPC to a stream: who may take one, and what ends it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.core.envelope import framed
from tests.core.stream_world import Conversation, Scenario, World, fill_the_network, served
from tests.core.stream_world import play as plain_play
from tests.virtual_time import run as run_in_virtual_time
from tests.virtual_time import time_passes
from tests.waiting import turns, until

from magnetar.testing.envelope import command
from magnetar_core.config import InvalidConfig, ListenConfig
from magnetar_core.link import stream_taking
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.link.stream_taking import LEFT_ALONE_S, StreamUnreachable, Unreachable
from magnetar_core.security.link_security import LinkSecurity, TlsFiles
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.transport import stream_offers
from magnetar_core.transport.bound_sockets import bind_all
from magnetar_core.transport.frame_stream import LENGTH_BYTES, FrameStream
from magnetar_core.transport.frames import COMMANDS_AT_ONCE
from magnetar_core.transport.stream_offers import WELCOME, Offer
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import common_pb2

UNKNOWN_TICKET = b"0" * 32

# Plays a scenario with the settings of a server.
Play = Callable[..., None]


@pytest.fixture(params=["plain", "tls"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Whatever a stream is, it is with TLS and without."""
    if request.param == "plain":
        return plain_play
    authority = Authority(tmp_path)
    pair = authority.sign("server")

    def with_tls(scenario: Scenario, config: ListenConfig | None = None) -> None:
        config = dataclasses.replace(
            config or ListenConfig(stop_grace_ms=100),
            tls_certificate_file=pair.certificate_file,
            tls_key_file=pair.key_file,
        )
        plain_play(scenario, config, LinkSecurity(TlsFiles(ca_file=authority.ca_file)))

    return with_tls


def test_frames_move_to_a_stream_which_is_the_default(play: Play) -> None:
    async def scenario(world: World) -> None:
        one = await world.connect()
        assert one.link._stream is not None
        for number in range(3):
            assert (await one.ask(number)).request_id == number + 1
        # Nothing is left of the offer.
        assert not world.offers._offers

    play(scenario)


def test_frames_stay_in_grpc_where_the_server_or_the_client_has_no_streams(play: Play) -> None:
    async def scenario(world: World) -> None:
        one = await world.connect()
        assert one.link._stream is None
        await one.ask()

    play(scenario, ListenConfig(streams=False, stop_grace_ms=100))

    async def without(world: World) -> None:
        world.transport = GrpcTransport(world.security, wants_streams=False)
        await scenario(world)
        # Whoever does not ask is told nothing: such as a client in another language.
        assert not world.offers._offers

    play(without)


def test_a_client_that_cannot_reach_the_port_stays_in_grpc(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """A firewall, a tunnel of one port, a container whose other ports are not published."""
    caplog.set_level(logging.INFO, "magnetar_core.link.stream_taking")

    async def scenario(world: World) -> None:
        await world.listen_no_more()
        for _ in range(2):
            one = await world.connect()
            assert one.link._stream is None
            await one.ask()
        # The second one has not tried again.
        assert len(caplog.messages) == 1
        assert f"port {world.stream_port}" in caplog.text
        assert "goes on in gRPC" in caplog.text

    play(scenario)


def test_a_port_that_swallows_everything_holds_nobody_up(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_taking, "TAKEN_WITHIN_S", 0.05)

    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()
        silent = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        world.offers._port = silent.sockets[0].getsockname()[1]
        one = await world.connect()
        assert one.link._stream is None
        await one.ask()
        silent.close()

    play(scenario)


def test_a_port_of_another_server_is_not_taken_for_this_one(play: Play) -> None:
    """Behind a tunnel the same number may be somebody else's on this machine."""

    async def scenario(world: World) -> None:
        async with served() as other:
            world.offers._port = other.stream_port
            one = await world.connect()
            assert one.link._stream is None
            await one.ask()
            assert not other.fake.sessions

    play(scenario)


def test_a_server_is_tried_again_after_a_while() -> None:
    async def scenario() -> None:
        unreachable = Unreachable()
        unreachable.note("a:1", StreamUnreachable("the streams of a:1 at port 2: refused"))
        assert "a:1" in unreachable
        assert "b:1" not in unreachable
        await time_passes(LEFT_ALONE_S - 0.1)
        assert "a:1" in unreachable
        await time_passes(0.2)
        assert "a:1" not in unreachable

    run_in_virtual_time(scenario())


def test_strangers_are_shown_out(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    # An empty frame says that somebody is there, and no more.
    monkeypatch.setattr(stream_offers, "TAKEN_WITHIN_S", 0.2)

    async def scenario(world: World) -> None:
        offer = world.offers.offer()
        assert offer is not None
        ticket = offer.text.split()[1].encode()
        for said in (UNKNOWN_TICKET, b"", b"\xff" * 32, ticket[:-1], ticket + b"0", ticket.upper()):
            assert await world.is_shown_out(said), said
        assert not world.fake.sessions

    play(scenario)


def test_a_stranger_who_begins_more_than_a_ticket_is_shown_out_at_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the memory is taken that it asks for."""
    monkeypatch.setattr(stream_offers, "TAKEN_WITHIN_S", 1_000)

    async def scenario(world: World) -> None:
        stranger = await world.stranger()
        assert stranger._transport is not None
        stranger._transport.write((1 << 20).to_bytes(LENGTH_BYTES, "little"))
        assert await stranger.read() is None

    play(scenario)


def test_a_ticket_counts_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        offer = world.offers.offer()
        assert offer is not None
        port, ticket, *_ = offer.text.split()
        assert int(port) == world.stream_port
        first, second = await world.stranger(), await world.stranger()
        await first.write(ticket.encode())
        assert await first.read() == WELCOME
        await second.write(ticket.encode())
        assert await second.read() is None
        taken = await offer.taken()
        await taken.write(b"for the first")
        assert await first.read() == b"for the first"

    play(scenario)


def test_a_ticket_of_a_conversation_that_has_ended_counts_no_more(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends because nobody has come, or because its client was gone before it was told."""
    monkeypatch.setattr(stream_offers, "TAKEN_WITHIN_S", 0.01)

    async def scenario(world: World) -> None:
        tickets = []
        accept = world.offers.offer

        def noted() -> Offer | None:
            offer = accept()
            assert offer is not None
            tickets.append(offer.text.split()[1])
            return offer

        async def never(server: str, offer: str, frame_bytes_max: int, *, tls: bool) -> FrameStream:
            await until(lambda: not world.server._sessions)
            raise StreamUnreachable("it took too long")

        monkeypatch.setattr(world.offers, "offer", noted)
        monkeypatch.setattr("magnetar_core.link.grpc_transport.take", never)
        await world.connect()
        assert len(tickets) == 1
        assert not world.offers._offers
        monkeypatch.undo()
        late = await world.stranger()
        await late.write(tickets[0].encode())
        assert await late.read() is None

    play(scenario)


def test_a_stream_that_came_as_its_conversation_ended_ends_with_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        offer = world.offers.offer()
        assert offer is not None
        stream = await world.stranger()
        await stream.write(offer.text.split()[1].encode())
        assert await stream.read() == WELCOME
        # Nobody has asked for it, and nobody will.
        offer.withdraw()
        assert await stream.read() is None
        offer.withdraw()

    play(scenario)


def test_an_offer_that_nobody_asked_for_is_a_closed_link_if_nobody_is_there(play: Play) -> None:
    """A server that is not ours, or a version to come, offers whatever it likes."""

    async def scenario(world: World) -> None:
        await world.listen_no_more()
        world.transport = GrpcTransport(world.security, wants_streams=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "magnetar_core.server.grpc_server.stream_wish", lambda _: world.offers.wish
            )
            with pytest.raises(LinkClosed, match=f"port {world.stream_port}"):
                await world.connect()

    play(scenario)


@pytest.mark.parametrize("host", ["localhost", "::", "0.0.0.0", "127.0.0.1"])
def test_streams_are_where_grpc_is(host: str) -> None:
    """For gRPC "::" is IPv4, too."""

    async def scenario(world: World) -> None:
        port = world.server.port
        for address in ("127.0.0.1", "[::1]") if host == "::" else ("127.0.0.1",):
            one = Conversation()
            one.link = await world.transport.connect(
                f"{address}:{port}", "Broker", one.on_frame, one.closed.set
            )
            assert one.link._stream is not None, address
            await one.ask()

    plain_play(scenario, ListenConfig(host=host, allow_remote=True, stop_grace_ms=100))


def test_addresses_of_a_host_have_one_port() -> None:
    """As localhost has, where the file of hosts says so."""
    both = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")]
    bound = bind_all(both, 0)
    assert [one.family for one in bound] == [socket.AF_INET, socket.AF_INET6]
    assert len({one.getsockname()[1] for one in bound}) == 1
    taken = bound[0].getsockname()[1]
    with pytest.raises(OSError, match="in use"):
        bind_all(both, taken)
    bound[0].close()
    # One address is enough.
    (rest,) = bind_all(both, taken)
    for one in (rest, bound[1]):
        one.close()


def test_who_says_nothing_is_shown_out(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_offers, "TAKEN_WITHIN_S", 0.01)

    async def scenario(world: World) -> None:
        assert await world.is_shown_out()

    play(scenario)


def test_only_so_many_strangers_may_wait(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.offers._strangers_max = 3
        waiting = [await world.stranger() for _ in range(3)]
        await until(lambda: len(world.offers._greetings) == 3)
        assert await world.is_shown_out()
        waiting.pop().close()
        await until(lambda: len(world.offers._greetings) == 2)
        one = await world.connect()
        assert one.link._stream is not None
        for stranger in waiting:
            stranger.close()

    play(scenario)


def test_only_so_many_conversations_have_streams(play: Play) -> None:
    """A client may begin any number of conversations on one connection of gRPC."""

    async def scenario(world: World) -> None:
        world.offers._streams_max = 2
        first, second, third = [await world.connect() for _ in range(3)]
        assert [one.link._stream is not None for one in (first, second, third)] == [1, 1, 0]
        assert await third.ask() == await first.ask()
        second.link.close()
        await second.closed.wait()
        await until(lambda: len(world.server._sessions) == 2)
        fourth = await world.connect()
        assert fourth.link._stream is not None

    play(scenario)


def test_a_client_that_asks_for_a_stream_and_does_not_come_is_let_go(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_offers, "TAKEN_WITHIN_S", 0.05)

    async def scenario(world: World) -> None:
        take = stream_taking.take

        async def never(server: str, offer: str, frame_bytes_max: int, *, tls: bool) -> FrameStream:
            await until(lambda: not world.server._sessions)
            return await take(server, offer, frame_bytes_max, tls=tls)

        monkeypatch.setattr("magnetar_core.link.grpc_transport.take", never)
        # It comes when the server has given up, so it begins once more.
        one = await world.connect()
        assert one.link._stream is None
        await one.ask()

    play(scenario)


def test_a_conversation_ends_with_its_stream(play: Play) -> None:
    async def scenario(world: World) -> None:
        for end in ("the client's", "the server's"):
            one = await world.connect()
            await one.ask()
            session = world.fake.sessions[-1]
            (own,) = world.server._sessions
            stream = one.link._stream if end == "the client's" else own._carrier
            assert isinstance(stream, FrameStream)
            stream.close()
            await one.closed.wait()
            await until(lambda: not world.server._sessions)
            assert session.closed

    play(scenario)


def test_a_conversation_ends_with_its_call(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC notices that the other machine is gone; nothing may be left of its stream."""
    monkeypatch.setattr("magnetar_core.link.grpc_transport.LAST_FRAMES_WITHIN_S", 0.01)

    async def scenario(world: World) -> None:
        one = await world.connect()
        await one.ask()
        (own,) = world.server._sessions
        assert isinstance(own._carrier, FrameStream)
        # Nothing comes from there any more, not even the end.
        close = own._carrier.close
        monkeypatch.setattr(own._carrier, "close", lambda: None)
        one.link._call.close()
        await one.closed.wait()
        await until(lambda: not world.server._sessions)
        assert world.fake.sessions[0].closed
        close()

    play(scenario)


def test_a_server_closes_the_stream_of_a_call_that_has_ended(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar_core.link.grpc_transport.LAST_FRAMES_WITHIN_S", 1_000)

    async def scenario(world: World) -> None:
        one = await world.connect()
        await one.ask()
        one.link._call.close()
        await one.closed.wait()
        assert world.fake.sessions[0].closed

    play(scenario)


def test_a_server_that_stops_sends_its_last_answers_first(play: Play) -> None:
    async def scenario(world: World) -> None:
        one = await world.connect()
        await one.ask()
        network, asked = await fill_the_network(world, one)
        closing = asyncio.ensure_future(world.server.close())
        await turns(5)
        network.resume_reading()
        await closing
        await one.closed.wait()
        assert one.answer_count == asked

    play(scenario, ListenConfig(stop_grace_ms=20_000))


def test_a_client_that_still_asks_gets_the_last_answers_of_a_server_that_stops(play: Play) -> None:
    """What it says by then is dropped; nothing else is."""

    async def scenario(world: World) -> None:
        one = await world.connect()
        await one.ask()
        network, asked = await fill_the_network(world, one)
        closing = asyncio.ensure_future(world.server.close())
        (session,) = world.server._sessions
        assert isinstance(session._carrier, FrameStream)
        await until(lambda: session._carrier._is_finishing)  # type: ignore[union-attr]
        for number in range(20):
            one.link.write(framed(command(common_pb2.CommandHello(), number)))
            await until(lambda: one.link._outbox.byte_count == 0)
        network.resume_reading()
        await closing
        await one.closed.wait()
        assert one.answer_count == asked

    play(scenario, ListenConfig(stop_grace_ms=20_000))


def test_a_server_that_has_stopped_has_no_conversations(play: Play) -> None:
    """gRPC cancels calls whose clients do not come to an end, and does not wait for them."""

    async def scenario(world: World) -> None:
        one = await world.connect()
        await one.ask()
        _, asked = await fill_the_network(world, one)
        # More than the stream takes: it does not even begin to end.
        many = [command(common_pb2.CommandHello(client_name="n" * 900), 1)] * 3_000
        one.link.write(framed(*many))
        await until(lambda: world.fake.hello_count == asked + len(many))
        await world.server.close()
        assert world.fake.sessions[0].closed

    play(scenario, ListenConfig(stop_grace_ms=50))


@pytest.mark.parametrize("commands", [1, 3, 200])
def test_many_frames_at_once_leave_others_their_turns(play: Play, commands: int) -> None:
    """A client that had sent thousands of them stopped its server's event loop for seconds."""

    async def scenario(world: World) -> None:
        one = await world.connect()
        await one.ask()
        assert one.link._stream is not None
        assert one.link._stream._transport is not None
        total = 6_000
        hello = common_pb2.CommandHello()
        frame = framed(*(command(hello, number + 1) for number in range(commands)))
        frames = total // commands * (len(frame).to_bytes(LENGTH_BYTES, "little") + frame)
        one.link._stream._transport.write(frames)
        await until(lambda: world.fake.hello_count > 0)
        at_once = [world.fake.hello_count]
        answered = [one.answer_count]
        while one.answer_count < total:
            before = world.fake.hello_count, one.answer_count
            await turns(1)
            at_once.append(world.fake.hello_count - before[0])
            answered.append(one.answer_count - before[1])
        # Both sides read frames without waiting.
        assert max(at_once) <= COMMANDS_AT_ONCE + commands
        assert max(answered) <= COMMANDS_AT_ONCE + commands

    play(scenario)


def test_a_frame_beyond_the_limit_ends_the_conversation(play: Play) -> None:
    async def scenario(world: World) -> None:
        one = await world.connect()
        await one.ask(0, (4 << 20) - 1_000)
        one.link.write(bytes((4 << 20) + 1))
        await one.closed.wait()
        other = await world.connect()
        await other.ask()

    play(scenario, ListenConfig(frame_bytes_max=4 << 20, stop_grace_ms=100))


def test_a_port_that_is_taken_is_named(play: Play) -> None:
    async def scenario(world: World) -> None:
        second = GrpcServer("Broker", ListenConfig(stream_port=world.stream_port))
        with pytest.raises(InvalidConfig, match=f"{world.stream_port}.*another stream_port"):
            await second.open()
        # gRPC's port is free again before the server is closed or forgotten.
        socket.create_server(("127.0.0.1", second.port)).close()
        await second.close()

    play(scenario)


def test_no_ticket_is_written_to_a_log(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario(world: World) -> None:
        offer = world.offers.offer()
        assert offer is not None
        ticket = offer.text.split()[1]
        stranger = await world.stranger()
        await stranger.write(f"{ticket[:-1]}x".encode())
        assert await stranger.read() is None
        assert "no ticket" in caplog.text
        assert ticket[:-1] not in caplog.text

    play(scenario)
