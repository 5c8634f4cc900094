"""Ends of transactions that only their database, or an administrator, can decide (KIP-939)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from magnetar import (
    Client,
    InvalidArgument,
    PartitionName,
    PreparedTxnState,
    SubscriptionName,
    TransactionDescription,
    TransactionStatus,
    TxnForgotten,
    TxnID,
    TxnNotFound,
)
from magnetar_console.asks.plans import Plan, text_of

# How many topics or subscriptions a sentence names.
NAMED_MAX = 6


async def plan_decision(client: Client, body: dict[str, Any]) -> Plan:
    """Plan to end a transaction that may be prepared, as its database says.

    Args:
        body: "id", the TxnID; "state", what the database has for the transactional id; "absent",
            true: the database has nothing for it.
    Raises:
        InvalidArgument: the request does not say what the database has, or the transaction is not
            open in two-phase commit.
        MagnetarError: the servers refuse.
    """
    found, name = await _held(client, body)
    if not found.two_phase_commit:
        raise InvalidArgument(f"{found.txn_id} is not in two-phase commit: terminate it instead")
    text, absent = text_of(body, "state"), body.get("absent") is True
    if bool(text) == absent:
        raise InvalidArgument(
            "say what the table magnetar_transaction_state has for this id: paste its state, or say"
            " that it has none"
        )
    if absent:
        return _abort(client, found, name, "The database names no transaction of this id", True)
    state = PreparedTxnState.parse(text)
    if state == found.prepared_state:
        return _commit(client, found, name, state)
    await _check_earlier(client, name, state, text)
    because = f"The database names {state.txn_id}, an earlier transaction, and not this one"
    return _abort(client, found, name, because, True)


async def plan_termination(client: Client, body: dict[str, Any]) -> Plan:
    """Plan to abort the open transaction of a transactional id, and to fence its program.

    Args:
        body: "id", the TxnID.
    Raises:
        InvalidArgument: the transaction is not open, or in two-phase commit.
        MagnetarError: the servers refuse.
    """
    found, name = await _held(client, body)
    if found.two_phase_commit:
        raise InvalidArgument(f"{found.txn_id} may be prepared: its database decides")
    return _abort(client, found, name, "It is not in two-phase commit", False)


def _commit(
    client: Client, found: TransactionDescription, name: str, state: PreparedTxnState
) -> Plan:
    async def work() -> str:
        did = await client.admin.transactional_ids.complete(name, state)
        return f"{found.txn_id} is committed." if did else f"{found.txn_id} was committed before."

    return Plan(
        f"Commit {found.txn_id} of {name}?",
        (
            "The database has committed: the state that you gave names this transaction.",
            *_contents(found, "Readers will see what it has written to", "stay acknowledged"),
            f"If the program of {name} still runs, it is fenced: its next command fails.",
            "This cannot be undone.",
        ),
        "Commit it",
        f"completes {found.txn_id} of {name} with the state {state}",
        work,
    )


def _abort(
    client: Client, found: TransactionDescription, name: str, because: str, two_phase: bool
) -> Plan:
    async def work() -> str:
        # It ends no other transaction, if the program lives and has begun the next one.
        await client.admin.transactional_ids.force_terminate(
            name, found.txn_id, abort_prepared=two_phase
        )
        return f"{found.txn_id} is aborted, and the program of {name} is fenced."

    warning = (
        "If the database has committed it after all, its rows stay, and the messages are lost."
    )
    return Plan(
        f"Abort {found.txn_id} of {name}?",
        (
            f"{because}: so it is aborted.",
            *_contents(found, "All that it has written is discarded:", "come back"),
            *([warning] if two_phase else []),
            f"If the program of {name} still runs, it is fenced: its next command fails.",
            "This cannot be undone.",
        ),
        "Abort it",
        f"terminates {name} with {found.txn_id}",
        work,
    )


async def _held(client: Client, body: dict[str, Any]) -> tuple[TransactionDescription, str]:
    """Return an open transaction, and its transactional id."""
    try:
        txn_id = TxnID.parse(text_of(body, "id"))
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    found = await client.admin.transactions.describe(txn_id)
    if found.status is not TransactionStatus.OPEN:
        raise InvalidArgument(f"{found.txn_id} is {found.status.name} by now")
    if found.identity is None:
        raise InvalidArgument(f"{found.txn_id} does not belong to a transactional id")
    return found, found.identity.transactional_id


async def _check_earlier(client: Client, name: str, state: PreparedTxnState, text: str) -> None:
    """Check that a state is of an earlier transaction of the same transactional id.

    Otherwise it was mistyped, or is of another id, and does not tell how this one ends.
    """
    assert state.txn_id is not None
    try:
        other = await client.admin.transactions.describe(state.txn_id)
    except (TxnForgotten, TxnNotFound) as error:
        raise InvalidArgument(
            f"{text} names a transaction that this cluster does not know: {error}. If the table has"
            " it nevertheless, it does not name the open one: say that the table has none"
        ) from None
    if other.identity is None or other.identity.transactional_id != name:
        raise InvalidArgument(f"{text} is not a state of {name}: look for the row of {name}")
    if other.prepared_state != state:
        right = other.prepared_state
        raise InvalidArgument(f"{text} is mistyped: that of {state.txn_id} is {right}")
    if other.status in (TransactionStatus.ABORTING, TransactionStatus.ABORTED):
        raise InvalidArgument(
            f"{text} names {state.txn_id}, which was aborted: database and topics disagree. Settle"
            " that first"
        )


def _contents(found: TransactionDescription, written: str, acknowledged: str) -> list[str]:
    sentences = []
    if found.partitions:
        sentences.append(f"{written} {_listed(found.partitions)}.")
    if found.subscriptions:
        sentences.append(
            f"Messages that it has acknowledged {acknowledged}: {_listed(found.subscriptions)}."
        )
    return sentences or ["It has written and acknowledged nothing."]


def _listed(places: Iterable[PartitionName | SubscriptionName]) -> str:
    partitions: dict[str, list[int]] = {}
    for one in places:
        name = one.topic
        if isinstance(one, SubscriptionName):
            name = f"{one.subscription} of {one.topic}"
        partitions.setdefault(name, []).append(one.partition)
    named = [
        f"{name} / {', '.join(map(str, sorted(some)[:NAMED_MAX]))}"
        + (", …" if len(some) > NAMED_MAX else "")
        for name, some in partitions.items()
    ]
    more = f" and {len(named) - NAMED_MAX:,} more" if len(named) > NAMED_MAX else ""
    return "; ".join(named[:NAMED_MAX]) + more
