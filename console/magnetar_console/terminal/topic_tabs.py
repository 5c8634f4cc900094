"""The tables of topics, subscriptions and groups. Pure."""

from __future__ import annotations

from typing import Final

from magnetar_console.looks import view as views
from magnetar_console.looks.view import View
from magnetar_console.seen import Row, Tables
from magnetar_console.terminal.columns import Column, Tab, by, by_text, number, text
from magnetar_console.terminal.words import (
    GROUP_STATES,
    Part,
    Parts,
    count,
    counted,
    duration,
    joined,
    pending,
)

# A topic that was described earlier than this is marked as old.
OLD_MS: Final = 20_000


def _topic(row: Row, now_ms: int) -> Parts:
    name = Part(row["name"])
    if row["seen_ms"] and now_ms - row["seen_ms"] > OLD_MS:
        return (name, Part(f" as of {duration(now_ms - row['seen_ms'])} ago", "warn"))
    return (name,)


def _brokers(row: Row, _: int) -> Parts:
    names = row.get("brokers", ())
    missing = [Part("no owner ", "bad")] if "" in names else []
    return (*missing, Part(joined(one for one in names if one)))


def _topic_facts(tables: Tables, _: int) -> Parts:
    rows = tables.get("topics", {}).values()
    partitions = sum(one["partitions"] for one in rows)
    messages = sum(one.get("messages") or 0 for one in rows)
    rate = sum(one.get("per_s") or 0 for one in rows)
    return (
        Part(f"Topics {count(len(rows))}", "strong"),
        Part(f"   Partitions {count(partitions)}   Messages {count(messages)}"),
        Part(f"   Messages/s {count(rate)}"),
    )


def _about_topic(row: Row, now_ms: int) -> Parts:
    parts = (*_topic(row, now_ms), Part("  owners: ", "soft"), *_brokers(row, now_ms))
    if not row.get("open"):
        return parts
    return (*parts, Part(f"  {counted(row['open'], 'open transaction')}", "soft"))


def _pending(row: Row, _: int) -> Parts:
    return (Part(count(row["pending"]), "warn" if row["pending"] else ""),)


def _subscription_facts(tables: Tables, _: int) -> Parts:
    rows = tables.get("subscriptions", {}).values()
    waiting = sum(one["pending"] for one in rows)
    return (
        Part(f"Subscriptions {count(len(rows))}", "strong"),
        Part(f"   Backlog {count(sum(one['backlog'] for one in rows))}"),
        Part(f"   Pending in transactions {count(waiting)}"),
    )


def _about_subscription(row: Row, _: int) -> Parts:
    return (
        Part(f"{row['name']} of {row['topic']}"),
        Part("  pending: ", "soft"),
        Part(pending(row)),
        Part("  consumers: ", "soft"),
        Part(joined(row["consumers"])),
    )


def _group_state(row: Row, _: int) -> Parts:
    return (GROUP_STATES.get(row["state"], Part(row["state"].lower())),)


def _group_facts(tables: Tables, _: int) -> Parts:
    rows = tables.get("groups", {}).values()
    rebalancing = sum(one["state"] == "REBALANCING" for one in rows)
    return (
        Part(f"Groups {count(len(rows))}", "strong"),
        Part(f"   Rebalancing {count(rebalancing)}"),
        Part(f"   Backlog {count(sum(one['lag'] for one in rows))}"),
    )


def _about_group(row: Row, now_ms: int) -> Parts:
    members = counted(row["members"], "member")
    shared = f"{members} of generation {count(row['generation'])}"
    told = f"  {shared} read {counted(row['partitions'], 'partition')}"
    return (Part(row["name"]), Part(told, "soft"))


TOPICS_TAB: Final = Tab(
    "Topics",
    View(views.TOPICS),
    "topics",
    (
        Column("TOPIC", _topic, by_text("name")),
        Column("PARTITIONS", number("partitions"), by("partitions"), 11, right=True),
        Column("MESSAGES", number("messages"), by("messages"), 13, right=True),
        Column("MESSAGES/S", number("per_s"), by("per_s"), 11, right=True),
        Column("OPEN TXNS", number("open"), by("open"), 10, right=True),
        Column("OWNERS", _brokers, lambda row: list(row.get("brokers", ())), from_width=100),
    ),
    (0, False),
    _topic_facts,
    _about_topic,
    "There are no topics. Make one, and send something:\n\n"
    "  magnetar topics create integers\n"
    "  seq 1000 | magnetar produce integers",
)

SUBSCRIPTIONS_TAB: Final = Tab(
    "Subscriptions",
    View(views.TOPICS),
    "subscriptions",
    (
        Column("SUBSCRIPTION", text("name"), by_text("name")),
        Column("TOPIC", text("topic"), by_text("topic")),
        Column("BACKLOG", number("backlog"), by("backlog"), 13, right=True),
        Column("PENDING_ACK", _pending, by("pending"), 12, right=True),
        Column("UNACKED", number("unacked"), by("unacked"), 10, right=True),
        Column(
            "CONSUMERS",
            lambda row, _: (Part(joined(row["consumers"])),),
            lambda row: list(row["consumers"]),
            from_width=100,
        ),
    ),
    (0, False),
    _subscription_facts,
    _about_subscription,
    "There are no subscriptions. One is made when it is first used:\n\n"
    "  magnetar consume integers --subscription audit",
)

GROUPS_TAB: Final = Tab(
    "Groups",
    View(views.GROUPS),
    "groups",
    (
        Column("GROUP", text("name"), by_text("name")),
        Column("STATE", _group_state, by_text("state"), 11),
        Column("MEMBERS", number("members"), by("members"), 8, right=True),
        Column("PARTITIONS", number("partitions"), by("partitions"), 11, right=True),
        Column("GENERATION", number("generation"), by("generation"), 11, right=True),
        Column("BACKLOG", number("lag"), by("lag"), 13, right=True),
    ),
    (0, False),
    _group_facts,
    _about_group,
    "There are no groups. A group is made when its first member joins, by\n\n"
    '  client.consumer_group("billing", "orders")',
)
