"""Identity: the credentials that a client has shown, and when they expire. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.access.principal import ANONYMOUS, Principal
from magnetar_core.errors import AuthenticationFailed

NAME_CHARACTERS_MAX = 256
# Where the transport tells the certificate that a client has shown, in PEM: gRPC's name for it.
CERTIFICATE_KEY = "x509_pem_cert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A client that a server knows.

    Attributes:
        principal: who sends its commands.
        expires_at_ms: when its token or its certificate expires, in milliseconds since the Unix
            epoch; None: never.
        token_id: of its token; empty: it has none, or the token has no id.
        certificate_serial: of its certificate; None without.
        certificate_name: the name in its certificate.
    """

    principal: Principal
    expires_at_ms: float | None = None
    token_id: str = ""
    certificate_serial: int | None = None
    certificate_name: str = ""


# Identity of all clients of a server that does not authenticate clients.
NOBODY = Identity(principal=ANONYMOUS)


def principal_of(name: object, what: str) -> Principal:
    """Return the principal of a name.

    Args:
        what: the thing that has the name, for errors.
    Raises:
        AuthenticationFailed: it is not a name, or is the one of clients without credentials.
    """
    if not isinstance(name, str) or not name or len(name) > NAME_CHARACTERS_MAX:
        raise AuthenticationFailed(f"{what} has no name of 1 to {NAME_CHARACTERS_MAX} characters")
    if not name.isprintable() or name != name.strip():
        raise AuthenticationFailed(
            f"{what} has a name with spaces at an end, or with characters that cannot be printed"
        )
    if name == ANONYMOUS.name:
        raise AuthenticationFailed(
            f"{what} has the name {ANONYMOUS.name!r}, which is reserved "
            "for clients without credentials"
        )
    return Principal(name)
