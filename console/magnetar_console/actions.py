"""Actions: what a viewer asks the servers to change. The servers decide whether it is allowed."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from magnetar import Client, InvalidArgument, TransactionAction, TxnID
from magnetar_console.looks.transaction import PARTITIONS_MAX
from magnetar_console.looks.transactions import counted

audit = logging.getLogger("magnetar_console.audit")


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


def _txn_id(body: dict[str, Any]) -> TxnID:
    text = body.get("id")
    try:
        return TxnID.parse(text if isinstance(text, str) else "")
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
