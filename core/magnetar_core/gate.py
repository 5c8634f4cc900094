"""Gate before the handlers of a server: it refuses what a principal may not do.

Both forms of a command pass it once, whichever component is behind. What it looks at changes while
conversations go on: the next command meets the new rights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from magnetar_core.access.grants import Rights
from magnetar_core.access.needs import Need, Operation
from magnetar_core.access.policy import Policy
from magnetar_core.access.rules import RULES, Needs
from magnetar_core.access.visible import VISIBLE
from magnetar_core.access_file import Access, AccessConfig
from magnetar_core.commands import CommandSession, Reply
from magnetar_core.errors import (
    AuthorizationFailed,
    MagnetarError,
    TransactionalIdAuthorizationFailed,
)
from magnetar_core.wire import common_pb2

# The commands that begin what others finish.
_BEGINNING = frozenset({"subscribe", "join_group"})
# Of a conversation: what it may finish.
_BEGUN_MAX = 10_000


def gate_of(config: AccessConfig, now_ms: Callable[[], float]) -> AccessGate | None:
    """Return the gate that settings ask for; None: everybody may do everything.

    Raises:
        InvalidConfig: the access file cannot be read, or used.
    """
    if not config.is_on:
        return None
    return AccessGate(Access(config, now_ms).policy)


class AccessGate:
    """Gate that applies a policy.

    Args:
        policy: returns the policy as it is now.
    """

    def __init__(self, policy: Callable[[], Policy]) -> None:
        self._policy = policy
        self._begun: WeakKeyDictionary[CommandSession, set[Need]] = WeakKeyDictionary()

    def admit(self, name: str, command: Any, reply: Reply) -> Reply:
        """Return the reply that a command's handler gets.

        Raises:
            AuthorizationFailed: the principal lacks a right. No effect.
        """
        rule = RULES.get(name)
        rights = self._policy().rights_of(reply.principal)
        if rule is None:
            raise AuthorizationFailed(f"{reply.principal} may not use {name}: it has no rule")
        needs = rule.needs(command)
        for alternatives in needs:
            if any(map(rights.may, alternatives)):
                continue
            if rule.finishing and self._has_begun(reply.session, alternatives[0]):
                continue
            raise _refusal(reply, alternatives)
        if name in _BEGINNING and reply.session is not None:
            self._note_begun(reply.session, needs)
        reply.rights = rights
        show = VISIBLE.get(name)
        return reply if show is None else _shown(reply, rights, show)

    def _note_begun(self, session: CommandSession, needs: Needs) -> None:
        begun = self._begun.setdefault(session, set())
        if len(begun) < _BEGUN_MAX:
            begun.update(alternatives[0] for alternatives in needs)

    def _has_begun(self, session: CommandSession | None, need: Need) -> bool:
        return session is not None and need in self._begun.get(session, ())


def _refusal(reply: Reply, alternatives: tuple[Need, ...]) -> MagnetarError:
    lacking = " or ".join(map(str, alternatives))
    text = f"{reply.principal} lacks {lacking}"
    if alternatives[0].operation is Operation.TWO_PHASE_COMMIT:
        return TransactionalIdAuthorizationFailed(text)
    return AuthorizationFailed(text, principal=reply.principal.name)


def _shown(reply: Reply, rights: Rights, show: Callable[[Rights, Any], Any]) -> Reply:
    """Return a reply whose answer is shown as the principal may see it."""

    def respond(answer: Any) -> None:
        if isinstance(answer, common_pb2.ServerError):
            reply.repeat(answer)
            return
        try:
            shown = show(rights, answer)
        except MagnetarError as error:
            reply.fail(error)
        else:
            reply.repeat(shown)

    return reply.through(respond)
