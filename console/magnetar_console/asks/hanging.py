"""Hanging transactions: the search of KIP-664, and the abort of what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from magnetar import (
    Client,
    HangingTransaction,
    InvalidArgument,
    MagnetarError,
    ProducerDescription,
)
from magnetar_console.asks.plans import Plan, number_of, text_of

# How long a search goes on, in seconds; the next one continues after its last topic.
SEARCH_S_MAX: Final = 15.0
FOUND_MAX: Final = 500
PROBLEMS_MAX: Final = 10


async def search(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Search topics for transactions that no coordinator will end.

    Args:
        body: "topic", only this one, empty: all; "after", a topic: only those after it by name;
            "age_ms_min", only transactions that are open for at least so many milliseconds.
    Returns:
        "found", rows; "searched", how many topics were; "topics", how many there are; "after", the
        last topic that was searched, empty: all were; "problems", sentences about topics whose
        brokers do not answer.
    Raises:
        MagnetarError: the servers refuse, or there is no such topic.
    """
    named, after = text_of(body, "topic"), text_of(body, "after")
    age_ms_min = number_of(body, "age_ms_min")
    names = [named] if named else sorted(one.topic for one in await client.admin.topics.list())
    left = [one for one in names if one > after]
    found: list[HangingTransaction] = []
    problems: list[str] = []
    searched = 0
    try:
        async with asyncio.timeout(SEARCH_S_MAX):
            for name in left:
                try:
                    found += await client.admin.transactions.find_hanging(
                        name, age_ms_min=age_ms_min
                    )
                except MagnetarError as error:
                    if named:
                        raise
                    problems.append(f"{name} was not searched: {error}")
                searched += 1
                if len(found) >= FOUND_MAX:
                    break
    except TimeoutError:
        if not searched:
            # The next search begins after it.
            searched = 1
            problems.append(
                f"{left[0]} was not searched, which takes longer than {SEARCH_S_MAX:g} s: use"
                f" magnetar transactions find-hanging --topic {left[0]}"
            )
    if len(problems) > PROBLEMS_MAX:
        problems[PROBLEMS_MAX:] = [f"{len(problems) - PROBLEMS_MAX:,} more topics were not"]
    return {
        "found": _rows(found[:FOUND_MAX]),
        "searched": len(names) - len(left) + searched,
        "topics": len(names),
        "after": left[searched - 1] if searched < len(left) else "",
        "problems": problems,
    }


async def plan_abort(client: Client, body: dict[str, Any]) -> Plan:
    """Plan to abort a hanging transaction at one participant.

    Args:
        body: "id", "topic", "partition", "subscription", "start_offset" and "producer_epoch", as a
            row of `search` has them.
    Raises:
        InvalidArgument: it does not hang there, or no longer.
        MagnetarError: the servers refuse.
    """
    hanging, count = await _found_again(client, body)
    one = hanging.producer
    place = f"{one.partition.topic}, partition {one.partition.partition}"
    if one.subscription:
        where = f"the subscription {one.subscription} of {place}"
        loss = "The messages that it has acknowledged there are delivered again."
    else:
        where = place
        messages = "message" if count == 1 else "messages"
        loss = (
            f"What it has written there, {count:,} {messages}, is discarded. No reader has seen it."
        )

    async def work() -> str:
        await client.admin.transactions.abort_hanging(one)
        return f"{one.txn_id} is aborted at {where}."

    return Plan(
        f"Abort {one.txn_id} at {where}?",
        (
            f"It is open there, and hangs: {hanging.reason}.",
            loss,
            "First its coordinator makes sure that no client can commit it. This cannot be undone.",
            "Other participants keep it until each is aborted in the same way.",
        ),
        "Abort it there",
        f"aborts the hanging transaction {one.txn_id} at {where}",
        work,
    )


async def _found_again(client: Client, body: dict[str, Any]) -> tuple[HangingTransaction, int]:
    """Return the transaction of a request, and how much it has written at this participant."""
    topic, partition = text_of(body, "topic"), number_of(body, "partition")
    wanted = (
        text_of(body, "id"),
        text_of(body, "subscription"),
        number_of(body, "start_offset"),
        number_of(body, "producer_epoch"),
    )
    if not topic or partition < 0:
        raise InvalidArgument("the request does not say where the transaction hangs")
    transactions = client.admin.transactions
    opened = [
        one
        for one in await transactions.describe_producers(topic, partition)
        if (str(one.txn_id), one.subscription, one.start_offset, one.producer_epoch) == wanted
    ]
    for found in await transactions.hanging_among(opened):
        return found, sum(map(_written, opened))
    raise InvalidArgument(
        f"{wanted[0]} is no longer open there, or its coordinator knows it again: search again"
    )


def _rows(found: Iterable[HangingTransaction]) -> list[dict[str, Any]]:
    """Return a row for each participant; several clients may have written there."""
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    for hanging in found:
        one = hanging.producer
        key = (one.txn_id, one.partition, one.subscription, one.start_offset, one.producer_epoch)
        row = rows.setdefault(
            key,
            {
                "id": str(one.txn_id),
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "subscription": one.subscription,
                "start_offset": one.start_offset,
                "producer_epoch": one.producer_epoch,
                "written": 0,
                "since_ms": one.start_time_ms,
                "reason": hanging.reason,
            },
        )
        row["written"] += _written(one)
    return [*rows.values()]


def _written(one: ProducerDescription) -> int:
    """Return how many messages a client has written, or commands with acks."""
    return one.last_sequence + 1
