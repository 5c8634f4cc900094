"""Answers as a principal may see them: lists without rows that it may not describe. Pure.

A list leaves out the rows that the principal may not describe, without a hint, as Kafka's metadata
and ListTransactions do (KIP-664). A page that was filled before may so have fewer rows than its
limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from magnetar_core.access.grants import Rights
from magnetar_core.access.needs import (
    ADMINISTRATION,
    FOR_FOREIGN_CLIENTS,
    Kind,
    Need,
    Operation,
)
from magnetar_core.errors import AuthorizationFailed

_DESCRIBE_CLUSTER = Need(Operation.DESCRIBE, Kind.CLUSTER, ADMINISTRATION)


def _topics(rights: Rights, answer: Any) -> Any:
    return _without(
        answer,
        "topics",
        (rights.may(Need(Operation.DESCRIBE, Kind.TOPIC, one.topic)) for one in answer.topics),
    )


def _groups(rights: Rights, answer: Any) -> Any:
    return _without(
        answer,
        "groups",
        (rights.may(Need(Operation.DESCRIBE, Kind.GROUP, group.group)) for group in answer.groups),
    )


def _transactional_ids(rights: Rights, answer: Any) -> Any:
    if rights.may(FOR_FOREIGN_CLIENTS):
        return answer
    seen = (
        rights.may(Need(Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, description.transactional_id))
        for description in answer.descriptions
    )
    return _without(answer, "descriptions", seen)


def _transactions(rights: Rights, answer: Any) -> Any:
    return _without(
        answer, "transactions", (_sees_transaction(rights, one) for one in answer.transactions)
    )


def _transaction_changes(rights: Rights, answer: Any) -> Any:
    shown = _transactions(rights, answer)
    return _without(shown, "ended", (_sees_transaction(rights, one) for one in shown.ended))


def _transaction(rights: Rights, answer: Any) -> Any:
    if not _sees_transaction(rights, answer.transaction):
        raise AuthorizationFailed(
            f"{rights.principal} may not describe this transaction: it is another principal's;"
            " an administrator may"
        )
    return answer


def _sees_transaction(rights: Rights, description: Any) -> bool:
    """Return whether a transaction is the principal's own, or under a name it may describe."""
    if rights.may(_DESCRIBE_CLUSTER) or rights.may(FOR_FOREIGN_CLIENTS):
        return True
    if description.principal == rights.principal.name:
        return True
    names = []
    if description.HasField("identity"):
        names.append(description.identity.transactional_id)
    if description.HasField("named_sequence"):
        names.append(description.named_sequence.name)
    return any(rights.may(Need(Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, name)) for name in names)


def _without(answer: Any, field: str, seen: Iterable[bool]) -> Any:
    """Return an answer without the rows that are not seen."""
    rows = getattr(answer, field)
    kept = [row for row, is_seen in zip(rows, seen, strict=True) if is_seen]
    if len(kept) == len(rows):
        return answer
    shown = type(answer)()
    shown.CopyFrom(answer)
    shown.ClearField(field)
    getattr(shown, field).extend(kept)
    return shown


# Keys are names of command fields.
VISIBLE: dict[str, Callable[[Rights, Any], Any]] = {
    "list_topics": _topics,
    "list_groups": _groups,
    "list_transactional_ids": _transactional_ids,
    "list_txns": _transactions,
    "list_txn_changes": _transaction_changes,
    "describe_txn": _transaction,
}
