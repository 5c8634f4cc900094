"""Grants: which operations on which names a principal has. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.access.needs import (
    IMPLYING_DESCRIBE,
    Kind,
    Need,
    Operation,
    Reach,
)
from magnetar_core.access.principal import Principal
from magnetar_core.access.quotas import Quotas

# Answers that are remembered for each principal.
REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Pattern:
    """Name of a resource, or the beginning of names (Kafka's LITERAL and PREFIXED)."""

    text: str
    is_beginning: bool = False

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Parse a pattern: a star at its end means every name that begins so."""
        if text.endswith("*"):
            return cls(text[:-1], is_beginning=True)
        return cls(text)

    def __str__(self) -> str:
        return self.text + "*" if self.is_beginning else self.text

    def covers(self, need: Need) -> bool:
        """Return whether everything that is needed has such a name."""
        if need.reach is Reach.ANY:
            return True
        if self.is_beginning:
            return need.name.startswith(self.text)
        return need.reach is Reach.NAMED and need.name == self.text


@dataclass(frozen=True, slots=True)
class Grant:
    """Right to operations on resources of a kind."""

    kind: Kind
    pattern: Pattern
    operations: frozenset[Operation]

    def covers(self, need: Need) -> bool:
        """Return whether the grant gives what is needed."""
        if self.kind is not need.kind or need.operation not in self.allowed:
            return False
        return self.pattern.covers(need)

    @property
    def allowed(self) -> frozenset[Operation]:
        """The operations, with those that they imply."""
        if self.operations & IMPLYING_DESCRIBE:
            return self.operations | {Operation.DESCRIBE}
        return self.operations


class Rights:
    """Rights and limits of a principal, until the policy changes."""

    def __init__(
        self, principal: Principal, grants: tuple[Grant, ...], quotas: Quotas | None = None
    ) -> None:
        self.principal = principal
        self.grants = grants
        self.quotas = quotas or Quotas()
        self._remembered: dict[Need, bool] = {}

    def may(self, need: Need) -> bool:
        """Return whether the principal has what is needed."""
        known = self._remembered.get(need)
        if known is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            known = any(grant.covers(need) for grant in self.grants)
            self._remembered[need] = known
        return known
