"""Policy: the roles of principals, the grants of roles, and quotas; as an access file has them.

    [principals]
    "orders-service" = ["writer"]

    [[roles.writer]]
    topic = ["orders", "audit-*"]
    allow = ["WRITE"]

Whatever is not granted is refused. Pure.
Source: docs/design/0011-security.md, Rights.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from magnetar_core.access.grants import Grant, Pattern, Rights
from magnetar_core.access.needs import (
    ADMINISTRATION,
    FOREIGN_GROUPS,
    FOREIGN_TRANSACTIONS,
    INCARNATIONS,
    OPERATIONS_OF,
    TOPIC_DIRECTORY,
    TRANSACTION_ENDS,
    Kind,
    Operation,
)
from magnetar_core.access.principal import Principal
from magnetar_core.access.quotas import Quotas

# Principals whose rights are remembered.
PRINCIPALS_MAX = 10_000

_EVERYTHING = Pattern("", is_beginning=True)


class InvalidPolicy(ValueError):
    """The access file cannot be used. The message says what is wrong, and where."""


def _all_of(kind: Kind) -> Grant:
    return Grant(kind, _EVERYTHING, OPERATIONS_OF[kind])


def _servers(*parts: str) -> tuple[Grant, ...]:
    actions = frozenset({Operation.CLUSTER_ACTION})
    return tuple(Grant(Kind.CLUSTER, Pattern(part), actions) for part in parts)


_PASSED_ON = Grant(
    Kind.TOPIC,
    _EVERYTHING,
    frozenset({Operation.CREATE, Operation.ALTER, Operation.DELETE}),
)

# Only servers get CLUSTER_ACTION, and administrators do not: what it allows is part of a protocol
# among servers, and one such command from another client stops or tears transactions.
BUILT_IN_ROLES: Mapping[str, tuple[Grant, ...]] = {
    "admin": (
        *(_all_of(kind) for kind in (Kind.TOPIC, Kind.GROUP, Kind.TRANSACTIONAL_ID)),
        Grant(Kind.CLUSTER, Pattern(ADMINISTRATION), OPERATIONS_OF[Kind.CLUSTER]),
    ),
    "coordinator": _servers(TRANSACTION_ENDS, INCARNATIONS),
    # A broker passes commands about topics and incarnations on to the first broker, once it has
    # checked its client's rights; and works in transactions for clients of Kafka, likewise.
    "broker": (
        *_servers(INCARNATIONS, TOPIC_DIRECTORY, FOREIGN_TRANSACTIONS, FOREIGN_GROUPS),
        _PASSED_ON,
    ),
}
SERVER_ROLES = ("coordinator", "broker")


@dataclass(frozen=True, slots=True)
class Policy:
    """Rights and quotas of all principals.

    Attributes:
        roles: the grants of each role, built-in ones included.
        principals: the roles of each pattern of principals' names.
        quotas: of patterns of principals' names.
        everyone: grants that every principal has.
    """

    roles: Mapping[str, tuple[Grant, ...]]
    principals: Mapping[Pattern, tuple[str, ...]]
    quotas: Mapping[Pattern, Quotas] = field(default_factory=dict)
    everyone: tuple[Grant, ...] = ()
    _rights: dict[Principal, Rights] = field(default_factory=dict, compare=False, repr=False)

    def rights_of(self, principal: Principal) -> Rights:
        """Return the rights of a principal."""
        rights = self._rights.get(principal)
        if rights is None:
            if len(self._rights) >= PRINCIPALS_MAX:
                self._rights.clear()
            grants = [grant for role in self.roles_of(principal) for grant in self.roles[role]]
            rights = Rights(principal, (*self.everyone, *grants), self.quotas_of(principal))
            self._rights[principal] = rights
        return rights

    def roles_of(self, principal: Principal) -> list[str]:
        """Return the roles of a principal, each once."""
        found = (
            role
            for pattern, roles in self.principals.items()
            if _matches(pattern, principal)
            for role in roles
        )
        return list(dict.fromkeys(found))

    def quotas_of(self, principal: Principal) -> Quotas:
        """Return the limits of a principal: of its name, or else of the longest beginning.

        Servers have none: what they do is on behalf of many.
        """
        if set(self.roles_of(principal)) & set(SERVER_ROLES):
            return Quotas()
        best: Pattern | None = None
        for pattern in self.quotas:
            if not pattern.is_beginning and pattern.text == principal.name:
                return self.quotas[pattern]
            if _matches(pattern, principal) and (
                best is None or len(pattern.text) > len(best.text)
            ):
                best = pattern
        return Quotas() if best is None else self.quotas[best]

    def with_servers(self, names: Iterable[str]) -> Policy:
        """Return the policy with further principals that are servers of the cluster."""
        principals = dict(self.principals)
        for name in names:
            pattern = Pattern.parse(name)
            principals[pattern] = (*principals.get(pattern, ()), *SERVER_ROLES)
        return Policy(self.roles, principals, self.quotas, self.everyone)


def _matches(pattern: Pattern, principal: Principal) -> bool:
    if pattern.is_beginning:
        return principal.name.startswith(pattern.text)
    return principal.name == pattern.text


def open_policy(servers: Iterable[str]) -> Policy:
    """Return the policy without an access file: all clients may do everything but servers' work."""
    policy = Policy(BUILT_IN_ROLES, {}, everyone=BUILT_IN_ROLES["admin"])
    return policy.with_servers(servers)


