"""Checks tokens (JWT). A library checks signatures; the server's clock decides about times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import jwt

from magnetar_core.config import InvalidConfig
from magnetar_core.errors import AuthenticationFailed
from magnetar_core.security.identity import Identity, principal_of
from magnetar_core.security.token_keys import ALGORITHMS, TokenKey

_OPTIONS: Any = {
    "require": ["exp", "sub"],
    # These three by the server's own clock, below.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}
_SECONDS_MAX = 1e11


def algorithms_of(text: str) -> Collection[str]:
    """Return the algorithms that a setting lists.

    Raises:
        InvalidConfig: it lists none, or one that is not allowed.
    """
    listed = [one.strip() for one in text.split(",") if one.strip()]
    wrong = [one for one in listed if one not in ALGORITHMS]
    if wrong or not listed:
        raise InvalidConfig(
            f"token_algorithms is {text!r}; list some of {', '.join(ALGORITHMS)}, with commas"
        )
    return listed


class TokenVerifier:
    """Checks the tokens of a server's clients.

    Args:
        algorithms: those that tokens may name.
        issuer, audience: what tokens have to name; empty: anything.
    """

    def __init__(
        self,
        keys: Sequence[TokenKey],
        algorithms: Collection[str],
        *,
        issuer: str = "",
        audience: str = "",
    ) -> None:
        self.keys = keys
        self._algorithms = algorithms
        self._issuer = issuer
        self._audience = audience

    def verify(self, token: str, *, now_ms: int) -> Identity:
        """Return who has shown a token.

        Args:
            now_ms: milliseconds since the Unix epoch.
        Raises:
            AuthenticationFailed: it does not count. The text has nothing of the token itself.
        """
        claims = self._claims_of(token)
        expires_at_ms = _time_ms(claims, "exp")
        if expires_at_ms <= now_ms:
            late_s = (now_ms - expires_at_ms) / 1_000
            raise AuthenticationFailed(
                f"the token expired {late_s:.0f} s ago: get a new one, where the last came from"
            )
        if "nbf" in claims and _time_ms(claims, "nbf") > now_ms:
            raise AuthenticationFailed(
                "the token is not valid yet: wait, or compare the clocks of both machines"
            )
        return Identity(
            principal=principal_of(claims["sub"], "the token"),
            expires_at_ms=expires_at_ms,
            token_id=str(claims.get("jti") or ""),
        )

    def _claims_of(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
        except Exception:
            # The bytes come from an unknown client: any error of the parser means that they are not
            # a token.
            raise AuthenticationFailed("the authorization is not a token: send a JWT") from None
        if algorithm not in self._algorithms:
            raise AuthenticationFailed(
                "the token names an algorithm that this server does not take; it takes"
                f" {', '.join(self._algorithms)}"
            )
        fitting = [one for one in self._keys_for(key_id) if algorithm in one.algorithms]
        if not fitting:
            raise AuthenticationFailed(
                "the token is signed with a key that this server does not have: compare its kid"
                " with token_keys_file"
            )
        for one in fitting:
            try:
                return self._decoded(token, one, algorithm)
            except jwt.InvalidSignatureError:
                # Of several keys without a kid, another one may fit.
                continue
            except Exception as error:
                raise AuthenticationFailed(
                    f"the token does not count: {self._reason_of(error)}"
                ) from None
        raise AuthenticationFailed(
            "the token does not count: its signature is wrong; it was made with another key, or"
            " changed"
        )

    def _keys_for(self, key_id: object) -> Sequence[TokenKey]:
        """Return the keys that may have signed a token: a kid decides, if the file has any."""
        if key_id is None or not any(one.key_id for one in self.keys):
            return self.keys
        return [one for one in self.keys if one.key_id == key_id]

    def _decoded(self, token: str, key: TokenKey, algorithm: str) -> dict[str, Any]:
        found: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            issuer=self._issuer or None,
            audience=self._audience or None,
            options={**_OPTIONS, "verify_aud": bool(self._audience)},
        )
        return found

    def _reason_of(self, error: Exception) -> str:
        if isinstance(error, jwt.MissingRequiredClaimError):
            return f"it has no claim {error.claim!r}"
        if isinstance(error, jwt.InvalidAudienceError):
            return f"it is not for this server, whose audience is {self._audience!r}"
        if isinstance(error, jwt.InvalidIssuerError):
            return f"it is not from {self._issuer!r}"
        return "it is damaged"


def _time_ms(claims: dict[str, Any], name: str) -> float:
    seconds = claims[name]
    if type(seconds) not in (int, float) or not -_SECONDS_MAX < seconds < _SECONDS_MAX:
        raise AuthenticationFailed(f"the token's claim {name!r} is not a time")
    return float(seconds * 1_000)
