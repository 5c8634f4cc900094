"""Settings of the connection to etcd, and of the patience with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """Settings of the connection to etcd.

    Attributes:
        endpoints: client addresses of etcd's members, "host:port". The first one that answers is
            used until it does not; then comes the next.
        tls: talk TLS to them.
        ca_certificates: PEM of the authorities that TLS trusts; empty: those of gRPC.
        certificate: PEM of the certificate that etcd asks for, if it does; private_key belongs
            to it.
        private_key: PEM.
        user: a user of etcd's; empty: etcd asks for none.
        password: of the user.
        endpoint_timeout_ms: how long an endpoint may take to answer before the next one is asked.
            Less would leave etcd when it is merely busy. More costs that time whenever a member of
            etcd stops; a third of the lease is too much, since two renewals in a row have to fit.
        call_timeout_ms: how long a call asks one endpoint after the other before it gives up.
        read_again: reads certificates and passwords from files again, and raises ValueError if they
            cannot be used; None: no setting is a file.
        silence_ms_max: how long a watch may be silent. It asks for a sign of life three times as
            often.
    """

    endpoints: tuple[str, ...]
    tls: bool = False
    ca_certificates: bytes = b""
    certificate: bytes = b""
    private_key: bytes = field(default=b"", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    endpoint_timeout_ms: int = 500
    call_timeout_ms: int = 2_000
    silence_ms_max: int = 1_500
    read_again: Callable[[], EtcdSettings] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check how the settings fit together.

        Raises:
            ValueError: they do not.
        """
        if not self.endpoints:
            raise ValueError("no endpoint of etcd is named; give at least one HOST:PORT")
        for endpoint in self.endpoints:
            host, _, port = endpoint.rpartition(":")
            if not host or "/" in host or not port.isdecimal():
                raise ValueError(f"{endpoint!r} is not an endpoint of etcd: write HOST:PORT")
        if not 0 < self.endpoint_timeout_ms <= self.call_timeout_ms:
            raise ValueError("endpoint_timeout_ms must be positive, and not above call_timeout_ms")
        if self.silence_ms_max <= 0:
            raise ValueError("silence_ms_max must be positive")
        if self.password and not self.user:
            raise ValueError("etcd's password needs a user")
        if bool(self.certificate) != bool(self.private_key):
            raise ValueError(
                "a certificate for etcd needs its private key, and the other way round"
            )
        if (self.ca_certificates or self.certificate) and not self.tls:
            raise ValueError("certificates for etcd have no use without TLS")

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return the credentials for TLS; None: plain text."""
        if not self.tls:
            return None
        return grpc.ssl_channel_credentials(
            self.ca_certificates or None, self.private_key or None, self.certificate or None
        )
