"""All about a topic, a subscription or a group. Pure."""

from __future__ import annotations

from magnetar_console.seen import Row, Tables
from magnetar_console.terminal.lines import NO_LINE, Lines, fact, heading, table
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


def topic_lines(tables: Tables, _: int, __: int) -> Lines:
    """Return all about a topic."""
    partitions = sorted(tables["partitions"].values(), key=lambda one: one["partition"])
    homeless = [one for one in partitions if not one["broker"]]
    mark = (Part("   "), Part(f"{count(len(homeless))} without an owner", "bad"))
    titles = ("PARTITION", "OWNER", "OFFSETS", "MESSAGES", "OPEN TRANSACTIONS")
    rows = [
        (
            (Part(str(one["partition"])),),
            (Part(one["broker"]),) if one["broker"] else (Part("no owner", "bad"),),
            (Part(f"{count(one['first_offset'])} to {count(one['end_offset'])}"),),
            (Part(count(one["end_offset"] - one["first_offset"])),),
            (Part(joined(one["open_txns"]), "" if one["open"] else "soft"),),
        )
        # Those without an owner come first.
        for one in sorted(partitions, key=lambda one: bool(one["broker"]))
    ]
    subscriptions = sorted(tables.get("subscriptions", {}).values(), key=lambda one: one["name"])
    lines = [
        heading(f"Partitions: {count(len(partitions))}", *(mark if homeless else ())),
        *table(titles, rows),
        NO_LINE,
        heading(f"Subscriptions: {count(len(subscriptions))}"),
    ]
    for one in subscriptions:
        backlog = counted(one["backlog"], "message")
        lines.append(
            (Part(f"{one['name']}  "), Part(f"backlog {backlog}, pending: {pending(one)}", "soft"))
        )
    return lines


def subscription_lines(tables: Tables, name: str) -> Lines:
    """Return all about a subscription of a topic."""
    one = tables.get("subscriptions", {}).get(name)
    if one is None:
        return [(Part("The topic no longer has this subscription.", "warn"),)]
    lines = [
        fact("Topic", one["topic"], Part(f" ({counted(one['partitions'], 'partition')})", "soft")),
        fact("Backlog", counted(one["backlog"], "message")),
        fact("PENDING_ACK", Part(pending(one), "warn" if one["pending"] else "")),
        fact("Unacked", f"{counted(one['unacked'], 'message')} delivered, not acknowledged"),
        NO_LINE,
        heading(f"Consumers: {count(len(one['consumers']))}"),
    ]
    if not one["consumers"]:
        lines.append((Part("no consumer", "warn" if one["backlog"] else "soft"),))
    lines += [(Part(f"  {consumer}"),) for consumer in one["consumers"]]
    if one["pending"]:
        text = "Pending messages come back if their transactions abort."
        lines += [NO_LINE, (Part(text, "soft"),)]
    return lines


def group_lines(tables: Tables, _: int, __: int) -> Lines:
    """Return all about a group."""
    group = tables["group"]["it"]
    members = sorted(tables["members"].values(), key=lambda one: one["id"])
    partitions = sorted(
        tables["partitions"].values(),
        key=lambda one: (bool(one["member"]), one["topic"], one["partition"]),
    )
    homeless = sum(not one["member"] for one in partitions)
    mark = (Part("   "), Part(f"{count(homeless)} without an owner", "bad")) if homeless else ()
    prepared = "allowed" if group["two_phase"] else "not allowed"
    lines = [
        fact("State", GROUP_STATES.get(group["state"], Part(group["state"].lower()))),
        fact("Backlog", counted(group["lag"], "message")),
        fact("Generation", count(group["generation"])),
        fact("Prepared acks", prepared),
        NO_LINE,
        heading(f"Members: {count(len(members))}"),
    ]
    if not members:
        lines.append((Part("The group has no members. Its cursors stay where they are.", "warn"),))
    else:
        lines += table(
            ("MEMBER", "PARTITIONS", "BACKLOG", "LAST SIGN OF LIFE"),
            [
                (
                    (Part(one["client"] or one["id"]),),
                    (Part(count(one["partitions"])),),
                    (Part(count(one["lag"])),),
                    (_silence(one),),
                )
                for one in members
            ],
        )
    lines += [NO_LINE, heading(f"Partitions: {count(len(partitions))}", *mark)]
    if not partitions:
        return [*lines, (Part("The group reads no partitions."),)]
    return lines + table(
        ("PARTITION", "OWNER", "BACKLOG", "PENDING_ACK", "WAITS FOR"),
        [
            (
                (Part(f"{one['topic']} / {one['partition']}"),),
                _partition_owner(one),
                (Part(count(one["lag"])),),
                (Part(count(one["pending"]), "warn" if one["pending"] else ""),),
                (Part(joined(one["awaited"])),),
            )
            for one in partitions
        ],
    )


def _silence(one: Row) -> Part:
    silent_ms = one["silent_s"] * 1_000
    late = 2 * silent_ms > one["session_timeout_ms"]
    text = f"{count(one['silent_s'])} s ago, of {duration(one['session_timeout_ms'])}"
    return Part(text, "warn" if late else "")


def _partition_owner(one: Row) -> Parts:
    if not one["member"]:
        return (Part("no owner", "bad"),)
    if one["next"]:
        return (Part(f"{one['client']} "), Part(f"moves to {one['next']}", "warn"))
    return (Part(one["client"]),)
