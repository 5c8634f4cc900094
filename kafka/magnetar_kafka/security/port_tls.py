"""TLS of the port for Kafka's clients: the server's certificate, read again when it changes."""

from __future__ import annotations

import logging
import ssl

from magnetar_core.config import InvalidConfig
from magnetar_core.security.pem_files import RenewedFiles, read_authorities, read_pair

log = logging.getLogger(__name__)


class PortTls:
    """The certificate of a server, and the authorities of its clients.

    Args:
        client_ca_file: authorities; clients then have to show a certificate that one of them has
            signed. Empty: they show none.
    Raises:
        InvalidConfig: a file cannot be read, or is not what it should be.
    """

    def __init__(self, certificate_file: str, key_file: str, client_ca_file: str = "") -> None:
        self._certificate_file = certificate_file
        self._key_file = key_file
        self._client_ca_file = client_ca_file
        files = [one for one in (certificate_file, key_file, client_ca_file) if one]
        self._files = RenewedFiles(files, self._read)

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection."""
        try:
            self._files.refresh()
        except InvalidConfig as error:
            # The gRPC port, which has the same files, says so as an error.
            log.debug("new TLS files are not used for Kafka's clients: %s", error)
        return self._files.content

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        read_pair(self._certificate_file, self._key_file, context)
        if self._client_ca_file:
            read_authorities(self._client_ca_file, context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
