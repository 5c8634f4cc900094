"""The version of the protocol, and the one check that servers and their clients make of it. Pure.

It rises when a peer of before could misunderstand what is said; new fields and commands alone do
not raise it. Clients are brokers' and coordinators' clients alike, and coordinators are brokers'.
"""

from __future__ import annotations

from magnetar_core.errors import UnsupportedVersion

PROTOCOL_VERSION = 1


def check_client(given: int, client_name: str, *, ours: int = PROTOCOL_VERSION) -> None:
    """What a server makes of a client's Hello.

    Args:
        given: what the client speaks; 0: it does not say.
        ours: what this server speaks.
    Raises:
        UnsupportedVersion: another version. No effect.
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
    """What a client makes of a server's answer, for servers that do not check.

    Raises:
        UnsupportedVersion: the server speaks another version. Nothing was asked of it yet.
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
