"""The tables of servers and shards. Pure."""

from __future__ import annotations

from typing import Final

from magnetar_console.looks import view as views
from magnetar_console.looks.view import View
from magnetar_console.seen import Row, Tables
from magnetar_console.terminal.columns import Column, Tab, by, by_text, number, text, txn_order
from magnetar_console.terminal.words import Part, Parts, clock_text, count, duration, joined


def server_state(row: Row, _: int) -> Parts:
    """Return whether a server answers."""
    if row["answers"] is None:
        return (Part("asking", "soft"),)
    if not row["answers"]:
        return (Part("away", "bad"),)
    if row["draining"] or row["leaving"]:
        return (Part("draining" if row["draining"] else "leaving", "warn"),)
    return (Part("answers", "good"),)


def lease_age(lease: Row | None, now_ms: int) -> Parts:
    """Return how long ago a lease was renewed.

    Args:
        lease: None: the server has told of none.
    """
    if lease is None:
        return (Part("-", "soft"),)
    age_ms = now_ms - lease["renewed_ms"]
    is_old = age_ms > lease["silent_age_ms"]
    return (Part(duration(age_ms), "bad" if is_old else ""),)


def _since(row: Row, now_ms: int) -> Parts:
    return (Part(duration(now_ms - row["since_ms"]) if row["since_ms"] else "-"),)


def _lease(row: Row, now_ms: int) -> Parts:
    return lease_age(row["leases"], now_ms)


def _renewed(row: Row) -> int:
    return -row["leases"]["renewed_ms"] if row["leases"] else 0


def server_facts(tables: Tables, _: int) -> Parts:
    """Return how many servers answer."""
    rows = tables.get("servers", {}).values()
    away = sum(one["answers"] is False for one in rows)
    found = Part(f"Servers {count(len(rows))}", "strong")
    if not rows:
        return (found,)
    if not away:
        return (
            found,
            Part("   all answer" if all(one["answers"] for one in rows) else "   asking"),
        )
    return (found, Part("   "), Part(f"{count(away)} away", "bad"))


def _about_server(row: Row, _: int) -> Parts:
    name = f" {row['member']}" if row["member"] else ""
    parts = [Part(f"{row['kind']}{name} at {row['address']}")]
    if row["since_ms"]:
        parts.append(Part(f"  since {clock_text(row['since_ms'])}", "soft"))
    if row["answers"] is False:
        parts += [Part("  "), Part(row["reason"] or "does not answer", "bad")]
    if row["draining"]:
        parts += [Part("  "), Part("gets no shards until its drain is ended", "warn")]
    if row["refused"]:
        refused = joined(map(str, row["refused"]), 20)
        parts += [Part("  "), Part(f"could not open shards {refused}", "bad")]
    return (*parts, Part("  shards: ", "soft"), Part(joined(row["shards"], 20)))


def _owner(row: Row, _: int) -> Parts:
    return (Part(row["server"]),) if row["server"] else (Part("no server", "bad"),)


def _moved(row: Row, now_ms: int) -> Parts:
    if not row["since_ms"]:
        return (Part("before the watch", "soft"),)
    return (Part(f"for {duration(now_ms - row['since_ms'])}"),)


def _shard_facts(tables: Tables, _: int) -> Parts:
    rows = tables.get("shards", {}).values()
    homeless = sum(not one["server"] for one in rows)
    found = (Part(f"Shards {count(len(rows))}", "strong"), Part("   "))
    mark = "bad" if homeless else ""
    return (*found, Part(f"Without a server {count(homeless)}", mark))


def _about_shard(row: Row, now_ms: int) -> Parts:
    epoch = "" if row["epoch"] is None else f", epoch {count(row['epoch'])}"
    parts = [Part(f"{row['name']}: "), *_owner(row, now_ms), Part(epoch)]
    if row["phase"]:
        parts.append(Part(f", {row['phase'].replace('_', ' ')}"))
    if row["moves_to"]:
        parts.append(Part(f", moves to {row['moves_to']}", "warn"))
    if row["pinned_to"]:
        parts.append(Part(f", pinned to {row['pinned_to']}"))
    return tuple(parts)


def _shard_order(row: Row) -> tuple[str, tuple[int, ...]]:
    return row["kind"], txn_order(row["name"])


SERVERS_TAB: Final = Tab(
    "Servers",
    View(views.CLUSTER),
    "servers",
    (
        Column("SERVER", text("address"), by_text("address")),
        Column("KIND", text("kind"), by_text("kind"), 11),
        Column("STATE", server_state, lambda row: row["answers"] is not False, 8),
        Column("SINCE", _since, lambda row: -row["since_ms"], 13, right=True),
        Column("LEASE", _lease, _renewed, 8, right=True),
        Column(
            "SHARDS",
            lambda row, _: (Part(joined(row["shards"], 20)),),
            lambda row: len(row["shards"]),
        ),
    ),
    (2, False),
    server_facts,
    _about_server,
    "No broker has told which servers there are.",
    "leases",
)

SHARDS_TAB: Final = Tab(
    "Shards",
    View(views.CLUSTER),
    "shards",
    (
        Column("SHARD", text("name"), _shard_order, 16),
        Column("OWNER", _owner, by_text("server")),
        Column("EPOCH", number("epoch"), by("epoch"), 8, right=True),
        Column("OWNER SINCE", _moved, by("since_ms"), 17),
    ),
    (0, False),
    _shard_facts,
    _about_shard,
    "No broker has told where the shards are.",
)
