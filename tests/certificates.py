"""Certificates for tests: authorities, and what they sign, as PEM files."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from magnetar_core.clock import SystemClock

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate_file: str
    key_file: str
    serial: int


class Authority:
    """A certificate authority, whose own certificate lies in a file.

    Args:
        directory: where all files go; each authority has one of its own.
    """

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        file = directory / "ca.pem"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self.ca_file = str(file)

    def sign(
        self,
        name: str,
        *,
        expired: bool = False,
        uri: str = "",
        lasts: timedelta = _DAY,
        host: str = "127.0.0.1",
        file: str = "",
    ) -> Pair:
        """Sign a certificate that also is a server's at a host.

        Args:
            file: the beginning of the files' names; by default the name.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(host))]
        if uri:
            names.append(x509.UniformResourceIdentifier(uri))
        certificate = (
            _builder(
                _named(name), self._name, key.public_key(), lasts=-_DAY / 2 if expired else lasts
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(
            str(self._directory / f"{file or name}.pem"),
            str(self._directory / f"{file or name}.key"),
            certificate.serial_number,
        )
        Path(pair.key_file).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        Path(pair.certificate_file).write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
        )
        return pair


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    lasts: timedelta = _DAY,
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(SystemClock().wall_ms() / 1_000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + lasts)
    )
