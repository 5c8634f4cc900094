"""Who a server takes its clients for, in both forms, with credentials of all kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.certificates import Authority, Pair
from tests.core.calls import credentials_of
from tests.core.envelope import framed
from tests.core.fakes import FakeServer
from tests.core.test_tokens import CLAIMS, forged
from tests.tokens import Maker, jwks

from magnetar.testing.envelope import command
from magnetar_core.clock import SystemClock
from magnetar_core.config import InvalidConfig, ListenConfig
from magnetar_core.errors import AuthenticationFailed, from_wire
from magnetar_core.link.grpc_transport import GrpcLink, GrpcTransport
from magnetar_core.security.authentication import Authenticator
from magnetar_core.security.link_security import LinkSecurity, TlsFiles
from magnetar_core.server.commands import Run
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import LinkClosed, LinkRefused
from magnetar_core.wire import common_pb2, topic_pb2

UNARY, STREAM = "unary", "stream"
FORMS = (UNARY, STREAM)
AUDIENCE = "magnetar"
METHOD = "/magnetar.v1.Broker/ListTopics"


class Noting(FakeServer):
    """Notes who asks."""

    def __init__(self) -> None:
        super().__init__()
        self.askers: list[str] = []
        known = self.handlers["list_topics"]

        def noted(run: Run) -> None:
            self.askers += [reply.principal.name for _, reply in run.items]
            known(run)

        self.handlers = {**self.handlers, "list_topics": noted}


@dataclass
class Files:
    """Files of a server and of its clients."""

    directory: Path
    authority: Authority
    stranger: Authority
    server: Pair
    maker: Maker

    @property
    def keys_file(self) -> Path:
        return self.directory / "keys.json"

    @property
    def revocations_file(self) -> Path:
        return self.directory / "revoked"

    def config(self, *, mutual: bool, tokens: bool, **other: Any) -> ListenConfig:
        return replace(
            ListenConfig(stop_grace_ms=100),
            tls_certificate_file=self.server.certificate_file,
            tls_key_file=self.server.key_file,
            tls_client_ca_file=self.authority.ca_file if mutual else "",
            token_keys_file=str(self.keys_file) if tokens else "",
            token_audience=AUDIENCE if tokens else "",
            revocations_file=str(self.revocations_file),
            **other,
        )

    def tls(self, pair: Pair | None = None) -> TlsFiles:
        if pair is None:
            return TlsFiles(ca_file=self.authority.ca_file)
        return TlsFiles(
            ca_file=self.authority.ca_file,
            certificate_file=pair.certificate_file,
            key_file=pair.key_file,
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    authority = Authority(tmp_path / "ours")
    found = Files(
        tmp_path,
        authority,
        # Of the same name: only the key tells them apart.
        Authority(tmp_path / "theirs"),
        authority.sign("server"),
        Maker(),
    )
    found.keys_file.write_text(jwks(found.maker))
    found.revocations_file.write_text("# nothing so far\n")
    return found


class Served:
    """A server, and ways to ask it."""

    def __init__(self, config: ListenConfig) -> None:
        self.fake = Noting()
        self.server = GrpcServer("Broker", config)

    async def ask(self, form: str, security: LinkSecurity) -> str:
        """Ask something; return who the server takes the client for.

        Raises:
            AuthenticationFailed: the server refuses it, in words.
            LinkRefused: TLS does.
        """
        before = len(self.fake.askers)
        await (self._unary(security) if form == UNARY else self._stream(security))
        (asker,) = self.fake.askers[before:]
        return asker

    async def _unary(self, security: LinkSecurity) -> None:
        address = self.server.address
        options = (("grpc.use_local_subchannel_pool", 1),)
        channel = (
            grpc.aio.insecure_channel(address, options)
            if security.tls is None
            else grpc.aio.secure_channel(address, credentials_of(security.tls), options)
        )
        async with channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
            try:
                await call(b"", metadata=security.metadata(address))
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                    raise AuthenticationFailed(error.details() or "") from None
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                raise LinkRefused(error.details() or "") from None

    async def _stream(self, security: LinkSecurity) -> None:
        transport = GrpcTransport(security)
        try:
            answers: asyncio.Queue[Carried] = asyncio.Queue()
            link = await transport.connect(
                self.server.address, "Broker", answers.put_nowait, lambda: None
            )
            link.write(framed(command(topic_pb2.CommandListTopics(), 1)))
            await answers.get()
        except LinkRefused as error:
            if "refuses this client" in str(error):
                raise AuthenticationFailed(str(error)) from None
            raise
        finally:
            await transport.close()


def play(config: ListenConfig, scenario: Callable[[Served], Awaitable[None]]) -> None:
    async def run() -> None:
        served = Served(config)
        await served.server.open()
        await served.server.serve(served.fake)
        try:
            async with asyncio.timeout(20):
                await scenario(served)
        finally:
            await served.server.close()

    asyncio.run(run())


TOKENS: dict[str, tuple[Callable[[Files], str | None], str]] = {
    "good": (lambda files: files.maker.token(aud=AUDIENCE), ""),
    "none": (lambda files: None, "asks for a token: give one with --token-file"),
    "expired": (lambda files: files.maker.token(aud=AUDIENCE, lasts_s=-5), r"expired \d+ s ago"),
    "wrong key": (lambda files: Maker().token(aud=AUDIENCE), "signature is wrong"),
    "wrong audience": (lambda files: files.maker.token(aud="other"), "not for this server"),
    "alg none": (
        lambda files: forged({"alg": "none"}, CLAIMS | {"aud": AUDIENCE}),
        "algorithm",
    ),
    "revoked": (lambda files: files.maker.token(aud=AUDIENCE, jti="seven"), "token is revoked"),
    "revoked name": (lambda files: files.maker.token("mallory", aud=AUDIENCE), "'mallory' is"),
    "no token": (lambda files: "password", "send a JWT"),
}
REVOKED = "token seven\nprincipal mallory\n"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mutual", [False, True])
@pytest.mark.parametrize("kind", TOKENS)
def test_tokens(form: str, mutual: bool, kind: str, files: Files) -> None:
    make, said = TOKENS[kind]
    files.revocations_file.write_text(REVOKED)
    pair = files.authority.sign("machine-7") if mutual else None
    security = LinkSecurity(files.tls(pair), make(files))

    async def scenario(served: Served) -> None:
        if kind == "good":
            assert await served.ask(form, security) == "alice"
        elif kind == "none" and mutual:
            # Without a token, the machine itself asks.
            assert await served.ask(form, security) == "machine-7"
        else:
            with pytest.raises(AuthenticationFailed, match=said):
                await served.ask(form, security)
            assert served.fake.askers == []

    play(files.config(mutual=mutual, tokens=True), scenario)


def certificates(files: Files) -> dict[str, Pair | None]:
    return {
        "good": files.authority.sign("alice"),
        "with a uri": files.authority.sign("alice", uri="spiffe://us/bob", file="uri"),
        "none": None,
        "expired": files.authority.sign("alice", expired=True, file="expired"),
        "wrong authority": files.stranger.sign("alice"),
        "revoked": files.authority.sign("alice", file="revoked"),
        "revoked name": files.authority.sign("mallory"),
        "without a name": files.authority.sign(" "),
        "anonymous": files.authority.sign("anonymous"),
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("good", "alice"),
        ("with a uri", "spiffe://us/bob"),
        ("none", LinkRefused),
        ("expired", LinkRefused),
        ("wrong authority", LinkRefused),
        ("revoked", AuthenticationFailed),
        ("revoked name", AuthenticationFailed),
        ("without a name", AuthenticationFailed),
        ("anonymous", AuthenticationFailed),
    ],
)
def test_certificates(
    form: str, tokens: bool, kind: str, outcome: str | type[Exception], files: Files
) -> None:
    pair = certificates(files)[kind]
    if kind == "revoked":
        assert pair is not None
        files.revocations_file.write_text(f"certificate {pair.serial:X}\n")
    elif kind == "revoked name":
        files.revocations_file.write_text("principal mallory\n")
    security = LinkSecurity(files.tls(pair))

    async def scenario(served: Served) -> None:
        if isinstance(outcome, str):
            assert await served.ask(form, security) == outcome
        else:
            with pytest.raises(outcome):
                await served.ask(form, security)
            assert served.fake.askers == []

    play(files.config(mutual=True, tokens=tokens), scenario)


@pytest.mark.parametrize("form", FORMS)
def test_a_good_token_of_a_revoked_machine_is_refused(form: str, files: Files) -> None:
    machine = files.authority.sign("machine-7")
    files.revocations_file.write_text(f"certificate {machine.serial:x}\n")
    security = LinkSecurity(files.tls(machine), files.maker.token(aud=AUDIENCE))

    async def scenario(served: Served) -> None:
        with pytest.raises(AuthenticationFailed, match="the certificate is revoked"):
            await served.ask(form, security)

    play(files.config(mutual=True, tokens=True), scenario)


@pytest.mark.parametrize("form", FORMS)
def test_anonymous_is_let_in_where_that_is_switched_on(form: str, files: Files) -> None:
    async def scenario(served: Served) -> None:
        assert await served.ask(form, LinkSecurity(files.tls())) == "anonymous"
        good = LinkSecurity(files.tls(), files.maker.token(aud=AUDIENCE))
        assert await served.ask(form, good) == "alice"
        # Who shows something is what it shows, or nobody.
        bad = LinkSecurity(files.tls(), Maker().token(aud=AUDIENCE))
        with pytest.raises(AuthenticationFailed):
            await served.ask(form, bad)

    play(files.config(mutual=False, tokens=True, allow_anonymous=True), scenario)


def test_several_tokens_are_no_choice(files: Files) -> None:
    token = f"Bearer {files.maker.token(aud=AUDIENCE)}"
    config = files.config(mutual=False, tokens=True)
    authenticator = Authenticator(config, SystemClock())
    found = authenticator.identify({}, [("authorization", token)])
    assert found.principal.name == "alice"
    for metadata in (
        [("authorization", token), ("authorization", token)],
        [("authorization", "Basic YTpi")],
        [("authorization", b"\x00")],
    ):
        with pytest.raises(AuthenticationFailed):
            authenticator.identify({}, metadata)


class Open:
    """A conversation that goes on."""

    def __init__(self, served: Served, security: LinkSecurity) -> None:
        self.served = served
        self.transport = GrpcTransport(security)
        self.ended = asyncio.Event()

    async def __aenter__(self) -> Open:
        self.link: GrpcLink = await self.transport.connect(
            self.served.server.address, "Broker", lambda _: None, self.ended.set
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.transport.close()


def rewrite(file: Path, text: str) -> None:
    """Replace a file as administrators do: readers see one content or the other."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


