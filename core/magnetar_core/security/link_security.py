"""Security of links, on the side that connects: TLS files, and a token.

Files are read again for each link, so that new certificates and tokens need no restart.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from magnetar_core.config import PREFIX, InvalidConfig, is_loopback, split_address
from magnetar_core.security.pem_files import read, read_authorities, read_pair

# A token, or what returns a fresh one for each link.
Token = str | Callable[[], str]

TOKEN_KEY = "authorization"
TOKEN_SCHEME = "Bearer "
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Files and names that a client needs for TLS; every file is PEM.

    Attributes:
        ca_file: certificates of the authorities that may have signed the servers' certificates;
            empty: those that the operating system knows.
        certificate_file, key_file: the client's own certificate, for servers that ask for one; both
            or neither.
        server_name: the name in the servers' certificates, if it is not the one in their addresses.
    """

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    server_name: str = ""

    def __post_init__(self) -> None:
        if bool(self.certificate_file) != bool(self.key_file):
            raise InvalidConfig("a certificate and its key need each other: name both files")

    def context(self) -> ssl.SSLContext:
        """Read the files.

        Raises:
            InvalidConfig: one cannot be read, or is not what it should be.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca_file:
            read_authorities(self.ca_file, context)
            # An authority between, or the server's own certificate, may be all that is known.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        else:
            context.load_default_certs()
        if self.certificate_file:
            read_pair(self.certificate_file, self.key_file, context)
        return context


class LinkSecurity:
    """TLS and token of links.

    Args:
        tls: None: plain text.
        token: for servers that ask for one.
    """

    def __init__(self, tls: TlsFiles | None = None, token: Token | None = None) -> None:
        self.tls = tls
        self._token = token

    def check(self) -> None:
        """Read everything once. Raises: InvalidConfig."""
        self.context()
        if not callable(self._token) and self._token is not None:
            self._text_of(self._token)

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of a new link; None: plain text. Raises: InvalidConfig."""
        return None if self.tls is None else self.tls.context()

    @property
    def server_name(self) -> str:
        """The name in the servers' certificates; empty: the one in their addresses."""
        return "" if self.tls is None else self.tls.server_name

    def metadata(self, server: str) -> tuple[tuple[str, str], ...]:
        """Return the metadata that authenticates this client.

        Args:
            server: its address.
        Raises:
            InvalidConfig: there is no token, or the connection would send it in plain text.
        """
        if self._token is None:
            return ()
        if self.tls is None and not is_loopback(split_address(server)[0]):
            raise InvalidConfig(
                f"a token for {server} would cross the network in plain text: talk TLS, with"
                f" --tls-ca-file, {PREFIX}TLS_CA_FILE or TlsFiles(ca_file=...)"
            )
        token = self._token() if callable(self._token) else self._token
        return ((TOKEN_KEY, TOKEN_SCHEME + self._text_of(token)),)

    @staticmethod
    def _text_of(token: str) -> str:
        text = token.strip()
        # What comes from the token itself stays out of messages.
        if not text or not text.isascii() or not text.isprintable() or " " in text:
            raise InvalidConfig("the token is empty or malformed: give a JWT as one line")
        return text


PLAIN = LinkSecurity()


def token_of_file(file: str) -> Callable[[], str]:
    """Return a function that reads a token from a file, each time anew."""

    def token() -> str:
        try:
            return read(file).decode()
        except UnicodeDecodeError:
            raise InvalidConfig(f"{file} has no token: it is not text") from None

    return token


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """Settings of links to servers: those of a server to other servers, and of the command line.

    Attributes:
        tls: whether links to servers use TLS. It follows from tls_ca_file, and for the links of a
            server from its own tls_certificate_file.
        tls_ca_file: PEM file of the authorities that may have signed the servers' certificates.
            Empty: those that the operating system knows.
        tls_client_certificate_file, tls_client_key_file: PEM files of the certificate, and its key,
            for servers that ask for one; both or neither. Empty: a server shows its own
            certificate.
        tls_server_name: name in the servers' certificates, if it is not the one in their
            addresses.
        token_file: file with a token (JWT) for servers that ask for one. It is read again for each
            link.
    """

    tls: bool = False
    tls_ca_file: str = ""
    tls_client_certificate_file: str = ""
    tls_client_key_file: str = ""
    tls_server_name: str = ""
    token_file: str = ""

    def __post_init__(self) -> None:
        if bool(self.tls_client_certificate_file) != bool(self.tls_client_key_file):
            raise InvalidConfig(
                "tls_client_certificate_file and tls_client_key_file need each other: name both"
            )
        if self.tls_client_certificate_file and not (self.tls or self.tls_ca_file):
            raise InvalidConfig(
                "tls_client_certificate_file has no use without TLS: name tls_ca_file, or set tls"
            )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> LinkConfig:
        """Read the settings from variables MAGNETAR_..., as the command line does without options.

        Raises:
            InvalidConfig: a value is not valid.
        """
        texts = {
            one.name: environ.get(PREFIX + one.name.upper(), "").strip()
            for one in fields(cls)
            if one.name != "tls"
        }
        switch = environ.get(f"{PREFIX}TLS", "").strip().lower()
        if switch not in (*_TRUE, *_FALSE):
            raise InvalidConfig(f"{PREFIX}TLS is {switch!r}; write 1 or 0")
        return cls(tls=switch in _TRUE, **texts)

    def security(self, *, certificate_file: str = "", key_file: str = "") -> LinkSecurity:
        """Return how links are secured.

        Args:
            certificate_file, key_file: the server's own, for the links of a server.
        Raises:
            InvalidConfig: a file cannot be read, or is not what it should be.
        """
        tls = None
        if self.tls or self.tls_ca_file or certificate_file:
            tls = TlsFiles(
                ca_file=self.tls_ca_file,
                certificate_file=self.tls_client_certificate_file or certificate_file,
                key_file=self.tls_client_key_file or key_file,
                server_name=self.tls_server_name,
            )
        found = LinkSecurity(tls, token_of_file(self.token_file) if self.token_file else None)
        found.check()
        if self.token_file:
            read(self.token_file)
        return found


def link_security(environ: Mapping[str, str]) -> LinkSecurity:
    """Return how the links of a command of the command line are secured. Raises: InvalidConfig."""
    return LinkConfig.from_environment(environ).security()
