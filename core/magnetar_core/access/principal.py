"""Principals: the names under which the server knows the senders of commands.

The transport finds the principal once for each conversation and each unary call; all other code
sees a principal, and never a certificate or a token.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or a program that a server knows by name.

    Attributes:
        name: as its certificate or its token says, such as "alice".
    """

    name: str

    def __str__(self) -> str:
        return self.name


# Principal of clients that have shown neither a certificate nor a token.
ANONYMOUS = Principal("anonymous")