def copy(source: str, target: Path) -> None:
    rewrite(target, Path(source).read_text())


@pytest.mark.parametrize("line", ["token seven", "principal alice"])
def test_a_conversation_ends_when_its_token_is_revoked(line: str, files: Files) -> None:
    async def scenario(served: Served) -> None:
        revoked = LinkSecurity(files.tls(), files.maker.token(aud=AUDIENCE, jti="seven"))
        other = LinkSecurity(files.tls(), files.maker.token("bob", aud=AUDIENCE))
        async with Open(served, revoked) as one, Open(served, other) as two:
            rewrite(files.revocations_file, line + "\n")
            async with asyncio.timeout(1):
                await one.ended.wait()
            assert not two.ended.is_set()
            with pytest.raises(AuthenticationFailed, match="revoked"):
                await served.ask(STREAM, revoked)

    play(files.config(mutual=False, tokens=True), scenario)


def test_a_conversation_ends_when_its_certificate_is_revoked(files: Files) -> None:
    pair = files.authority.sign("alice")

    async def scenario(served: Served) -> None:
        async with Open(served, LinkSecurity(files.tls(pair))) as one:
            rewrite(files.revocations_file, f"certificate {pair.serial:x}\n")
            async with asyncio.timeout(1):
                await one.ended.wait()

    play(files.config(mutual=True, tokens=False), scenario)


