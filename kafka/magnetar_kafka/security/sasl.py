"""SASL: the tokens that clients show, by the mechanisms OAUTHBEARER and PLAIN. Pure.

Source: RFC 7628 (OAUTHBEARER), RFC 4616 (PLAIN).
"""

from __future__ import annotations

from magnetar_core.errors import AuthenticationFailed

OAUTHBEARER, PLAIN = "OAUTHBEARER", "PLAIN"
MECHANISMS = (OAUTHBEARER, PLAIN)

_SEPARATOR = "\x01"
_SCHEME = "bearer "


def shown_token(mechanism: str, message: bytes) -> str:
    """Return the token in a client's first message.

    Args:
        mechanism: one of MECHANISMS.
    Raises:
        AuthenticationFailed: there is none. The text has nothing of the message.
    """
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed(f"the message of {mechanism} is not UTF-8") from None
    token = _of_plain(text) if mechanism == PLAIN else _of_bearer(text)
    if not token:
        raise AuthenticationFailed(f"the message of {mechanism} has no token")
    return token


def _of_plain(text: str) -> str:
    """Return the password; the token in it says who the client is, and not the user's name."""
    parts = text.split("\0")
    if len(parts) != 3:
        raise AuthenticationFailed("a message of PLAIN has a name and a password")
    acting_as, user, password = parts
    if acting_as not in ("", user):
        raise AuthenticationFailed("a client cannot act as another principal")
    return password


def _of_bearer(text: str) -> str:
    head, *pairs = text.split(_SEPARATOR)
    binding, comma, rest = head.partition(",")
    acting_as, second_comma, more = rest.partition(",")
    if binding not in ("n", "y") or not comma or not second_comma or more:
        raise AuthenticationFailed("a message of OAUTHBEARER begins with n,,")
    if acting_as:
        raise AuthenticationFailed("a client cannot act as another principal")
    if pairs[-2:] != ["", ""]:
        raise AuthenticationFailed("a message of OAUTHBEARER is cut short")
    for pair in pairs[:-2]:
        name, _, value = pair.partition("=")
        if name == "auth" and value[: len(_SCHEME)].lower() == _SCHEME:
            return value[len(_SCHEME) :].strip()
    return ""
