"""Caller: who sends a request, and what it may do now.

Every handler asks its request's caller before it tells or changes anything. Rights are those of the
access file at this moment. A command of ours that a handler asks passes the gate again.
Source: docs/design/0030-kafka-clusters.md, Rights.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_core.access.grants import Rights
from magnetar_core.access.needs import (
    ADMINISTRATION,
    OPERATIONS_OF,
    Kind,
    Need,
    Operation,
)
from magnetar_core.access.principal import ANONYMOUS, Principal
from magnetar_core.server.commands import Gate
from magnetar_kafka.error_codes import ErrorCode, Refused

_CODES = {
    Kind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Kind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Kind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Kind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
# Bits of operations as answers tell them (AclOperation). Ours have fewer: to alter or to describe
# is to alter or to describe settings, too.
_BITS = {
    Operation.READ: 1 << 3,
    Operation.WRITE: 1 << 4,
    Operation.CREATE: 1 << 5,
    Operation.DELETE: 1 << 6,
    Operation.ALTER: 1 << 7 | 1 << 11,
    Operation.DESCRIBE: 1 << 8 | 1 << 10,
}


class Caller:
    """Sender of requests.

    Args:
        origin: the client's machine.
        gate: access control; None: all clients may do everything.
        is_known: whether it is known who it is; otherwise it may do nothing.

    Attributes:
        gate: for the commands that a request is carried out with; it counts none of them.
    """

    def __init__(
        self,
        principal: Principal = ANONYMOUS,
        origin: str = "",
        gate: Gate | None = None,
        *,
        is_known: bool = True,
    ) -> None:
        self._is_known = is_known
        self.principal = principal
        self.origin = origin
        self._rights_of = None if gate is None else gate.rights_of
        self.gate = None if gate is None else gate.uncounted

    @property
    def rights(self) -> Rights | None:
        """The present rights of the caller, and its quotas; None: there is no access control."""
        return None if self._rights_of is None else self._rights_of(self.principal)

    def may(self, operation: Operation, kind: Kind, name: str) -> bool:
        """Return whether the caller may do something with a resource."""
        if self._rights_of is None:
            return self._is_known
        return self.has(Need(operation, kind, name))

    def has(self, need: Need) -> bool:
        """Return whether the caller has a right."""
        if self._rights_of is None:
            return self._is_known
        return self._rights_of(self.principal).may(need)

    def check(self, operation: Operation, kind: Kind, name: str) -> None:
        """Check a right on a resource.

        Raises:
            Refused: the caller lacks it; the code is that of the kind of resource.
        """
        if not self.may(operation, kind, name):
            raise Refused(_CODES[kind], f"{self.principal} lacks {Need(operation, kind, name)}")

    def check_cluster(self, operation: Operation) -> None:
        """Check a right on the cluster.

        Raises:
            Refused: the caller lacks it.
        """
        self.check(operation, Kind.CLUSTER, ADMINISTRATION)

    def check_any(self, alternatives: Iterable[Need], code: ErrorCode) -> None:
        """Check that the caller has one of several rights.

        Args:
            code: of the refusal.
        Raises:
            Refused: it lacks all of them.
        """
        needs = tuple(alternatives)
        if not any(map(self.has, needs)):
            raise Refused(code, f"{self.principal} lacks {' or '.join(map(str, needs))}")

    def note(self, action: str, resource: str, outcome: str) -> None:
        """Write a line of the audit log about an action that our commands do not have."""
        if self.gate is not None:
            self.gate.note(self.principal, self.origin, action, (resource,), outcome)

    def operations_on(self, kind: Kind, name: str) -> int:
        """Return the operations that the caller may do with a resource, as bits."""
        bits = 0
        for operation in OPERATIONS_OF[kind] & _BITS.keys():
            if self.may(operation, kind, name):
                bits |= _BITS[operation]
        return bits
