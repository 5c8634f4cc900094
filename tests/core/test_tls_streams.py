"""Streams with TLS: what a client goes by, and what it never does."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from tests.certificates import Authority, Pair
from tests.core.stream_world import Conversation, Scenario, World, play
from tests.waiting import until

from magnetar_core.config import ListenConfig
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.security.link_security import LinkSecurity, TlsFiles
from magnetar_core.transport import stream_offers
from magnetar_core.transport.frame_stream import FrameStream
from magnetar_core.transport.stream_offers import WISH_PLAIN, WISH_TLS, Offer
from magnetar_core.transport.transport import LinkClosed

# On the way nobody may read it.
SECRET = b"an account and its balance"


class Machine:
    """Where a server and its clients have their files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = Authority(directory / "authority")
        self.pair = self.authority.sign("server")

    def config(self, **settings: object) -> ListenConfig:
        config = ListenConfig(
            tls_certificate_file=self.pair.certificate_file,
            tls_key_file=self.pair.key_file,
            stop_grace_ms=100,
        )
        return dataclasses.replace(config, **settings)  # type: ignore[arg-type]

    def security(self, **files: str) -> LinkSecurity:
        return LinkSecurity(TlsFiles(ca_file=self.authority.ca_file, **files))

    def play(self, scenario: Scenario) -> None:
        play(scenario, self.config(), self.security())

    def renew(self, pair: Pair) -> None:
        """Give the server the files of another certificate, where it has its own."""
        shutil.copyfile(pair.key_file, self.pair.key_file)
        shutil.copyfile(pair.certificate_file, self.pair.certificate_file)

    def damage(self) -> None:
        Path(self.pair.certificate_file).write_text("no certificate")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def in_grpc(world: World) -> Conversation:
    """A conversation whose frames stay in gRPC."""
    one = await world.connect()
    assert one.link._stream is None
    await one.ask()
    return one


async def in_a_stream(world: World) -> Conversation:
    one = await world.connect()
    assert one.link._stream is not None
    assert one.link._stream.tls is not None
    assert one.link._stream.tls.version() == "TLSv1.3"
    await one.ask()
    return one


async def listen(
    world: World, made: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext | None
) -> asyncio.Server:
    """Have the server tell its clients another port than its own, with somebody behind it."""
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0, ssl=context)
    world.offers._port = server.sockets[0].getsockname()[1]
    return server


class Passing(asyncio.Protocol):
    """Passes bytes on, both ways, and reads them."""

    def __init__(
        self, heard: bytearray, port: int = 0, to: asyncio.Transport | None = None
    ) -> None:
        self._heard = heard
        self._port = port
        self._to = to
        self._waiting = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._to is None:
            # uvloop's has no class in common with asyncio's.
            self._task = asyncio.ensure_future(self._go_on(cast(asyncio.Transport, transport)))

    async def _go_on(self, back: asyncio.Transport) -> None:
        self._to, _ = await asyncio.get_running_loop().create_connection(
            lambda: Passing(self._heard, to=back), "127.0.0.1", self._port
        )
        self._to.write(self._waiting)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if self._to is None:
            self._waiting += data
        else:
            self._to.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._to is not None:
            self._to.close()


def test_nobody_on_the_way_can_read_frames_or_the_ticket(machine: Machine) -> None:
    heard = bytearray()
    tickets: list[bytes] = []

    async def scenario(world: World) -> None:
        port = world.stream_port
        passing = await listen(world, lambda: Passing(heard, port), None)
        offer = world.offers.offer

        def noted() -> Offer | None:
            made = offer()
            assert made is not None
            tickets.append(made.text.split()[1].encode())
            return made

        world.offers.offer = noted  # type: ignore[method-assign]
        one = await in_a_stream(world)
        assert (await one.ask(1, batch=SECRET)).request_id == 2
        passing.close()

    machine.play(scenario)
    assert len(heard) > 500
    assert SECRET not in heard
    assert len(tickets) == 1
    assert tickets[0] not in heard


def test_somebody_else_at_the_port_learns_nothing(machine: Machine, tmp_path: Path) -> None:
    """Not even if the same authority has signed for them: the server has told its fingerprint."""
    other = Machine(tmp_path / "other")
    heard = bytearray()

    class Listening(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            heard.extend(data)

    async def scenario(world: World) -> None:
        for pair in (other.pair, machine.authority.sign("another server")):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair.certificate_file, pair.key_file)
            listening = await listen(world, Listening, context)
            world.transport = GrpcTransport(world.security)
            await in_grpc(world)
            listening.close()
            await world.transport.close()

    machine.play(scenario)
    assert heard == b""


