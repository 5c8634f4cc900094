"""Options of the links to servers: TLS and tokens, once for all commands.

Their values become part of the environment: servers, jobs and other processes that a command starts
find them there, beside the variables that were set before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from magnetar_cli.types import Function, with_options

if TYPE_CHECKING:
    from magnetar_core.link.grpc_transport import GrpcTransport
    from magnetar_core.security.link_security import LinkSecurity

# Names of parameters, and of the settings that they stand for.
SETTINGS = {
    "tls": "MAGNETAR_TLS",
    "tls_ca_file": "MAGNETAR_TLS_CA_FILE",
    "tls_certificate_file": "MAGNETAR_TLS_CLIENT_CERTIFICATE_FILE",
    "tls_key_file": "MAGNETAR_TLS_CLIENT_KEY_FILE",
    "tls_server_name": "MAGNETAR_TLS_SERVER_NAME",
    "token_file": "MAGNETAR_TOKEN_FILE",
}


# Beginnings of all variables that say how servers and clients are secured.
_SECURITY = (
    *("MAGNETAR_TLS", "MAGNETAR_TOKEN_", "MAGNETAR_REVOCATIONS_FILE", "MAGNETAR_ALLOW_ANONYMOUS"),
    *("MAGNETAR_ACCESS_FILE", "MAGNETAR_SERVER_PRINCIPALS", "MAGNETAR_AUDIT_FILE"),
)


def security_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that say how servers and clients are secured."""
    return {name: text for name, text in environ.items() if name.startswith(_SECURITY)}


def _option(name: str, metavar: str, text: str) -> Callable[[Function], Function]:
    variable = SETTINGS[name.replace("-", "_")]
    return click.option(f"--{name}", metavar=metavar, help=f"{text}  [env: {variable}]")


link_options = with_options(
    click.option(
        "--tls",
        is_flag=True,
        default=None,
        help="Talk TLS; --tls-ca-file says so, too.  [env: MAGNETAR_TLS]",
    ),
    _option("tls-ca-file", "FILE", "The authorities of the servers' certificates, as PEM."),
    _option("tls-certificate-file", "FILE", "The certificate to show to servers, as PEM."),
    _option("tls-key-file", "FILE", "The key of that certificate, as PEM."),
    _option("tls-server-name", "NAME", "The name in the servers' certificates."),
    _option("token-file", "FILE", "The token (JWT) to show to servers."),
)


def note_links(given: Mapping[str, str | bool | None]) -> None:
    """Put the options for links, among others, into the environment."""
    for name, variable in SETTINGS.items():
        value = given.get(name)
        if value is not None:
            os.environ[variable] = "1" if value is True else str(value)


def security() -> LinkSecurity:
    """Return how links to servers are secured.

    Raises:
        InvalidConfig: a file cannot be read, or is not what it should be.
    """
    from magnetar_core.security.link_security import link_security

    return link_security(os.environ)


def new_transport() -> GrpcTransport:
    """Return a transport to servers. Raises: InvalidConfig."""
    from magnetar_core.link.grpc_transport import GrpcTransport

    return GrpcTransport(security())
