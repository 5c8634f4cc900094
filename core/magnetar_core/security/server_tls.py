"""A server's certificate, which is read again when its files change: no restart is needed.

gRPC asks for the certificate at each handshake, on a thread of its own. Conversations that run keep
the certificate with which they began.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import grpc

from magnetar_core.config import InvalidConfig
from magnetar_core.security.pem_files import Stamp, read_authorities, read_pair, stamp_of

log = logging.getLogger(__name__)


class ServerTls:
    """The certificate of a server, and the authorities of its clients.

    Args:
        client_ca_file: PEM file of authorities; clients then have to show a certificate that one of
            them has signed. Empty: clients show none.
    """

    def __init__(self, certificate_file: str, key_file: str, client_ca_file: str = "") -> None:
        self._certificate_file = certificate_file
        self._key_file = key_file
        self._client_ca_file = client_ca_file
        self._stamps = self._look()

    def credentials(self) -> grpc.ServerCredentials:
        """Read the files for the first time.

        Raises:
            InvalidConfig: one cannot be read, or is not what it should be.
        """
        # None is allowed, and means that nothing has changed.
        fetch: Any = self.renewed
        return grpc.dynamic_ssl_server_credentials(self._read(), fetch, bool(self._client_ca_file))

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificate if it has changed; None: it has not, or the new one is damaged.

        A file that is being written is looked at again at the next handshake.
        """
        stamps = self._look()
        if stamps == self._stamps:
            return None
        try:
            found = self._read()
        except InvalidConfig as error:
            log.error("new TLS files are not used, the former ones stay: %s", error)
            return None
        self._stamps = stamps
        log.info("TLS files have changed: new conversations use %s", self._certificate_file)
        return found

    def _read(self) -> grpc.ServerCertificateConfiguration:
        certificate, key = read_pair(self._certificate_file, self._key_file)
        authorities = read_authorities(self._client_ca_file) if self._client_ca_file else None
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)

    def _look(self) -> Sequence[Stamp | None]:
        files = (self._certificate_file, self._key_file, self._client_ca_file)
        return [stamp_of(one) for one in files if one]
