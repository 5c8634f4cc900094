"""Needs of commands: each is an operation on a resource. Pure.

The names are Kafka's (AclOperation, ResourceType), with KIP-939's TWO_PHASE_COMMIT, and BACKUP.
Source: docs/design/0011-security.md, Rights.
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import NamedTuple


class Operation(StrEnum):
    """Operation on a resource."""

    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    TWO_PHASE_COMMIT = "TWO_PHASE_COMMIT"
    # Read everything that is stored, whatever other rights say.
    BACKUP = "BACKUP"
    CLUSTER_ACTION = "CLUSTER_ACTION"

    # Every command looks up needs in a dict, and an enum's own hash is slow.
    __hash__ = str.__hash__


class Kind(StrEnum):
    """Kinds of resources."""

    TOPIC = "topic"
    # Groups and subscriptions: a group's cursors are the subscriptions of its name.
    GROUP = "group"
    # Transactional ids, and the names of named sequences.
    TRANSACTIONAL_ID = "transactional_id"
    CLUSTER = "cluster"

    __hash__ = str.__hash__


class Reach(StrEnum):
    """Set of the resources that the name in a need stands for."""

    NAMED = auto()
    # Every resource whose name begins so.
    BEGINNING = auto()
    # Some resource of the kind, whatever its name.
    ANY = auto()

    __hash__ = str.__hash__


class Need(NamedTuple):
    """An operation on a resource."""

    operation: Operation
    kind: Kind
    name: str
    reach: Reach = Reach.NAMED

    def __str__(self) -> str:
        if self.reach is Reach.ANY:
            return f"{self.operation} on any {self.kind}"
        if self.kind is Kind.CLUSTER:
            return f"{self.operation} on the cluster ({self.name})"
        star = "*" if self.reach is Reach.BEGINNING else ""
        return f"{self.operation} on {self.kind} {self.name + star!r}"


# The parts of the cluster that are resources of their own. All but the first are for servers only.
ADMINISTRATION = "administration"
TRANSACTION_ENDS = "ends of transactions"
INCARNATIONS = "incarnations"
TOPIC_DIRECTORY = "the directory"
FOREIGN_TRANSACTIONS = "transactions of clients of other protocols"
FOREIGN_GROUPS = "groups of clients of other protocols"
SERVERS_ONLY = (
    TRANSACTION_ENDS,
    INCARNATIONS,
    TOPIC_DIRECTORY,
    FOREIGN_TRANSACTIONS,
    FOREIGN_GROUPS,
)

# Kafka asks the same of producers without a transactional id (KIP-679).
ANYWHERE_WRITE = Need(Operation.WRITE, Kind.TOPIC, "", Reach.ANY)
ANYWHERE_READ = Need(Operation.READ, Kind.GROUP, "", Reach.ANY)
ANYWHERE_DESCRIBE = Need(Operation.DESCRIBE, Kind.TOPIC, "", Reach.ANY)

# A broker has it: it checks the rights of Kafka's clients itself before it asks a coordinator.
FOR_FOREIGN_CLIENTS = Need(Operation.CLUSTER_ACTION, Kind.CLUSTER, FOREIGN_TRANSACTIONS)

# The operations that a grant for a kind of resource can name.
OPERATIONS_OF: dict[Kind, frozenset[Operation]] = {
    Kind.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.ALTER,
            Operation.DELETE,
            Operation.DESCRIBE,
        }
    ),
    Kind.GROUP: frozenset({Operation.READ, Operation.DELETE, Operation.DESCRIBE}),
    Kind.TRANSACTIONAL_ID: frozenset(
        {Operation.WRITE, Operation.DELETE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT}
    ),
    Kind.CLUSTER: frozenset({Operation.ALTER, Operation.BACKUP, Operation.DESCRIBE}),
}

# A principal that may do one of these may describe, too, as in Kafka.
IMPLYING_DESCRIBE = frozenset(
    {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.BACKUP}
)
