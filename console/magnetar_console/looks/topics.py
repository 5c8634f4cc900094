"""Topics, their partitions and subscriptions."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final

from magnetar import Client, MagnetarError, PartitionDescription, TopicDescription, TopicNotFound
from magnetar.admin.topic_descriptions import TopicSummary
from magnetar_console.pauses import SCAN_PAUSE
from magnetar_console.seen import Row, Seen
from magnetar_core.clock import Clock

# How much is described in one look; with more, the topics take turns.
TOPICS_AT_A_LOOK: Final = 64
PARTITIONS_AT_A_LOOK: Final = 1_024
AT_ONCE: Final = 4
# How many rows a page gets.
TOPICS_MAX: Final = 5_000
PARTITIONS_MAX: Final = 2_000
TXNS_MAX: Final = 1_000
# How many transactions each partition and each subscription names, the oldest first.
TXNS_OF_PARTITION_MAX: Final = 100
NAMES_MAX: Final = 5


class TopicsLook:
    """Lists the topics, and describes them by turns."""

    def __init__(self, clock: Clock) -> None:
        self.period_s = 1.0
        self.pause_factor = SCAN_PAUSE
        self._clock = clock
        self._rows: dict[str, Row] = {}
        self._subscriptions: dict[str, dict[str, Row]] = {}
        self._turns: deque[str] = deque()

    async def look(self, client: Client) -> Seen:
        """List all topics, and describe some."""
        listed = await client.admin.topics.list()
        problems = []
        if len(listed) > TOPICS_MAX:
            problems.append(f"The first {TOPICS_MAX:,} of {len(listed):,} topics are shown.")
        summaries = {one.topic: one for one in sorted(listed, key=_name)[:TOPICS_MAX]}
        self._turns = deque(name for name in self._turns if name in summaries)
        self._turns.extendleft(name for name in summaries if name not in self._rows)
        self._rows = {
            name: self._rows.get(name) or _undescribed(one) for name, one in summaries.items()
        }
        self._subscriptions = {
            name: rows for name, rows in self._subscriptions.items() if name in summaries
        }
        problems += await self._describe(client, self._next_turns(summaries))
        subscriptions = {
            f"{name}/{one}": row
            for name, rows in sorted(self._subscriptions.items())
            for one, row in rows.items()
        }
        return Seen({"topics": self._rows, "subscriptions": subscriptions}, tuple(problems))

    async def close(self) -> None:
        """Keep the rows: they are bounded, and shown with their age."""

    def _next_turns(self, summaries: dict[str, TopicSummary]) -> Sequence[str]:
        chosen: list[str] = []
        partitions = 0
        while self._turns and len(chosen) < TOPICS_AT_A_LOOK:
            partitions += summaries[self._turns[0]].partitions
            if chosen and partitions > PARTITIONS_AT_A_LOOK:
                break
            chosen.append(self._turns.popleft())
        self._turns.extend(chosen)
        return chosen

    async def _describe(self, client: Client, names: Sequence[str]) -> list[str]:
        questions = asyncio.Semaphore(AT_ONCE)
        problems: list[str] = []

        async def describe(name: str) -> None:
            async with questions:
                try:
                    self._note(
                        await client.admin.topics.describe(name, txns_max=TXNS_OF_PARTITION_MAX)
                    )
                except TopicNotFound:
                    pass  # It was deleted meanwhile.
                except MagnetarError as error:
                    problems.append(f"{name}: {error}")

        await asyncio.gather(*(describe(one) for one in names))
        return problems[:NAMES_MAX]

    def _note(self, found: TopicDescription) -> None:
        now_ms = self._clock.wall_ms()
        before = self._rows.get(found.topic) or {}
        end = sum(one.end_offset for one in found.partitions)
        row: dict[str, Any] = {
            "name": found.topic,
            "partitions": len(found.partitions),
            "messages": sum(one.end_offset - one.first_offset for one in found.partitions),
            **open_count(found),
            "brokers": sorted({one.broker_name for one in found.partitions})[: NAMES_MAX + 1],
            "end": end,
            "per_s": _rate(before, end, now_ms),
            "seen_ms": now_ms,
        }
        # Only a change is worth an event; the page shows an age when it is large.
        unchanged = all(before.get(name) == row[name] for name in row if name != "seen_ms")
        if not unchanged or now_ms - before["seen_ms"] > 5_000:
            self._rows[found.topic] = row
        self._subscriptions[found.topic] = subscription_rows(found)


def open_count(found: TopicDescription) -> Row:
    """Return how many transactions are open at a topic, or a lower bound of it."""
    named = len({txn for one in found.partitions for txn in one.open_txns})
    most = max((one.open_txn_count for one in found.partitions), default=0)
    return {
        "open": max(named, most),
        "open_more": any(one.open_txn_count > len(one.open_txns) for one in found.partitions),
    }


def _name(one: TopicSummary) -> str:
    return one.topic


def _undescribed(one: TopicSummary) -> Row:
    return {"name": one.topic, "partitions": one.partitions, "seen_ms": 0}


def _rate(before: Row, end: int, now_ms: int) -> int | None:
    """Return how many messages came in each second; None: not known yet."""
    if not before.get("seen_ms") or now_ms <= before["seen_ms"]:
        return None
    seconds: float = (now_ms - before["seen_ms"]) / 1_000
    came: int = end - before["end"]
    return round(max(0, came) / seconds)


def subscription_rows(found: TopicDescription) -> dict[str, Row]:
    """Return the subscriptions of a topic by name, each over all partitions."""
    rows: dict[str, dict[str, Any]] = {}
    for partition in found.partitions:
        for one in partition.subscriptions:
            row = rows.setdefault(
                one.subscription,
                {
                    "topic": found.topic,
                    "name": one.subscription,
                    **{"backlog": 0, "unacked": 0, "pending": 0},
                    **{"pending_txns": [], "consumers": [], "partitions": 0},
                },
            )
            row["partitions"] += 1
            row["backlog"] += one.backlog
            row["unacked"] += one.unacked_count
            row["pending"] += one.pending_ack_count
            for name, values in (("pending_txns", one.pending_txns), ("consumers", one.consumers)):
                texts = {*row[name], *map(str, values[: NAMES_MAX + 1])}
                row[name] = sorted(texts)[: NAMES_MAX + 1]
    return dict(rows)


class TopicLook:
    """Describes one topic."""

    def __init__(self, topic: str) -> None:
        self.period_s = 1.0
        self.pause_factor = SCAN_PAUSE
        self._topic = topic

    async def look(self, client: Client) -> Seen:
        """Ask the brokers of the topic's partitions."""
        found = await client.admin.topics.describe(self._topic, txns_max=TXNS_OF_PARTITION_MAX)
        txns = Counter(str(txn) for one in found.partitions for txn in one.open_txns)
        topic: Row = {
            "name": found.topic,
            "topic_id": found.topic_id,
            "retention_ms": found.retention_ms,
            "retention_bytes": found.retention_bytes,
            "partitions": len(found.partitions),
        }
        problems = []
        if len(found.partitions) > PARTITIONS_MAX:
            problems.append(
                f"The first {PARTITIONS_MAX:,} of {len(found.partitions):,} partitions are shown."
            )
        if any(one.open_txn_count > len(one.open_txns) for one in found.partitions):
            problems.append(
                f"Each partition names its {TXNS_OF_PARTITION_MAX} oldest open transactions."
            )
        return Seen(
            {
                "topic": {"it": topic},
                "partitions": {
                    str(one.partition): _partition(one) for one in found.partitions[:PARTITIONS_MAX]
                },
                "open": {
                    txn: {"id": txn, "partitions": count}
                    for txn, count in txns.most_common(TXNS_MAX)
                },
                "subscriptions": subscription_rows(found),
            },
            tuple(problems),
        )

    async def close(self) -> None:
        """Hold nothing."""


def _partition(one: PartitionDescription) -> Row:
    return {
        "partition": one.partition,
        "broker": one.broker_name,
        "first_offset": one.first_offset,
        "end_offset": one.end_offset,
        "open": one.open_txn_count,
        "open_txns": [str(txn) for txn in one.open_txns[:NAMES_MAX]],
        "sidecar": one.has_txnlog,
    }
