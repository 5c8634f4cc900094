"""Revoked tokens, certificates and principals, as a file lists them. Pure.

A line is `token ID`, `certificate SERIAL` in hexadecimal as openssl prints it, or `principal NAME`.
A line that begins with # is a comment.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.security.identity import Identity


@dataclass(frozen=True, slots=True)
class Revocations:
    """Revoked tokens, certificates and principals."""

    token_ids: frozenset[str] = frozenset()
    certificate_serials: frozenset[int] = frozenset()
    principals: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Revocations:
        """Read a file's text.

        Raises:
            ValueError: a line is none of the three. The whole file is refused: a line that was
                ignored would revoke nothing.
        """
        token_ids, serials, principals = set(), set(), set()
        for number, line in enumerate(text.splitlines(), 1):
            kind, _, rest = line.strip().partition(" ")
            value = rest.strip()
            if not kind or kind.startswith("#"):
                continue
            if kind == "token" and value:
                token_ids.add(value)
            elif kind == "certificate" and value:
                serials.add(_serial(value, number))
            elif kind == "principal" and value:
                principals.add(value)
            else:
                raise ValueError(
                    f"line {number} is not `token ID`, `certificate SERIAL` or `principal NAME`"
                )
        return cls(frozenset(token_ids), frozenset(serials), frozenset(principals))

    def complaint_about(self, identity: Identity) -> str | None:
        """Return the revoked part of an identity; None: no part is."""
        if identity.token_id and identity.token_id in self.token_ids:
            return "the token is revoked"
        if identity.certificate_serial in self.certificate_serials:
            return "the certificate is revoked"
        for name in (identity.principal.name, identity.certificate_name):
            if name in self.principals:
                return f"{name!r} is revoked"
        return None


def _serial(text: str, line: int) -> int:
    try:
        return int(text.replace(":", ""), 16)
    except ValueError:
        raise ValueError(f"line {line}: {text!r} is not a serial number in hexadecimal") from None