def test_a_conversation_ends_when_its_token_expires(files: Files) -> None:
    async def scenario(served: Served) -> None:
        token = files.maker.token(aud=AUDIENCE, lasts_s=2)
        async with Open(served, LinkSecurity(files.tls(), token)) as one:
            async with asyncio.timeout(4):
                await one.ended.wait()
        with pytest.raises(AuthenticationFailed, match="expired"):
            await served.ask(STREAM, LinkSecurity(files.tls(), token))

    play(files.config(mutual=False, tokens=True), scenario)


def test_a_conversation_ends_when_its_certificate_expires(files: Files) -> None:
    pair = files.authority.sign("alice", lasts=timedelta(seconds=3))

    async def scenario(served: Served) -> None:
        async with Open(served, LinkSecurity(files.tls(pair))) as one:
            async with asyncio.timeout(5):
                await one.ended.wait()

    play(files.config(mutual=True, tokens=False), scenario)


def test_a_damaged_list_of_revocations_leaves_the_former_one(files: Files) -> None:
    files.revocations_file.write_text("token seven\n")

    async def scenario(served: Served) -> None:
        revoked = LinkSecurity(files.tls(), files.maker.token(aud=AUDIENCE, jti="seven"))
        rewrite(files.revocations_file, "tokken eight\n")
        served.server._admission.look()
        with pytest.raises(AuthenticationFailed, match="revoked"):
            await served.ask(STREAM, revoked)

    play(files.config(mutual=False, tokens=True), scenario)


