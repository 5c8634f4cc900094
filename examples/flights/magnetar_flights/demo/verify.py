"""Compares the results with what they should be, message by message.

`compare` and `check_*` do no I/O; `read_topic` asks the broker.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from magnetar import Client, TopicDescription, TxnID
from magnetar_flights.flights import canonical

DIFFERENCES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must hold; `differences` has the first examples if it does not.

    Attributes:
        is_left_out: whether nothing was checked; `found` gives the reason.
    """

    claim: str
    found: str
    differences: tuple[str, ...] = ()
    is_left_out: bool = False

    @property
    def holds(self) -> bool:
        """Whether it holds."""
        return not self.differences


@dataclass(slots=True)
class Found:
    """The content of a topic: messages as "key value", and the transactions that wrote them."""

    messages: Counter[bytes] = field(default_factory=Counter)
    txn_ids: set[TxnID] = field(default_factory=set)
    without_txn_count: int = 0


async def read_topic(client: Client, topic: str, on_read: Callable[[int], None]) -> Found:
    """Read every partition of a topic from its beginning to its end."""
    found = Found()
    for partition in (await client.admin.topics.describe(topic)).partitions:
        async for columns in client.read_columns(topic, partition.partition):
            keys = [key or b"" for key in columns.keys() or [None] * len(columns)]
            found.messages.update(
                b"%b %b" % pair for pair in zip(keys, columns.values(), strict=True)
            )
            if columns.txn_id is None:
                found.without_txn_count += len(columns)
            else:
                found.txn_ids.add(columns.txn_id)
            on_read(len(columns))
    return found


@dataclass(slots=True)
class Updates:
    """The content of a topic of updates, where the last message of each key counts.

    Attributes:
        stale: keys of messages that repeat the message before: they were written twice.
    """

    last: dict[str, bytes] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    message_count: int = 0
    _flights: dict[str, int] = field(default_factory=dict)

    def add(self, key: str, value: bytes) -> None:
        """Add a message, in the order of its partition."""
        window = json.loads(value)
        if window["flights"] <= self._flights.get(key, 0):
            self.stale.append(key)
        self._flights[key] = window["flights"]
        self.last[key] = canonical(window)
        self.message_count += 1


async def read_updates(client: Client, topic: str, on_read: Callable[[int], None]) -> Updates:
    """Read every partition of a topic of updates from its beginning to its end."""
    updates = Updates()
    for partition in (await client.admin.topics.describe(topic)).partitions:
        async for columns in client.read_columns(topic, partition.partition):
            keys = columns.keys() or [None] * len(columns)
            for key, value in zip(keys, columns.values(), strict=True):
                updates.add((key or b"").decode(), value)
            on_read(len(columns))
    return updates


def check_updates(expected: dict[str, bytes], updates: Updates) -> list[Check]:
    """Check that each window is right, and that no update was written twice."""
    return [
        compare(
            "Windows by route and day, from Spark",
            Counter(f"{key} ".encode() + value for key, value in expected.items()),
            Counter(f"{key} ".encode() + value for key, value in updates.last.items()),
        ),
        Check(
            "No batch of Spark's counts twice",
            f"{updates.message_count:,} updates, {len(updates.stale):,} written again",
            tuple(f"written again: {key}" for key in updates.stale[:DIFFERENCES_SHOWN]),
        ),
    ]


def left_out(claim: str, why: str) -> Check:
    """Return a check that was left out."""
    return Check(claim, why, is_left_out=True)


def compare(claim: str, expected: Counter[bytes], found: Counter[bytes]) -> Check:
    """Check that nothing is lost, doubled or invented."""
    lost = expected - found
    surplus = found - expected
    twice = Counter({one: count for one, count in surplus.items() if one in expected})
    foreign = surplus - twice
    differences = [
        f"{what}: {one.decode(errors='replace')}"
        for what, ones in (("lost", lost), ("twice", twice), ("not expected", foreign))
        for one in sorted(ones)[:DIFFERENCES_SHOWN]
    ]
    text = (
        f"{found.total():,} of {expected.total():,}: {lost.total():,} lost, "
        f"{twice.total():,} twice, {foreign.total():,} not expected"
    )
    return Check(claim, text, tuple(differences))


def check_transactions(committed: set[TxnID], topics: Iterable[Found]) -> Check:
    """Check that committed transactions, and only they, wrote the messages."""
    topics = list(topics)
    seen = set().union(*(topic.txn_ids for topic in topics))
    without_count = sum(topic.without_txn_count for topic in topics)
    differences = [
        *(f"committed, not in the output: {one}" for one in sorted(committed - seen)),
        *(f"in the output, not committed: {one}" for one in sorted(seen - committed)),
    ][:DIFFERENCES_SHOWN]
    if without_count:
        differences.append(f"{without_count:,} messages of no transaction")
    return Check(
        "Written by committed transactions only",
        f"{len(seen):,} in the output, {len(committed):,} committed",
        tuple(differences),
    )


def check_input(description: TopicDescription, subscription: str) -> Check:
    """Check that all input is acknowledged, and that no ack is pending in a transaction."""
    backlog_count = pending_count = 0
    differences = []
    for partition in description.partitions:
        named = [one for one in partition.subscriptions if one.subscription == subscription]
        if not named:
            differences.append(f"partition {partition.partition}: no subscription {subscription}")
        for one in named:
            backlog_count += one.backlog
            pending_count += one.pending_ack_count
            if one.backlog or one.pending_ack_count:
                differences.append(
                    f"partition {partition.partition}: {one.backlog:,} not acknowledged, "
                    f"{one.pending_ack_count:,} pending"
                )
    return Check(
        "All input acknowledged",
        f"backlog {backlog_count:,}, pending {pending_count:,}",
        tuple(differences),
    )


def check_minimum(claim: str, count: int, minimum: int) -> Check:
    """Check that a count reaches a minimum."""
    differences = () if count >= minimum else (f"{minimum - count:,} too few",)
    return Check(claim, f"{count:,}", differences)
