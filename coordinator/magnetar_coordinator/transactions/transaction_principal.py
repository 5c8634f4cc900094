"""Owners of transactions: the principal that began one, or that may use its name.

TxnIDs are counted, so that to know one proves nothing. With access control, only these may add to a
transaction or end it; the right to end one's own is never withdrawn. An administrator may end any.
Source: docs/design/0011-security.md, Rights.
"""

from __future__ import annotations

from magnetar_coordinator.metadata.records import TxnEnded
from magnetar_coordinator.metadata.transaction import Transaction
from magnetar_core.access.grants import Rights
from magnetar_core.access.needs import (
    ADMINISTRATION,
    FOR_FOREIGN_CLIENTS,
    Kind,
    Need,
    Operation,
)
from magnetar_core.access.principal import ANONYMOUS, Principal
from magnetar_core.errors import AuthorizationFailed
from magnetar_core.server.commands import Reply

_ALTER = Need(Operation.ALTER, Kind.CLUSTER, ADMINISTRATION)


def recorded(principal: Principal) -> str:
    """Return the principal for the record of a transaction."""
    return "" if principal is ANONYMOUS or principal == ANONYMOUS else principal.name


def may_end_any(rights: Rights) -> bool:
    """Return whether a principal may end any transaction."""
    return rights.may(_ALTER)


def may_use_name(rights: Rights, name: str) -> bool:
    """Return whether a principal may use the name of a named sequence, or a transactional id."""
    return rights.may(Need(Operation.WRITE, Kind.TRANSACTIONAL_ID, name))


def may_use_id(rights: Rights, transactional_id: str) -> bool:
    """Return whether a principal may use a transactional id, or has checked who may."""
    return may_use_name(rights, transactional_id) or rights.may(FOR_FOREIGN_CLIENTS)


def check_principal(
    found: Transaction | TxnEnded, named: str | None, reply: Reply, *, ending: bool
) -> None:
    """Check that a client may add to a transaction, or end it.

    Args:
        named: the name of its named sequence, if it has one.
    Raises:
        AuthorizationFailed: it is another principal's. No effect.
    """
    rights = reply.rights
    if rights is None or found.principal == recorded(reply.principal):
        return
    owner = found.txn_owner
    if owner is not None and may_use_id(rights, owner.transactional_id):
        return
    if named is not None and may_use_name(rights, named):
        return
    if ending and may_end_any(rights):
        return
    raise AuthorizationFailed(
        f"{reply.principal} does not own transaction {found.txn_id}: the principal that began it "
        "may use it, and an administrator may end it",
        txn_id=found.txn_id,
        principal=reply.principal.name,
    )