def test_keys_are_rotated_without_a_restart(files: Files) -> None:
    new = Maker("second")
    before = LinkSecurity(files.tls(), files.maker.token(aud=AUDIENCE))
    after = LinkSecurity(files.tls(), new.token("bob", aud=AUDIENCE))

    async def scenario(served: Served) -> None:
        with pytest.raises(AuthenticationFailed):
            await served.ask(STREAM, after)
        rewrite(files.keys_file, jwks(files.maker, new))
        served.server._admission.look()
        for form in FORMS:
            assert await served.ask(form, before) == "alice"
            assert await served.ask(form, after) == "bob"
        rewrite(files.keys_file, jwks(new))
        served.server._admission.look()
        for form in FORMS:
            with pytest.raises(AuthenticationFailed):
                await served.ask(form, before)
        rewrite(files.keys_file, '{"keys": [')
        served.server._admission.look()
        assert await served.ask(STREAM, after) == "bob"

    play(files.config(mutual=False, tokens=True), scenario)


def test_a_fresh_token_is_asked_for_with_each_link(files: Files) -> None:
    given = iter([files.maker.token("alice", aud=AUDIENCE), files.maker.token("bob", aud=AUDIENCE)])
    security = LinkSecurity(files.tls(), lambda: next(given))

    async def scenario(served: Served) -> None:
        assert await served.ask(STREAM, security) == "alice"
        assert await served.ask(STREAM, security) == "bob"

    play(files.config(mutual=False, tokens=True), scenario)


def test_a_server_takes_a_new_certificate_without_a_restart(files: Files) -> None:
    """The new one is from another authority, so that clients can tell which one they saw."""
    new = files.stranger.sign("server", file="new")
    config = ListenConfig(
        stop_grace_ms=100,
        tls_certificate_file=files.server.certificate_file,
        tls_key_file=files.server.key_file,
    )
    ours = LinkSecurity(files.tls())
    theirs = LinkSecurity(TlsFiles(ca_file=files.stranger.ca_file))
    certificate, key = Path(files.server.certificate_file), Path(files.server.key_file)

    async def scenario(served: Served) -> None:
        async with Open(served, ours) as one:
            copy(new.key_file, key)
            # Half of it is there: the former pair stays.
            assert await served.ask(STREAM, ours) == "anonymous"
            rewrite(certificate, "-----BEGIN nothing")
            assert await served.ask(STREAM, ours) == "anonymous"
            copy(new.certificate_file, certificate)
            assert await served.ask(STREAM, theirs) == "anonymous"
            assert await served.ask(UNARY, theirs) == "anonymous"
            with pytest.raises(LinkRefused):
                await served.ask(STREAM, ours)
            assert not one.ended.is_set()

    play(config, scenario)


