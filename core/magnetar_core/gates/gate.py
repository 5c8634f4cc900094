"""Gate before the handlers of a server: it refuses commands that a principal may not send.

Both forms of a command pass it once, whichever component handles it. Rights may change while
conversations go on: the next command is checked against the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from magnetar_core.access.grants import Rights
from magnetar_core.access.needs import ADMINISTRATION, Kind, Need, Operation
from magnetar_core.access.policy import Policy
from magnetar_core.access.principal import Principal
from magnetar_core.access.quotas import Counts, Rates
from magnetar_core.access.rules import RULES, Needs, Rule
from magnetar_core.access.visible import VISIBLE
from magnetar_core.clock import Clock
from magnetar_core.errors import (
    AuthorizationFailed,
    MagnetarError,
    QuotaExceeded,
    TransactionalIdAuthorizationFailed,
)
from magnetar_core.gates.access_file import Access, AccessConfig
from magnetar_core.gates.audit import AuditLog, audit_writer
from magnetar_core.server.commands import CommandSession, Complaint, Reply
from magnetar_core.traces.descriptions import txn_id_of
from magnetar_core.wire import common_pb2

# The commands that begin what others finish.
_BEGINNING = frozenset({"subscribe", "join_group"})
_ALTER = Need(Operation.ALTER, Kind.CLUSTER, ADMINISTRATION)
# Of a conversation: what it may finish.
_BEGUN_MAX = 10_000


def gate_of(config: AccessConfig, clock: Clock) -> AccessGate | None:
    """Return the gate that settings ask for; None: all clients may do everything, without audit.

    Raises:
        InvalidConfig: the access file cannot be read, or used; or the audit file not written.
    """
    if not config.is_on and not config.audit_file:
        return None
    access = Access(config, clock.monotonic_ms)
    audit = AuditLog(audit_writer(config.audit_file), clock.wall_ms)
    return AccessGate(access.policy, audit, clock.monotonic_ms)


class AccessGate:
    """Gate that applies a policy.

    Args:
        policy: returns the policy as it is now.
        now_ms: of a monotonic clock.
        counts: whether commands count against requests_per_second.
    """

    def __init__(
        self,
        policy: Callable[[], Policy],
        audit: AuditLog,
        now_ms: Callable[[], float],
        *,
        counts: bool = True,
    ) -> None:
        self._policy = policy
        self._audit = audit
        self._now_ms = now_ms
        self._counts = counts
        self._rates = Rates()
        self._conversations = Counts()
        self._begun: WeakKeyDictionary[CommandSession, set[Need]] = WeakKeyDictionary()

    def admit(self, name: str, command: Any, reply: Reply) -> Reply | None:
        """Return the reply that a command's handler gets; None: the command is refused."""
        rule = RULES.get(name)
        policy = self._policy()
        rights = policy.rights_of(reply.principal)
        if rule is None:
            reply.fail(AuthorizationFailed(f"no principal may use {name}: it has no rule"))
            return None
        needs = rule.needs(command)
        if rule.administrative or (name == "end_txn" and rights.may(_ALTER)):
            reply = self._audit.audited(reply, name, _resources(command, needs))
        try:
            self._check_rate(rule, rights)
            self._check_needs(rule, rights, needs, reply)
        except MagnetarError as error:
            # At once: it depends on no record.
            reply.fail(error)
            return None
        complaint: Complaint | None = None
        if name in _BEGINNING and reply.session is not None:
            self._note_begun(reply.session, needs)
            complaint = self._complaint(reply.principal, needs, policy)
        reply = reply.admitted(rights, complaint)
        show = VISIBLE.get(name)
        return reply if show is None else _shown(reply, rights, show)

    def come(self, principal: Principal) -> Callable[[], None]:
        """Count a new conversation. The returned function removes it from the count.

        Raises:
            QuotaExceeded: the principal has too many.
        """
        limit = self._policy().quotas_of(principal).connections_max
        count = self._conversations.of(principal)
        if limit and count >= limit:
            raise QuotaExceeded(
                f"{principal} has {count} conversations here: end some, or raise connections_max"
                " in the access file",
                connections_max=limit,
            )
        return self._conversations.begin(principal)

    def rights_of(self, principal: Principal) -> Rights:
        """Return the rights that a principal has now."""
        return self._policy().rights_of(principal)

    def delay_ms(self, principal: Principal) -> float:
        """Count a request of another protocol; return how long its sender has to wait after it."""
        limit = self._policy().quotas_of(principal).requests_per_second
        return self._rates.spend(principal, limit, self._now_ms()) if limit else 0.0

    def note(
        self,
        principal: Principal,
        origin: str,
        action: str,
        resources: Iterable[str],
        outcome: str,
    ) -> None:
        """Write a line of the audit log about an action of another protocol."""
        self._audit.note(principal, origin, action, resources, outcome)

    @property
    def uncounted(self) -> AccessGate:
        """This gate for commands that are a part of a request which was counted."""
        return AccessGate(self._policy, self._audit, self._now_ms, counts=False)

    def _check_rate(self, rule: Rule, rights: Rights) -> None:
        """Count a command.

        Raises:
            QuotaExceeded: there are too many.
        """
        limit = rights.quotas.requests_per_second
        if not limit or rule.finishing or not self._counts:
            return
        if not self._rates.take(rights.principal, limit, self._now_ms()):
            raise QuotaExceeded(
                f"{rights.principal} sends more than {limit} commands a second: send fewer, or"
                " raise requests_per_second in the access file",
                requests_per_second=limit,
            )

    def _check_needs(self, rule: Rule, rights: Rights, needs: Needs, reply: Reply) -> None:
        """Check that a principal has what a command needs.

        Raises:
            AuthorizationFailed: it lacks a right.
        """
        for alternatives in needs:
            if any(map(rights.may, alternatives)):
                continue
            if rule.finishing and self._has_begun(reply.session, alternatives[0]):
                continue
            raise _refusal(reply.principal, alternatives)

    def _complaint(self, principal: Principal, needs: Needs, judged: Policy) -> Complaint:
        """Return a function that checks whether a principal still has the rights that it needed.

        Args:
            judged: the policy under which it had that.
        """

        def complaint() -> MagnetarError | None:
            nonlocal judged
            policy = self._policy()
            # It is asked twice a second, and policies change seldom.
            if policy is judged:
                return None
            rights, judged = policy.rights_of(principal), policy
            for alternatives in needs:
                if not any(map(rights.may, alternatives)):
                    return _refusal(principal, alternatives)
            return None

        return complaint

    def _note_begun(self, session: CommandSession, needs: Needs) -> None:
        begun = self._begun.setdefault(session, set())
        if len(begun) < _BEGUN_MAX:
            begun.update(alternatives[0] for alternatives in needs)

    def _has_begun(self, session: CommandSession | None, need: Need) -> bool:
        return session is not None and need in self._begun.get(session, ())


def _resources(command: Any, needs: Needs) -> list[str]:
    """Return the names of a command's objects for the audit log."""
    names = [f"{one.kind}:{one.name}" for (one, *_) in needs]
    txn_id = txn_id_of(command)
    if txn_id is not None:
        names.append(f"transaction:{txn_id}")
    return names


def _refusal(principal: Principal, alternatives: tuple[Need, ...]) -> MagnetarError:
    lacking = " or ".join(map(str, alternatives))
    text = f"{principal} lacks {lacking}"
    if alternatives[0].operation is Operation.TWO_PHASE_COMMIT:
        return TransactionalIdAuthorizationFailed(text)
    return AuthorizationFailed(text, principal=principal.name)


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