@pytest.mark.parametrize("told", ["nothing", "of another", "half of it"])
def test_without_the_fingerprint_no_stream_is_taken(machine: Machine, told: str) -> None:
    """A server that offers a stream in plain text to a client with TLS is none of ours."""

    async def scenario(world: World) -> None:
        offer = world.offers.offer

        def wrong() -> Offer | None:
            made = offer()
            assert made is not None
            port, ticket, fingerprint = made.text.split()
            said = {"nothing": "", "of another": " " + "0" * 64, "half of it": fingerprint[:32]}
            made.text = f"{port} {ticket}{said[told]}"
            return made

        world.offers.offer = wrong  # type: ignore[method-assign]
        await in_grpc(world)

    machine.play(scenario)


def test_a_client_with_tls_takes_no_stream_in_plain_text(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a proxy ends TLS, and the server behind it has none."""
    plain_ports: list[int] = []

    async def scenario(world: World) -> None:
        async def plain(world: World) -> None:
            # The plain server is asked for TLS, as through the proxy.
            with monkeypatch.context() as patch:
                patch.setattr("magnetar_core.link.grpc_transport.WISH_PLAIN", WISH_TLS)
                await in_grpc(world)
                assert not world.offers._offers
                plain_ports.append(world.stream_port)

        await asyncio.to_thread(play, plain)
        # And if it offers one, nobody comes.
        world.offers._port = plain_ports[0]
        await in_grpc(world)

    machine.play(scenario)


def test_a_client_of_before_stays_in_grpc(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for a stream in plain text, also when it talks TLS."""
    monkeypatch.setattr("magnetar_core.link.grpc_transport.WISH_TLS", WISH_PLAIN)

    async def scenario(world: World) -> None:
        await in_grpc(world)
        # It was told of none, so that it need not find out.
        assert "127.0.0.1" not in str(world.transport._unreachable._until_s)

    machine.play(scenario)


def test_who_does_not_talk_tls_is_shown_out(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        offer = world.offers.offer()
        assert offer is not None
        loop = asyncio.get_running_loop()
        for said, within_s in (
            (offer.text.split()[1].encode(), 20.0),
            (bytes(10_000), 20.0),
            # Too little to see what it is.
            (b"", 0.01),
        ):
            monkeypatch.setattr(stream_offers, "TAKEN_WITHIN_S", within_s)
            _, stranger = await loop.create_connection(
                lambda: FrameStream(1 << 20), "127.0.0.1", world.stream_port
            )
            await stranger.write(said)
            assert await stranger.read() is None
        await until(lambda: not world.offers._greetings)
        assert not world.fake.sessions

    machine.play(scenario)


def test_earlier_versions_of_tls_are_refused(machine: Machine) -> None:
    async def scenario(world: World) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.get_running_loop().create_connection(
                lambda: FrameStream(100), "127.0.0.1", world.stream_port, ssl=context
            )

    machine.play(scenario)


def test_a_new_certificate_is_used_and_a_damaged_one_is_not(machine: Machine) -> None:
    async def scenario(world: World) -> None:
        one = await in_a_stream(world)
        before = world.offers._certificate
        assert before is not None
        former = before.fingerprint
        machine.renew(machine.authority.sign("server", file="renewed"))
        other = await in_a_stream(world)
        renewed = before.fingerprint
        assert renewed != former
        machine.damage()
        third = await in_a_stream(world)
        assert before.fingerprint == renewed
        for conversation in (one, other, third):
            await conversation.ask()

    machine.play(scenario)


def test_clients_with_certificates_need_none_for_their_streams(machine: Machine) -> None:
    """Whoever has the ticket has shown one to gRPC."""
    own = machine.authority.sign("a client", file="client")
    config = machine.config(tls_client_ca_file=machine.authority.ca_file)

    async def scenario(world: World) -> None:
        await in_a_stream(world)
        world.transport = GrpcTransport(machine.security())
        with pytest.raises(LinkClosed):
            await world.connect()

    play(
        scenario,
        config,
        machine.security(certificate_file=own.certificate_file, key_file=own.key_file),
    )


def test_large_frames_arrive_whole_both_ways(machine: Machine) -> None:
    async def scenario(world: World) -> None:
        one = await in_a_stream(world)
        for size in (16_383, 16_384, 16_385, 256 << 10, (4 << 20) + 7):
            assert (await one.ask(size, size)).request_id == size + 1

    machine.play(scenario)
