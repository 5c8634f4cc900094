"""Settings that validate themselves when created; the module `settings` reads their values."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

PREFIX = "MAGNETAR_"
# A name or an IPv4 address. A text with a scheme, a path or a gap would be looked up as a name.
_HOST = re.compile(r"[^\s:/=@#?\[\]\x00-\x1f\x7f]{1,253}")

# The largest frame that a setting may allow. gRPC's own limit lies above it.
FRAME_BYTES_MAX = 64 << 20
# A writer closes a frame at a megabyte, before the command that exceeds it.
FRAME_BYTES_MIN = 4 << 20


# Metadata of a field that flags or a list of members give: files and variables do not set it.
NO_SETTING: Final = MappingProxyType({"is_setting": False})


class InvalidConfig(ValueError):
    """The settings cannot work. The message says which setting is wrong, and what would work."""


def wrong_number(settings: Any, *, may_be_zero: Collection[str] = ()) -> str | None:
    """Check the numbers of settings; return a complaint about a wrong one, or None.

    Every number is above 0: a new setting is checked without being named anywhere else.

    Args:
        settings: a dataclass.
        may_be_zero: the fields for which 0 means something.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        # Switches and members of an IntEnum are not numbers.
        if type(value) not in (int, float) or value > 0:
            continue
        if field.name not in may_be_zero:
            return f"{field.name} must be positive"
        if value != 0:
            return f"{field.name} must not be negative"
    return None