def permissive_policy() -> Policy:
    """Return the policy in which all clients may do everything."""
    everything = [grant for grants in BUILT_IN_ROLES.values() for grant in grants]
    return Policy(BUILT_IN_ROLES, {}, everyone=tuple(everything))


def parse_policy(text: str) -> Policy:
    """Parse an access file.

    Raises:
        InvalidPolicy: it is not TOML, or names what does not exist.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidPolicy(f"it is not TOML: {error}") from error
    _check_keys("the file", found, ("principals", "roles", "quotas"))
    roles = dict(BUILT_IN_ROLES)
    for role, grants in _table("[roles]", found.get("roles", {})).items():
        if role in BUILT_IN_ROLES:
            raise InvalidPolicy(f"[[roles.{role}]]: {role!r} is built in; take another name")
        if not isinstance(grants, list):
            raise InvalidPolicy(f"roles.{role} must be a list of grants: write [[roles.{role}]]")
        roles[role] = tuple(grant for one in grants for grant in _grants(role, one))
    principals: dict[Pattern, tuple[str, ...]] = {}
    for name, names in _table("[principals]", found.get("principals", {})).items():
        given = _texts(f"principal {name!r}", names)
        for role in given:
            if role not in roles:
                raise InvalidPolicy(
                    f"principal {name!r} has role {role!r}, which does not exist;"
                    f" there are {', '.join(sorted(roles))}"
                )
        if name in ("", "*") and set(given) & set(SERVER_ROLES):
            raise InvalidPolicy("not every principal is a server: name those that are")
        principals[Pattern.parse(name)] = given
    quotas = {
        Pattern.parse(name): _quotas(name, limits)
        for name, limits in _table("[quotas]", found.get("quotas", {})).items()
    }
    return Policy(roles, principals, quotas)


def _grants(role: str, found: object) -> list[Grant]:
    """Parse a grant of a role: a kind of resource, its names, and operations."""
    where = f"[[roles.{role}]]"
    table = _table(where, found)
    _check_keys(where, table, (*Kind, "allow"))
    kinds = [kind for kind in Kind if kind in table]
    if len(kinds) != 1:
        raise InvalidPolicy(f"{where} names one of {', '.join(Kind)}, with the names it is for")
    (kind,) = kinds
    allowed = frozenset(
        _operation(where, kind, one) for one in _texts(f"allow of {where}", table.get("allow"))
    )
    if not allowed:
        raise InvalidPolicy(f"{where} allows nothing: name operations in allow")
    if kind is Kind.CLUSTER:
        if table[kind] is not True:
            raise InvalidPolicy(f"{where}: there is one cluster; write cluster = true")
        return [Grant(kind, Pattern(ADMINISTRATION), allowed)]
    return [Grant(kind, Pattern.parse(one), allowed) for one in _texts(where, table[kind])]


def _operation(where: str, kind: Kind, name: str) -> Operation:
    possible = OPERATIONS_OF[kind]
    if name == Operation.CLUSTER_ACTION:
        raise InvalidPolicy(
            f"{where}: {name} is for servers; give them the built-in roles"
            f" {' and '.join(SERVER_ROLES)}"
        )
    if name not in possible:
        raise InvalidPolicy(
            f"{where} allows {name!r}; on a {kind} there are {', '.join(sorted(possible))}"
        )
    return Operation(name)


def _quotas(name: str, found: object) -> Quotas:
    where = f"[quotas.{name!r}]"
    table = _table(where, found)
    _check_keys(where, table, [one.name for one in fields(Quotas)])
    for limit, value in table.items():
        if type(value) is not int or value < 0:
            raise InvalidPolicy(f"{where} has {limit} = {value!r}; write a number, 0 for no limit")
    return Quotas(**table)


def _table(where: str, found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InvalidPolicy(f"{where} must be a table")
    return found


def _texts(where: str, found: object) -> tuple[str, ...]:
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise InvalidPolicy(f"{where} must be a list of names")
    return tuple(found)


def _check_keys(where: str, table: Mapping[str, object], known: Iterable[str]) -> None:
    for key in table:
        if key not in known:
            raise InvalidPolicy(f"{where} has {key!r}; there are {', '.join(known)}")