def test_a_server_takes_new_authorities_of_its_clients_without_a_restart(files: Files) -> None:
    trusted = files.directory / "clients.pem"
    trusted.write_text(Path(files.authority.ca_file).read_text())
    config = replace(files.config(mutual=True, tokens=False), tls_client_ca_file=str(trusted))
    alice, bob = files.authority.sign("alice"), files.stranger.sign("bob")

    async def scenario(served: Served) -> None:
        assert await served.ask(STREAM, LinkSecurity(files.tls(alice))) == "alice"
        copy(files.stranger.ca_file, trusted)
        assert await served.ask(STREAM, LinkSecurity(files.tls(bob))) == "bob"
        with pytest.raises(LinkRefused):
            await served.ask(STREAM, LinkSecurity(files.tls(alice)))

    play(config, scenario)


def test_an_error_of_a_server_is_typed(files: Files) -> None:
    """A client of another language finds the code, and not only a text."""
    from google.rpc import status_pb2

    async def scenario(served: Served) -> None:
        credentials = credentials_of(files.tls())
        async with grpc.aio.secure_channel(served.server.address, credentials) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"")
            error = caught.value
        status: status_pb2.Status | None = await rpc_status_of(error)
        assert status is not None
        told = common_pb2.ServerError()
        status.details[0].Unpack(told)
        assert isinstance(from_wire(told), AuthenticationFailed)

    async def rpc_status_of(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
        for key, value in error.trailing_metadata():
            if key == "grpc-status-details-bin":
                assert isinstance(value, bytes)
                return status_pb2.Status.FromString(value)
        return None

    play(files.config(mutual=False, tokens=True), scenario)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tls_client_ca_file": "ca"}, "no use without TLS"),
        ({"token_issuer": "us"}, "without token_keys_file"),
        ({"token_audience": "us"}, "without token_keys_file"),
        ({"allow_anonymous": True}, "without token_keys_file"),
        ({"revocations_file": "revoked"}, "revocations_file"),
        ({"host": "0.0.0.0", "token_keys_file": "keys"}, "plain text"),
        ({"host": "0.0.0.0"}, "lets other machines in"),
        (
            {
                "host": "0.0.0.0",
                "token_keys_file": "keys",
                "allow_anonymous": True,
                "tls_certificate_file": "c",
                "tls_key_file": "k",
            },
            "lets other machines in",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        replace(ListenConfig(), **settings)


def test_who_asks_its_clients_may_listen_for_other_machines() -> None:
    ListenConfig(
        host="0.0.0.0", tls_certificate_file="c", tls_key_file="k", tls_client_ca_file="ca"
    )


def test_a_token_does_not_cross_the_network_in_plain_text() -> None:
    security = LinkSecurity(None, "a.b.c")
    assert security.metadata("127.0.0.1:1") == (("authorization", "Bearer a.b.c"),)
    with pytest.raises(InvalidConfig, match="plain text"):
        security.metadata("broker.example:6650")


@pytest.mark.parametrize("token", ["", " ", "two words", "line\nline", "ümlaut", "\x00"])
def test_what_cannot_be_a_token_is_not_sent(token: str) -> None:
    with pytest.raises(InvalidConfig, match="give a JWT"):
        LinkSecurity(None, token).check()


def test_a_client_whose_token_cannot_be_read_is_told_so(files: Files) -> None:
    def missing() -> str:
        raise InvalidConfig("no such file")

    async def scenario(served: Served) -> None:
        with pytest.raises(LinkRefused, match="no such file"):
            await served.ask(STREAM, LinkSecurity(files.tls(), missing))
        assert issubclass(LinkRefused, LinkClosed)

    play(files.config(mutual=False, tokens=True), scenario)
