"""Admission: which clients may converse with a server, and for how long.

A conversation ends within a second after its token or certificate has expired or was revoked. A
unary call is asked when it begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import grpc.aio

from magnetar_core.clock import Clock
from magnetar_core.config import ListenConfig
from magnetar_core.errors import AuthenticationFailed, MagnetarError
from magnetar_core.security.conversation_watch import ConversationWatch
from magnetar_core.security.identity import CERTIFICATE_KEY, NOBODY, Identity
from magnetar_core.security.link_security import TOKEN_KEY, TOKEN_SCHEME


class Conversation(Protocol):
    """A conversation, as admission sees it."""

    def refuse(self, error: MagnetarError) -> None:
        """End at once, and say why."""
        ...


class Admission:
    """Authentication of a server's conversations and calls.

    Raises:
        InvalidConfig: a file cannot be read, or a setting is not valid.
    """

    def __init__(self, config: ListenConfig, clock: Clock) -> None:
        self._authenticator = None
        if config.asks_who_clients_are:
            # It needs packages that clients do not have.
            from magnetar_core.security.authentication import Authenticator

            self._authenticator = Authenticator(config, clock)
        # A dict, since a set's order would differ from run to run.
        self._inside: dict[Conversation, Identity] = {}
        self._watch = ConversationWatch(self._refreshed_inside, self._check)

    def identify(self, context: grpc.aio.ServicerContext[Any, Any]) -> Identity:
        """Return who makes a call.

        Raises:
            AuthenticationFailed: it is not known, or its credentials are no longer valid.
        """
        if self._authenticator is None:
            return NOBODY
        shown: Any = context.auth_context()
        metadata: Any = context.invocation_metadata() or ()
        return self._authenticator.identify(shown, metadata)

    def identify_shown(self, certificate: bytes, token: str) -> Identity:
        """Return who a client is that does not come by gRPC.

        Args:
            certificate: in PEM, whose signature was checked; empty: it has shown none.
            token: empty: it has shown none.
        Raises:
            AuthenticationFailed: as identify().
        """
        if self._authenticator is None:
            return NOBODY
        shown = {CERTIFICATE_KEY: [certificate]} if certificate else {}
        metadata = [(TOKEN_KEY, TOKEN_SCHEME + token)] if token else []
        return self._authenticator.identify(shown, metadata)

    def come(self, conversation: Conversation, identity: Identity) -> None:
        """Note who is inside: what they have shown is looked at again and again."""
        if self._authenticator is not None:
            self._inside[conversation] = identity

    def leave(self, conversation: Conversation) -> None:
        """Note who has gone. Repeating it is harmless."""
        self._inside.pop(conversation, None)

    def start(self) -> None:
        """Begin to look at files and at who is inside."""
        if self._authenticator is not None:
            self._watch.start()

    def close(self) -> None:
        """Stop looking."""
        self._watch.close()

    def look(self) -> None:
        """Read changed files, and end conversations whose credentials are no longer valid."""
        self._watch.look()

    def _refreshed_inside(self) -> Iterable[tuple[Conversation, Identity]]:
        if self._authenticator is not None:
            self._authenticator.refresh()
        return self._inside.items()

    def _check(self, inside: tuple[Conversation, Identity]) -> None:
        conversation, identity = inside
        if self._authenticator is None:
            return
        complaint = self._authenticator.complaint_about(identity)
        if complaint is not None:
            conversation.refuse(AuthenticationFailed(complaint))
