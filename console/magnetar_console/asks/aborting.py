"""The abort of an open transaction, as a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from magnetar import Client, InvalidArgument, TransactionAction, TxnID
from magnetar_console import actions
from magnetar_console.asks.plans import Plan


async def plan_abort(client: Client, body: dict[str, Any]) -> Plan:
    """Plan to abort an open transaction.

    Args:
        body: "id", the TxnID.
    Raises:
        InvalidArgument: the request does not name a transaction, or only its database may end it.
        MagnetarError: the transaction is not known, or may not be seen.
    """
    told = await actions.loss(client, body)
    if told["may_be_prepared"]:
        raise InvalidArgument(f"{told['id']} may be prepared: its database decides")
    txn_id = TxnID.parse(told["id"])
    program = told["transactional_id"] or told["client"] or "not known"
    host = f" at {told['host']}" if told["host"] else ""
    lost = []
    if told["topics"]:
        lost.append(f"All that it has written is discarded: {_places(told['topics'])}.")
    if told["subscriptions"]:
        lost.append(f"Messages that it has acknowledged come back: {_acks(told['subscriptions'])}.")

    async def work() -> str:
        status = await client.admin.transactions.end(txn_id, TransactionAction.ABORT)
        return f"{txn_id} is {status.name}."

    return Plan(
        f"Abort transaction {txn_id}?",
        (
            *(lost or ["It has written and acknowledged nothing."]),
            f"Its program ({program}{host}) gets an error with its next send, ack or commit.",
            "This cannot be undone.",
        ),
        "Abort it",
        f"aborts transaction {txn_id}",
        work,
    )


def _places(rows: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"and {one['more']:,} more" if "more" in one else f"{one['topic']} / {_numbers(one)}"
        for one in rows
    )


def _acks(rows: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"and {one['more']:,} more"
        if "more" in one
        else f"{one['subscription']} of {one['topic']} / {_numbers(one)}"
        for one in rows
    )


def _numbers(row: Mapping[str, Any]) -> str:
    more = ", …" if row["count"] > len(row["partitions"]) else ""
    return ", ".join(map(str, row["partitions"])) + more
