"""Version of the protocol, and the check that servers and clients make of it. Pure.

The version rises when an older peer could misunderstand a message; new fields and commands alone do
not raise it. The check is the same for clients of brokers and of coordinators, and for coordinators
as clients of brokers.
"""

from __future__ import annotations

from magnetar_core.errors import UnsupportedVersion

PROTOCOL_VERSION = 2


def check_client(given: int, client_name: str, *, ours: int = PROTOCOL_VERSION) -> None:
    """Check the version in a client's Hello.

    Args:
        given: the client's version; 0: it names none.
        ours: this server's version.
    Raises:
        UnsupportedVersion: the versions differ. No effect.
    """
    if given == ours:
        return
    client = f"the client {client_name!r}" if client_name else "this client"
    if not given:
        text = (
            f"{client} does not say which version of the protocol it speaks, and the server speaks"
            f" {ours}: set protocol_version in its Hello, or use a client of Magnetar"
        )
    elif given > ours:
        text = f"{client} speaks {given}, the server {ours}: upgrade servers first, then clients"
    else:
        text = f"{client} speaks {given}, the server {ours}: upgrade this client"
    raise UnsupportedVersion(text, client=given, server=ours)


def check_server(given: int, address: str, *, ours: int = PROTOCOL_VERSION) -> None:
    """Check the version in a server's answer, for servers that do not check the client's version.

    Raises:
        UnsupportedVersion: the versions differ. The server got no other command yet.
    """
    if given == ours:
        return
    if given < ours:
        advice = "upgrade servers first, then clients"
    else:
        advice = "upgrade this client"
    raise UnsupportedVersion(
        f"this client speaks {ours}, the server at {address} {given}: {advice}",
        client=ours,
        server=given,
    )
