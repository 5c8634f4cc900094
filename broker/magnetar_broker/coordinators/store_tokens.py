"""Tokens of stores: a random text that a server makes with its store, and shows to other servers.

Only the server and the brokers know it. So it tells a server from a client that speaks in its name,
and its store from another one. Pure.
"""

from __future__ import annotations

import hashlib

from magnetar_core.errors import InvalidArgument

# Servers take 32 characters.
TOKEN_CHARACTERS_MAX = 64


def digest_of(store_token: str) -> bytes:
    """Return the digest of a token, by which others know it without being able to show it."""
    return hashlib.sha256(store_token.encode()).digest()


def check_token(store_token: str) -> None:
    """Check the form of a token.

    Raises:
        InvalidArgument: it is missing, or too long.
    """
    if not 0 < len(store_token) <= TOKEN_CHARACTERS_MAX:
        raise InvalidArgument(f"the token of a store has 1 to {TOKEN_CHARACTERS_MAX} characters")


def works_with_another(server: str) -> str:
    """Return why a server's new store is refused while the server works with its present one."""
    return (
        f"{server} works with another store now: stop the process that is not to go on, and ask"
        " again"
    )
