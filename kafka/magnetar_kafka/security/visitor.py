"""Visitor: the client of a connection, from its first byte until it is known who it is, and after.

A client is known by its certificate, by a token that it shows with SASL, or need not be known. A
token counts more than a certificate. A client may show another token later, of the same principal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from magnetar_core.clock import Clock
from magnetar_core.errors import AuthenticationFailed, MagnetarError
from magnetar_core.security.admission import Admission
from magnetar_core.security.identity import Identity
from magnetar_core.server.commands import Gate
from magnetar_kafka.security.caller import Caller


class Visited(Protocol):
    """The connection of a visitor."""

    def refuse(self, error: MagnetarError) -> None:
        """End at once: what the client has shown does not count from now on."""
        ...


class Doorkeeper:
    """Decides which clients may enter.

    Args:
        admission: authentication, by the settings of the server.
        takes_tokens: whether clients may show tokens.
        gate: access control; None: all clients may do everything.
    """

    def __init__(
        self, admission: Admission, clock: Clock, *, takes_tokens: bool, gate: Gate | None
    ) -> None:
        self.admission = admission
        self.takes_tokens = takes_tokens
        self.gate = gate
        self._clock = clock

    def lasts_ms(self, identity: Identity) -> int:
        """Return for how long an identity is valid; 0: for ever."""
        if identity.expires_at_ms is None:
            return 0
        return max(1, int(identity.expires_at_ms - self._clock.wall_ms()))


class Visitor:
    """Client of a connection.

    Attributes:
        caller: who it is; None: that is not known yet.
        mechanism: of SASL, that it has chosen; empty: none.

    Args:
        certificate: in PEM, whose signature was checked; empty: it has shown none.
        origin: its machine.
    """

    def __init__(
        self, keeper: Doorkeeper, visited: Visited, certificate: bytes, origin: str
    ) -> None:
        self._keeper = keeper
        self._visited = visited
        self._certificate = certificate
        self._origin = origin
        self._leave: Callable[[], None] = _nothing
        self._has_shown_token = False
        self.caller: Caller | None = None
        self.mechanism = ""

    @property
    def takes_tokens(self) -> bool:
        """Whether the server takes tokens."""
        return self._keeper.takes_tokens

    def enter(self) -> None:
        """Let a client in that needs to show no more than the network has told.

        Raises:
            QuotaExceeded: the principal has too many connections.
        """
        try:
            identity = self._keeper.admission.identify_shown(self._certificate, "")
        except AuthenticationFailed:
            # It may show a token.
            if not self.takes_tokens:
                raise
            return
        self._let_in(identity)

    def show(self, token: str) -> int:
        """Take a token; return for how many ms it counts, 0 for ever.

        Raises:
            AuthenticationFailed: it does not count, or is another principal's than before.
            QuotaExceeded: the principal has too many connections.
        """
        identity = self._keeper.admission.identify_shown(self._certificate, token)
        if self.caller is not None and self.caller.principal != identity.principal:
            if self._has_shown_token:
                raise AuthenticationFailed(
                    f"this connection is {self.caller.principal}'s: open another one"
                )
            self.leave()
        self._let_in(identity)
        self._has_shown_token = True
        return self._keeper.lasts_ms(identity)

    def _let_in(self, identity: Identity) -> None:
        if self.caller is None:
            gate = self._keeper.gate
            if gate is not None:
                self._leave = gate.come(identity.principal)
            self.caller = Caller(identity.principal, self._origin, gate)
        self._keeper.admission.come(self._visited, identity)

    def leave(self) -> None:
        """Forget the client. Repeating it is harmless."""
        leave, self._leave = self._leave, _nothing
        leave()
        self.caller = None
        self._keeper.admission.leave(self._visited)


def _nothing() -> None:
    return
