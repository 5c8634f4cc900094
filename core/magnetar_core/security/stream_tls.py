"""TLS of streams: the certificate that a server's streams have, and how a client knows it.

gRPC has checked who the server is: its certificate, its name, who signed it. There the server tells
which certificate its streams have, and a client of a stream goes by that alone.
Source: docs/design/0020-frame-streams.md, TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import ssl
from functools import cache

from magnetar_core.config import InvalidConfig
from magnetar_core.security.pem_files import RenewedFiles, read_pair

log = logging.getLogger(__name__)


class StreamCertificate:
    """The certificate of a server's streams: the server's own, read again when its files change.

    Raises:
        InvalidConfig: a file cannot be read, or is not what it should be.
    """

    def __init__(self, certificate_file: str, key_file: str) -> None:
        self._certificate_file = certificate_file
        self._key_file = key_file
        self._files = RenewedFiles((certificate_file, key_file), self._read)

    @property
    def context(self) -> ssl.SSLContext:
        """TLS context for the next connection."""
        return self._files.content[0]

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate, in hexadecimal."""
        return self._files.content[1]

    def refresh(self) -> None:
        """Read the files if they have changed. If they cannot be read, the previous ones stay."""
        try:
            self._files.refresh()
        except InvalidConfig as error:
            # gRPC's port says so in the log.
            log.debug("new TLS files are not used for streams: %s", error)

    def _read(self) -> tuple[ssl.SSLContext, str]:
        # Clients have no such package, and no certificate of this kind.
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256

        content, _ = read_pair(self._certificate_file, self._key_file)
        context = _newest(ssl.PROTOCOL_TLS_SERVER)
        # No client resumes a session.
        context.num_tickets = 0
        try:
            context.load_cert_chain(self._certificate_file, self._key_file)
            # The first one is the server's; others are of authorities between.
            fingerprint = x509.load_pem_x509_certificate(content).fingerprint(SHA256()).hex()
        except (OSError, ValueError) as error:
            raise InvalidConfig(
                f"{self._certificate_file} cannot be used for streams: {error}"
            ) from None
        return context, fingerprint


@cache
def client_context() -> ssl.SSLContext:
    """Return the context of a client, without authorities: `has_fingerprint` checks the server."""
    context = _newest(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def has_fingerprint(connection: ssl.SSLObject | None, fingerprint: str) -> bool:
    """Return whether the other side of a connection has shown the certificate of a fingerprint."""
    shown = connection.getpeercert(binary_form=True) if connection is not None else None
    if not shown:
        return False
    return hmac.compare_digest(hashlib.sha256(shown).hexdigest(), fingerprint)


def _newest(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    # Both sides are ours: no other version is needed.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
