"""Reads the certificate that a client has shown. gRPC has checked who signed it."""

from __future__ import annotations

from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID

from magnetar_core.errors import AuthenticationFailed
from magnetar_core.security.identity import Identity, principal_of

_WHAT = "the client's certificate"


@lru_cache(maxsize=1_024)
def identity_of(pem: bytes) -> Identity:
    """Return the identity in a certificate: its first URI, or else its common name.

    Raises:
        AuthenticationFailed: it has no name, or cannot be read.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        name = _uri_of(certificate) or _common_name_of(certificate)
        expires_at_ms = certificate.not_valid_after_utc.timestamp() * 1_000
    except ValueError:
        raise AuthenticationFailed(f"{_WHAT} cannot be read") from None
    principal = principal_of(name, _WHAT)
    return Identity(
        principal=principal,
        expires_at_ms=expires_at_ms,
        certificate_serial=certificate.serial_number,
        certificate_name=principal.name,
    )


def _uri_of(certificate: x509.Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return str(uris[0]) if uris else ""


def _common_name_of(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    # Several are several answers to one question.
    return str(names[0].value) if len(names) == 1 else ""