def check_numbers(settings: Any, *, may_be_zero: Collection[str] = ()) -> None:
    """Check the numbers of settings, as wrong_number. Raises: InvalidConfig."""
    complaint = wrong_number(settings, may_be_zero=may_be_zero)
    if complaint is not None:
        raise InvalidConfig(complaint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """Settings of a server's address, TLS and limits for clients.

    Attributes:
        host: address of this machine to listen on. `::` means all of its addresses, IPv4 and IPv6.
        port: port to listen on. 0: the operating system chooses.
        allow_remote: whether to listen on an address that other machines can reach although
            clients are not authenticated: every client that reaches the port may use the server.
            Not needed with tls_client_ca_file or token_keys_file.
        streams: whether a client may move its frames from gRPC to a TCP connection of their own,
            with the same TLS. There a frame costs much less processor time. false: firewalls have
            one port less to know.
        stream_port: port of these connections, on the same host. 0: the operating system chooses,
            as it must if several servers share an environment. A client that does not reach the
            port stays in gRPC.
        metrics_port: port of the endpoint for Prometheus, on the same host. Unset: no endpoint.
        connections_max: limit on connections to the port, before and after authentication; the
            server closes further ones at once. A client takes one, and one more open file for its
            stream. 0: a third of the open files that the process may have for connections, at most
            10,000. Higher: more clients. Lower: less memory.
        handshake_timeout_ms: time after which the server closes a connection without a call, and a
            conversation without a command. Higher: slow networks work. Lower: idle connections hold
            the places of clients for less time.
        frame_bytes_max: largest frame that a client may send; a client that sends a larger one is
            disconnected. Clients are told the limit. Higher: larger batches. Lower: each client can
            use less of the server's memory.
        session_push_bytes_max: bytes of messages that may wait unread for a client; it gets more
            when it has read half of them. Higher: more throughput on slow networks. Lower: less
            memory for each client.
        session_answer_bytes_max: bytes of answers that may be unread or under way for a client;
            while there are more, its next commands wait in the network. A single answer may exceed
            the limit. All unary calls of a connection share it. Higher: more reads at once. Lower:
            less memory for each client.
        session_queue_bytes_max: bytes of any kind that may wait unread for a client; with more, it
            is disconnected. Higher: a client on a slow network stays connected. Lower: each client
            can use less of the server's memory.
        stop_grace_ms: time that a stopping server gives to calls that are under way. Higher: more
            calls get their answers. Lower: the server stops sooner.
        slow_operation_ms: time after which a command counts as slow and is logged, at most once a
            second for each kind of command. 0: slow commands are not logged. Higher: fewer lines
            in the log. Lower: small delays are seen.
        tls_certificate_file, tls_key_file: PEM files of the server's certificate and its key; both
            or neither. The server reads them again when they change. Empty: conversations are plain
            text.
        tls_client_ca_file: PEM file of authorities. Clients must have a certificate that one of
            them has signed (mutual TLS). The principal is the certificate's first URI, or else its
            common name.
        token_keys_file: public keys that check tokens (JWT), as JWKS or PEM. Clients must have a
            token, or a certificate. The principal is the token's claim `sub`. The server reads the
            file again when it changes; to rotate keys, list both for a while.
        token_algorithms: signature algorithms that tokens may have, separated by commas.
        token_issuer: required claim `iss` of tokens. Empty: any.
        token_audience: required claim `aud` of tokens. Empty: any.
        revocations_file: tokens, certificates and principals that are revoked. The server reads it
            again when it changes; their conversations end within a second.
        allow_anonymous: whether a client without a token and a certificate is accepted, as the
            principal "anonymous". Only with token_keys_file.
        txn_proof_keys_file: secret keys that all servers of the cluster share. Coordinators then
            give out a proof with each TxnID, and brokers refuse sends and acks in a transaction
            without the proof that their principal may write in it. A line `ID KEY` for each key, in
            base64; the first key signs, and all of them check. Servers read the file again when it
            changes.
    """

    host: str = "127.0.0.1"
    port: int = 0
    allow_remote: bool = False
    streams: bool = True
    stream_port: int = 0
    metrics_port: int | None = None
    connections_max: int = 0
    handshake_timeout_ms: int = 5_000
    frame_bytes_max: int = FRAME_BYTES_MAX
    session_push_bytes_max: int = 8 << 20
    session_answer_bytes_max: int = 16 << 20
    session_queue_bytes_max: int = 256 << 20
    stop_grace_ms: int = 2_000
    slow_operation_ms: int = 1_000
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_client_ca_file: str = ""
    token_keys_file: str = ""
    token_algorithms: str = "RS256,ES256,EdDSA"
    token_issuer: str = ""
    token_audience: str = ""
    revocations_file: str = ""
    allow_anonymous: bool = False
    txn_proof_keys_file: str = ""

    @property
    def asks_who_clients_are(self) -> bool:
        """Whether clients have to show who they are."""
        return bool(self.tls_client_ca_file or self.token_keys_file)

    def __post_init__(self) -> None:
        for name in ("port", "stream_port", "metrics_port"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 0xFFFF:
                raise InvalidConfig(f"{name} is {value}; choose one from 1 to 65535, or 0 for any")
        is_known_who = self.asks_who_clients_are and not self.allow_anonymous
        if not is_loopback(self.host) and not self.allow_remote and not is_known_who:
            raise InvalidConfig(
                f"listening on {self.host} lets other machines in; if that is meant, "
                f"say so with --allow-remote or {PREFIX}ALLOW_REMOTE=1, else use 127.0.0.1"
            )
        if not FRAME_BYTES_MIN <= self.frame_bytes_max <= FRAME_BYTES_MAX:
            raise InvalidConfig(
                f"frame_bytes_max must be from {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX}"
            )
        check_numbers(
            self,
            may_be_zero=(
                "port",
                "stream_port",
                "metrics_port",
                "connections_max",
                "stop_grace_ms",
                "slow_operation_ms",
            ),
        )
        if self.session_answer_bytes_max < self.session_push_bytes_max:
            raise InvalidConfig(
                "session_answer_bytes_max must be at least session_push_bytes_max, or what is"
                " pushed would keep a client's commands waiting"
            )
        if self.session_queue_bytes_max < self.session_push_bytes_max:
            raise InvalidConfig(
                "session_queue_bytes_max must be at least session_push_bytes_max: it bounds that,"
                " and the replies that come on top"
            )
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise InvalidConfig("tls_certificate_file and tls_key_file need each other: name both")
        if self.tls_client_ca_file and not self.tls_certificate_file:
            raise InvalidConfig(
                "tls_client_ca_file has no use without TLS: name tls_certificate_file and"
                " tls_key_file, too"
            )
        if self.token_keys_file and not self.tls_certificate_file and not is_loopback(self.host):
            raise InvalidConfig(
                "tokens would cross the network in plain text: name tls_certificate_file and"
                " tls_key_file, too"
            )
        for name in ("token_issuer", "token_audience", "allow_anonymous"):
            if getattr(self, name) and not self.token_keys_file:
                raise InvalidConfig(f"{name} has no use without token_keys_file: name that, too")
        for name in ("revocations_file", "txn_proof_keys_file"):
            if getattr(self, name) and not self.asks_who_clients_are:
                raise InvalidConfig(
                    f"{name} has no use while clients do not show a token or a certificate:"
                    " name token_keys_file or tls_client_ca_file, too"
                )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def join_address(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Parse "host:port".

    Raises:
        InvalidConfig: the text has another form.
    """
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 0xFFFF
    if not is_port or not (_HOST.fullmatch(host) or _is_bracketed(host)):
        raise InvalidConfig(f"{address[:300]!r} is not an address; {how_to_write(address)}")
    return host.strip("[]"), int(port)


def _is_bracketed(host: str) -> bool:
    """Return whether this is an IPv6 address in brackets."""
    return host.startswith("[") and host.endswith("]") and _is_ipv6(host[1:-1])


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def how_to_write(address: str) -> str:
    """Return how "host:port" is written, for the message about a malformed one."""
    host, _, port = address.rpartition(":")
    # Without a port, all of it may be a host.
    for one, behind in ((host, port if port.isdigit() else "6650"), (address, "6650")):
        name = one.strip("[]")
        if _is_ipv6(name):
            return f"write IPv6 in brackets, as [{name}]:{behind[:5]}"
    return "write HOST:PORT, as 127.0.0.1:6650"
