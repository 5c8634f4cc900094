"""Finds out who a client is, from its certificate and its token, and for how long that counts.

A token counts more than a certificate: the certificate is the machine's, the token the person's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from magnetar_core.clock import Clock
from magnetar_core.config import ListenConfig
from magnetar_core.errors import AuthenticationFailed
from magnetar_core.security.identity import CERTIFICATE_KEY, NOBODY, Identity
from magnetar_core.security.link_security import TOKEN_KEY, TOKEN_SCHEME
from magnetar_core.security.revocations import Revocations
from magnetar_core.security.token_keys import parse_keys
from magnetar_core.security.tokens import TokenVerifier, algorithms_of
from magnetar_core.security.watched_file import WatchedFile

_HOW_TO_SHOW = (
    "give one with --token-file, MAGNETAR_TOKEN_FILE or connect(token=...); without our clients, in"
    " the metadata as 'authorization: Bearer TOKEN'"
)


class Authenticator:
    """Authentication at a server that asks its clients who they are.

    Raises:
        InvalidConfig: a file cannot be read, or a setting is not valid.
    """

    def __init__(self, config: ListenConfig, clock: Clock) -> None:
        self._clock = clock
        self._asks_for_certificates = bool(config.tls_client_ca_file)
        self._allows_anonymous = config.allow_anonymous
        self._keys = self._verifier = None
        if config.token_keys_file:
            self._keys = WatchedFile(config.token_keys_file, parse_keys)
            self._verifier = TokenVerifier(
                self._keys.content,
                algorithms_of(config.token_algorithms),
                issuer=config.token_issuer,
                audience=config.token_audience,
            )
        self._revocations = None
        if config.revocations_file:
            self._revocations = WatchedFile(
                config.revocations_file, lambda content: Revocations.parse(content.decode())
            )

    def refresh(self) -> None:
        """Look whether the files have changed."""
        if self._keys is not None and self._verifier is not None and self._keys.refresh():
            self._verifier.keys = self._keys.content
        if self._revocations is not None:
            self._revocations.refresh()

    def identify(
        self,
        shown: Mapping[str, Iterable[bytes]],
        metadata: Iterable[tuple[str, str | bytes]],
    ) -> Identity:
        """Return who makes a call.

        Args:
            shown: what the transport says of the client: gRPC's auth context.
            metadata: of the call.
        Raises:
            AuthenticationFailed: it is not known, or its credentials are no longer valid.
        """
        identity = self._by_certificate(shown)
        if self._verifier is not None:
            tokens = [value for key, value in metadata if key == TOKEN_KEY]
            if tokens:
                identity = self._by_token(self._verifier, tokens, identity)
            elif identity is None and not self._allows_anonymous:
                raise AuthenticationFailed(f"this server asks for a token: {_HOW_TO_SHOW}")
        if identity is None:
            return NOBODY
        complaint = self.complaint_about(identity)
        if complaint is not None:
            raise AuthenticationFailed(complaint)
        return identity

    def complaint_about(self, identity: Identity) -> str | None:
        """Return why an identity is no longer valid; None if it is valid."""
        expires_at_ms = identity.expires_at_ms
        if expires_at_ms is not None and expires_at_ms <= self._clock.wall_ms():
            return "the credentials have expired: come again with new ones"
        if self._revocations is None:
            return None
        return self._revocations.content.complaint_about(identity)

    def _by_certificate(self, shown: Mapping[str, Iterable[bytes]]) -> Identity | None:
        if not self._asks_for_certificates:
            return None
        certificates = list(shown.get(CERTIFICATE_KEY, ()))
        if len(certificates) != 1:
            raise AuthenticationFailed("this server asks for a certificate, and none was shown")
        # Servers without clients' certificates need no package that reads them.
        from magnetar_core.security.client_certificates import identity_of

        return identity_of(certificates[0])

    def _by_token(
        self, verifier: TokenVerifier, tokens: Sequence[str | bytes], machine: Identity | None
    ) -> Identity:
        if len(tokens) > 1:
            raise AuthenticationFailed("several tokens were sent: send one")
        text = str(tokens[0])
        if not text.startswith(TOKEN_SCHEME):
            raise AuthenticationFailed(
                f"the authorization is not a token of this form: {_HOW_TO_SHOW}"
            )
        found = verifier.verify(
            text.removeprefix(TOKEN_SCHEME).strip(), now_ms=self._clock.wall_ms()
        )
        if machine is None:
            return found
        ends = [one for one in (found.expires_at_ms, machine.expires_at_ms) if one is not None]
        return replace(
            found,
            expires_at_ms=min(ends),
            certificate_serial=machine.certificate_serial,
            certificate_name=machine.certificate_name,
        )
