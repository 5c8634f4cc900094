"""Actions: what a viewer asks the servers to change. The servers decide whether it is allowed."""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Final

from magnetar import Client, InvalidArgument, ShardMove, TransactionAction, TxnID
from magnetar_console.looks.transaction import PARTITIONS_MAX
from magnetar_console.looks.transactions import counted

audit = logging.getLogger("magnetar_console.audit")

DRAIN: Final = "drain"
END_DRAIN: Final = "end the drain of"
REBALANCE: Final = "rebalance"
CHANGES: Final = (DRAIN, END_DRAIN, REBALANCE)


async def abort(client: Client, body: dict[str, Any], viewer: str) -> dict[str, Any]:
    """Abort a transaction, if it is still the one that the viewer has confirmed.

    Args:
        body: "id", the TxnID; "seen", the mark of what `loss` has told.
        viewer: who asks, for the log.
    Raises:
        InvalidArgument: the request is not complete, or more would be lost than was confirmed.
        MagnetarError: the servers refuse.
    """
    txn_id = _txn_id(body)
    told = await loss(client, body)
    if body.get("seen") != told["seen"]:
        raise InvalidArgument(
            "the transaction has changed since you looked: look again at what will be lost"
        )
    audit.warning("%s aborts transaction %s", viewer, txn_id)
    try:
        status = await client.admin.transactions.end(txn_id, TransactionAction.ABORT)
    except Exception as error:
        audit.warning("%s could not abort transaction %s: %s", viewer, txn_id, error)
        raise
    audit.warning("transaction %s is %s, as %s asked", txn_id, status.name, viewer)
    return {"status": status.name}


async def loss(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Return the participants of a transaction, whose content an abort would discard.

    Raises:
        InvalidArgument: the request is not complete.
        MagnetarError: the transaction is not known, or may not be seen.
    """
    found = await client.admin.transactions.describe(_txn_id(body))
    partitions = [(one.topic, one.partition, "") for one in found.partitions]
    acks = [(one.topic, one.partition, one.subscription) for one in found.subscriptions]
    content = f"{found.txn_id} {found.status.name} {sorted(partitions)} {sorted(acks)}"
    return {
        "id": str(found.txn_id),
        "status": found.status.name,
        "may_be_prepared": found.may_be_prepared,
        "transactional_id": found.identity.transactional_id if found.identity else "",
        "client": found.client.name if found.client else "",
        "host": found.client.host if found.client else "",
        "topics": counted(partitions[:PARTITIONS_MAX]),
        "subscriptions": counted(acks[:PARTITIONS_MAX]),
        "seen": hashlib.sha256(content.encode()).hexdigest(),
    }


async def plan(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Return which shards a drain, its end, or a rebalance would move.

    Args:
        body: "what", one of CHANGES; for drains "kind" and "member", the name of a server.
    Raises:
        InvalidArgument: the request is not complete, or no other server could take the shards.
        MagnetarError: the servers refuse.
    """
    moves = await moves_of(client, body, dry_run=True)
    rows = [{"shard": one.shard, "before": one.before, "after": one.after} for one in moves]
    content = f"{body['what']} {body.get('kind')} {body.get('member')} {rows}"
    return {"moves": rows, "seen": hashlib.sha256(content.encode()).hexdigest()}


async def change(client: Client, body: dict[str, Any], viewer: str) -> dict[str, Any]:
    """Drain a server, end that, or rebalance, if the same shards move as the viewer has confirmed.

    Args:
        body: as of `plan`; and "seen", the mark of what `plan` has told.
        viewer: who asks, for the log.
    Raises:
        InvalidArgument: as `plan`, or other shards would move than was confirmed.
        MagnetarError: the servers refuse.
    """
    told = await plan(client, body)
    if body.get("seen") != told["seen"]:
        raise InvalidArgument(
            "the cluster has changed since you looked: look again at what will move"
        )
    asked = " ".join(str(body[one]) for one in ("what", "kind", "member") if body.get(one))
    audit.warning("%s asks to %s", viewer, asked)
    try:
        moves = await moves_of(client, body, dry_run=False)
    except Exception as error:
        audit.warning("%s could not %s: %s", viewer, asked, error)
        raise
    audit.warning("%d shards are to move, as %s asked: %s", len(moves), viewer, asked)
    return {"moves": len(moves)}


async def moves_of(client: Client, body: dict[str, Any], *, dry_run: bool) -> tuple[ShardMove, ...]:
    """Ask for a change as of `plan`, and return the moves; with dry_run nothing is changed."""
    what, kind, member = (body.get(one, "") for one in ("what", "kind", "member"))
    if what not in CHANGES or not isinstance(kind, str) or not isinstance(member, str):
        raise InvalidArgument("the request does not say what to change")
    members = client.admin.members
    if what == REBALANCE:
        return await members.rebalance(dry_run=dry_run)
    return await members.drain(kind, member, undo=what == END_DRAIN, dry_run=dry_run)


def _txn_id(body: dict[str, Any]) -> TxnID:
    text = body.get("id")
    try:
        return TxnID.parse(text if isinstance(text, str) else "")
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
