"""Credentials of all kinds, good and bad, and the ways in which servers ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
from tests.access.world import Metadata
from tests.certificates import Authority, Pair
from tests.core.calls import credentials_of
from tests.core.test_tokens import forged
from tests.tokens import Maker, jwks

from magnetar_core.clock import SystemClock
from magnetar_core.config import ListenConfig
from magnetar_core.security.link_security import TOKEN_KEY, TOKEN_SCHEME, LinkSecurity, TlsFiles

AUDIENCE, ISSUER = "magnetar", "test issuer"
SERVER = "server"
# A machine whose certificate has no rights of its own.
MACHINE = "machine-7"
# A channel that shares no connection with others.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


@dataclass(frozen=True)
class Way:
    """A way in which servers ask who their clients are."""

    tls: bool
    tokens: bool = False
    certificates: bool = False


WAYS = {
    "plain text, tokens": Way(tls=False, tokens=True),
    "TLS, tokens": Way(tls=True, tokens=True),
    "mutual TLS": Way(tls=True, certificates=True),
    "mutual TLS, tokens": Way(tls=True, certificates=True, tokens=True),
}


@dataclass(frozen=True)
class Shown:
    """Credentials that a client shows.

    Attributes:
        pair: its certificate.
        tls: whether it talks TLS.
    """

    tls: bool
    metadata: Metadata = ()
    pair: Pair | None = None


class Files:
    """Files of servers, and those who make credentials for clients.

    Args:
        principals: who may come to be known by a certificate.
    """

    def __init__(self, directory: Path, principals: Iterable[str]) -> None:
        self.maker = Maker()
        # Of the same name as the good one: its signature tells them apart.
        self.other_maker = Maker()
        self.authority = Authority(directory / "ours")
        self.stranger = Authority(directory / "theirs")
        self.keys_file = directory / "keys.json"
        self.keys_file.write_text(jwks(self.maker))
        self.server = self.authority.sign(SERVER)
        self.machine = self.authority.sign(MACHINE)
        self.server_token = self.token(SERVER)
        names = list(principals)
        self.good = {one: self.authority.sign(one) for one in names}
        self.by_uri = {
            one: self.authority.sign("somebody", uri=one, file=f"uri-{one}") for one in names
        }
        self.expired = {
            one: self.authority.sign(one, expired=True, file=f"expired-{one}") for one in names
        }
        self.strange = {one: self.stranger.sign(one) for one in names}
        self.revoked = {one: self.authority.sign(one, file=f"revoked-{one}") for one in names}
        self.revocations_file = directory / "revoked"
        lines = ["token stolen", "principal mallory"]
        lines += [f"certificate {pair.serial:X}" for pair in self.revoked.values()]
        self.revocations_file.write_text("\n".join(lines) + "\n")
        self.mallory = self.authority.sign("mallory")

    def listen(self, way: Way) -> ListenConfig:
        return ListenConfig(
            stop_grace_ms=100,
            tls_certificate_file=self.server.certificate_file if way.tls else "",
            tls_key_file=self.server.key_file if way.tls else "",
            tls_client_ca_file=self.authority.ca_file if way.certificates else "",
            token_keys_file=str(self.keys_file) if way.tokens else "",
            token_audience=AUDIENCE if way.tokens else "",
            token_issuer=ISSUER if way.tokens else "",
            revocations_file=str(self.revocations_file),
        )

    def security(self, way: Way) -> LinkSecurity:
        """The links of the servers themselves."""
        tls = TlsFiles(
            ca_file=self.authority.ca_file,
            certificate_file=self.server.certificate_file,
            key_file=self.server.key_file,
        )
        return LinkSecurity(tls if way.tls else None, self.server_token if way.tokens else None)

    def token(self, name: str, **claims: object) -> str:
        known = {"aud": AUDIENCE, "iss": ISSUER, "lasts_s": 86_400}
        return self.maker.token(name, **(known | claims))  # type: ignore[arg-type]

    def channel(self, address: str, shown: Shown) -> grpc.aio.Channel:
        if not shown.tls:
            return grpc.aio.insecure_channel(address, _OPTIONS)
        pair = shown.pair
        tls = TlsFiles(
            ca_file=self.authority.ca_file,
            certificate_file=pair.certificate_file if pair else "",
            key_file=pair.key_file if pair else "",
        )
        return grpc.aio.secure_channel(address, credentials_of(tls), _OPTIONS)


def bearer(token: str) -> Metadata:
    return ((TOKEN_KEY, TOKEN_SCHEME + token),)


# How to be known by a name: where, and what is shown.
GOOD: dict[str, tuple[str, Callable[[Files, str], Shown]]] = {
    "a token in plain text": (
        "plain text, tokens",
        lambda files, name: Shown(False, bearer(files.token(name))),
    ),
    "a token": ("TLS, tokens", lambda files, name: Shown(True, bearer(files.token(name)))),
    "a certificate": ("mutual TLS", lambda files, name: Shown(True, pair=files.good[name])),
    "a certificate with a URI": (
        "mutual TLS",
        lambda files, name: Shown(True, pair=files.by_uri[name]),
    ),
    "a certificate, where tokens count, too": (
        "mutual TLS, tokens",
        lambda files, name: Shown(True, pair=files.good[name]),
    ),
    "a machine's certificate, and a token": (
        "mutual TLS, tokens",
        lambda files, name: Shown(True, bearer(files.token(name)), files.machine),
    ),
}

# Metadata without a valid token of a name, whatever other credentials are shown.
BAD_TOKENS: dict[str, Callable[[Files, str], Metadata]] = {
    "an expired token": lambda files, name: bearer(files.token(name, lasts_s=-5)),
    "a token of the future": lambda files, name: bearer(
        files.token(name, nbf=SystemClock().wall_ms() // 1_000 + 600)
    ),
    "a token that never expires": lambda files, name: bearer(files.token(name, exp=None)),
    "a token of another key": lambda files, name: bearer(
        files.other_maker.token(name, aud=AUDIENCE, iss=ISSUER)
    ),
    "a token for other servers": lambda files, name: bearer(files.token(name, aud="other")),
    "a token for no servers": lambda files, name: bearer(files.token(name, aud=None)),
    "a token of another issuer": lambda files, name: bearer(files.token(name, iss="other")),
    "a revoked token": lambda files, name: bearer(files.token(name, jti="stolen")),
    "a token of a revoked principal": lambda files, name: bearer(files.token("mallory")),
    "an unsigned token": lambda files, name: bearer(
        forged({"alg": "none"}, {"sub": name, "aud": AUDIENCE, "iss": ISSUER, "exp": 1e10})
    ),
    "a token with another name in it": lambda files, name: bearer(
        _renamed(files.token(MACHINE), files.token(name))
    ),
    "no token at all": lambda files, name: ((TOKEN_KEY, f"Basic {name}"),),
    "two tokens": lambda files, name: bearer(files.token(name)) + bearer(files.token("nobody")),
}

BAD_CERTIFICATES: dict[str, Callable[[Files, str], Pair | None]] = {
    "no certificate": lambda files, name: None,
    "an expired certificate": lambda files, name: files.expired[name],
    "a certificate of another authority": lambda files, name: files.strange[name],
    "a revoked certificate": lambda files, name: files.revoked[name],
    "a certificate of a revoked principal": lambda files, name: files.mallory,
}


def _renamed(token: str, other: str) -> str:
    """A token's header and signature, around the claims of another one."""
    header, _, signature = token.split(".")
    return ".".join((header, other.split(".")[1], signature))


def bad(way: Way) -> dict[str, Callable[[Files, str], Shown]]:
    """Return credentials that are refused in a way, whichever principal they name."""
    found: dict[str, Callable[[Files, str], Shown]] = {}
    if way.tls:
        found["plain text"] = lambda files, name: Shown(
            False, bearer(files.token(name)) if way.tokens else ()
        )
    if way.tokens:
        for kind, metadata in BAD_TOKENS.items():
            found[kind] = lambda files, name, metadata=metadata: Shown(  # type: ignore[misc]
                way.tls, metadata(files, name), files.machine if way.certificates else None
            )
    if way.tokens and not way.certificates:
        found["nothing"] = lambda files, name: Shown(way.tls)
    if way.certificates:
        for kind, pair in BAD_CERTIFICATES.items():
            # A good token does not help.
            found[kind] = lambda files, name, pair=pair: Shown(  # type: ignore[misc]
                True, bearer(files.token(name)) if way.tokens else (), pair(files, name)
            )
    return found


NO_LINK = frozenset(
    {
        "plain text",
        "no certificate",
        "an expired certificate",
        "a certificate of another authority",
    }
)
