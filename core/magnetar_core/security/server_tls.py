"""A server's certificate, which is read again when its files change: no restart is needed.

gRPC asks for the certificate at each handshake, on a thread of its own. Conversations that run keep
the certificate with which they began.
"""

from __future__ import annotations

import logging
from typing import Any

import grpc

from magnetar_core.config import InvalidConfig
from magnetar_core.security.pem_files import RenewedFiles, read_authorities, read_pair

log = logging.getLogger(__name__)


class ServerTls:
    """The certificate of a server, and the authorities of its clients.

    Args:
        client_ca_file: PEM file of authorities; clients then have to show a certificate that one of
            them has signed. Empty: clients show none.
    Raises:
        InvalidConfig: a file cannot be read, or is not what it should be.
    """

    def __init__(self, certificate_file: str, key_file: str, client_ca_file: str = "") -> None:
        self._certificate_file = certificate_file
        self._key_file = key_file
        self._client_ca_file = client_ca_file
        files = [one for one in (certificate_file, key_file, client_ca_file) if one]
        self._files = RenewedFiles(files, self._read)

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of a port, which ask for the certificate at each handshake."""
        # None is allowed, and means that nothing has changed.
        fetch: Any = self.renewed
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), fetch, bool(self._client_ca_file)
        )

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificate if it has changed; None: it has not, or the new one is damaged."""
        try:
            if not self._files.refresh():
                return None
        except InvalidConfig as error:
            log.error("new TLS files are not used, the previous ones stay in use: %s", error)
            return None
        log.info("TLS files have changed: new conversations use %s", self._certificate_file)
        return self._configuration()

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        certificate, key, authorities = self._files.content
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)

    def _read(self) -> tuple[bytes, bytes, bytes | None]:
        authorities = read_authorities(self._client_ca_file) if self._client_ca_file else None
        return *read_pair(self._certificate_file, self._key_file), authorities
