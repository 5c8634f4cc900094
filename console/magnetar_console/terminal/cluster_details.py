"""All about a server or a shard, and what has happened to it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_console.seen import Row, Tables
from magnetar_console.terminal.cluster_tabs import lease_age, server_state
from magnetar_console.terminal.lines import NO_LINE, Lines, fact, heading
from magnetar_console.terminal.words import Part, Parts, count, duration, joined, time_text


def server_lines(tables: Tables, key: str, now_ms: int) -> Lines:
    """Return all about a server."""
    one = tables["servers"].get(key)
    if one is None:
        return [(Part("No shard names this server now.", "warn"),)]
    since = f" for {duration(now_ms - one['since_ms'])}" if one["since_ms"] else ""
    lines = [
        fact("Kind", one["kind"]),
        fact("State", *server_state(one, now_ms), Part(since)),
    ]
    if one["since_ms"]:
        lines.append(fact("Since", time_text(one["since_ms"])))
    if one["reason"]:
        lines.append(fact("Why", one["reason"]))
    lines += _membership(one, tables.get("leases", {}).get(key), now_ms)
    lines.append(fact("Shards", joined(one["shards"], 100)))
    address = one["address"]
    about = [
        event
        for event in tables["events"].values()
        if address in (event.get("server"), event.get("before"), event.get("after"))
    ]
    return lines + _events(about)


def _membership(one: Row, lease: Row | None, now_ms: int) -> Lines:
    lines = [fact("Member", one["member"])] if one["member"] else []
    if one["draining"]:
        text = "It is asked to give up its shards, and gets none until that is ended."
        lines.append(fact("Drain", Part(text, "warn")))
    if one["refused"]:
        numbers = joined(map(str, one["refused"]), 100)
        lines.append(fact("Could not open", Part(f"shards {numbers}", "bad")))
    return [*lines, *_lease(lease, now_ms)]


def _lease(lease: Row | None, now_ms: int) -> Lines:
    if lease is None:
        return []
    limits = (
        f" ago; the server is silent at {duration(lease['silent_age_ms'])},"
        f" and others get its shards at {duration(lease['duration_ms'])}"
    )
    return [fact("Lease", Part("renewed "), *lease_age(lease, now_ms), Part(limits))]


def shard_lines(tables: Tables, key: str, now_ms: int) -> Lines:
    """Return all about a shard."""
    one = tables["shards"].get(key)
    if one is None:
        return [(Part("The shard is gone.", "warn"),)]
    owner = Part(one["server"]) if one["server"] else Part("no server", "bad")
    since = "before this program began to watch"
    if one["since_ms"]:
        age = duration(now_ms - one["since_ms"])
        since = f"{time_text(one['since_ms'])}, for {age}"
    lines = [fact("Kind", one["kind"]), fact("Owner", owner), fact("Owner since", since)]
    if one["epoch"] is None:
        lines.append(fact("Epoch", "none: the server keeps its shard for good"))
    else:
        lines.append(fact("Epoch", count(one["epoch"])))
    if one["phase"]:
        lines.append(fact("Phase", one["phase"].replace("_", " ")))
    if one["moves_to"]:
        lines.append(fact("Moves to", Part(one["moves_to"], "warn")))
    if one["pinned_to"]:
        lines.append(fact("Pinned to", one["pinned_to"]))
    lines += _lease(tables.get("leases", {}).get(f"{one['kind']}/{one['server']}"), now_ms)
    server = tables["servers"].get(f"{one['kind']}/{one['server']}")
    if server is not None:
        lines.append(fact("Its server", *server_state(server, now_ms)))
    about = [event for event in tables["events"].values() if event.get("shard") == one["name"]]
    return lines + _events(about)


def _events(events: Sequence[Row]) -> Lines:
    lines = [NO_LINE, heading("What happened while it was watched")]
    if not events:
        return [*lines, (Part("nothing", "soft"),)]
    newest_first = sorted(events, key=lambda one: -one["number"])
    return lines + [(Part(f"{time_text(one['at_ms'])}  "), *_event(one)) for one in newest_first]


def _event(one: Row) -> Parts:
    if one["what"] == "away":
        return (Part("away", "bad"), Part(f" {one['kind']} at {one['server']} does not answer"))
    if one["what"] == "back":
        return (Part("back", "good"), Part(f" {one['kind']} at {one['server']} answers again"))
    if one["what"] == "draining":
        return (Part("draining", "warn"), Part(f" {one['kind']} {one['member']} gives up shards"))
    if one["what"] == "takes shards":
        return (Part("takes shards", "good"), Part(f" {one['kind']} {one['member']} again"))
    before, after = one["before"] or "no server", one["after"] or "no server"
    epoch = "" if one["epoch"] is None else f", epoch {count(one['epoch'])}"
    return (Part("moved"), Part(f" {one['shard']}: from {before} to {after}{epoch}"))
