"""All about one row, as lines of text; what is missing comes first. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from magnetar_console.looks import view as views
from magnetar_console.looks.view import View
from magnetar_console.seen import Row, Tables
from magnetar_console.terminal import tabs
from magnetar_console.terminal.tabs import Tab, lease_age, server_state
from magnetar_console.terminal.words import (
    GROUP_STATES,
    Part,
    Parts,
    clock_text,
    count,
    counted,
    duration,
    joined,
    pending,
    place,
    precise,
    state,
    time_text,
    who,
    width_of,
)

Lines: TypeAlias = list[Parts]
NO_LINE: Final[Parts] = ()
NAME_CELLS: Final = 15
MOVES_MAX: Final = 12
ENDED: Final = ("COMMITTED", "ABORTED")
BAR_CELLS_MIN: Final = 8
# How a participant stands, the most urgent first.
URGENCY: Final = ("refuses", "waits", "unseen", "open", "ended")


class Details(NamedTuple):
    """The details of a row.

    Attributes:
        title: what it is.
        view: where it comes from.
        lines: its text, of tables, the present time and the width of the terminal.
    """

    title: str
    view: View
    lines: Callable[[Tables, int, int], Lines]


def details_of(tab: Tab, key: str, row: Row) -> Details:
    """Return the details of a row of a tab."""
    match tab:
        case tabs.TRANSACTIONS_TAB | tabs.ENDED_TAB:
            return Details(f"Transaction {key}", View(views.TRANSACTION, key), _transaction)
        case tabs.TOPICS_TAB:
            return Details(f"Topic {row['name']}", View(views.TOPIC, row["name"]), _topic)
        case tabs.SUBSCRIPTIONS_TAB:
            name, topic = row["name"], row["topic"]
            return Details(
                f"Subscription {name} of {topic}",
                View(views.TOPIC, topic),
                lambda tables, _, __: _subscription(tables, name),
            )
        case tabs.GROUPS_TAB:
            return Details(f"Group {row['name']}", View(views.GROUP, row["name"]), _group)
        case tabs.SERVERS_TAB:
            return Details(
                f"Server {row['address']}",
                View(views.CLUSTER),
                lambda tables, now_ms, _: _server(tables, key, now_ms),
            )
        case _:
            return Details(
                f"Shard {row['name']}",
                View(views.CLUSTER),
                lambda tables, now_ms, _: _shard(tables, key, now_ms),
            )


def fact(name: str, *parts: Part | str) -> Parts:
    """Return a line with a name and a value."""
    value = [Part(one) if isinstance(one, str) else one for one in parts]
    return (Part(f"{name:<{NAME_CELLS}} ", "soft"), *value)


def heading(text: str, *parts: Part) -> Parts:
    """Return a line above others."""
    return (Part(text, "strong"), *parts)


def table(titles: Sequence[str], rows: Iterable[Sequence[Parts]]) -> Lines:
    """Return aligned columns; a column is as wide as its widest cell."""
    cells = [[(Part(one, "soft"),) for one in titles], *rows]
    widths = [max(width_of(row[place]) for row in cells) for place in range(len(titles))]
    return [
        tuple(
            part
            for cell, width in zip(row, widths, strict=True)
            for part in (*cell, Part(" " * (width - width_of(cell) + 2)))
        )
        for row in cells
    ]


def _transaction(tables: Tables, now_ms: int, width: int) -> Lines:
    it = tables["transaction"]["it"]
    if "unknown" in it:
        return [(Part("The coordinator does not know it: ", "warn"), Part(it["unknown"]))]
    participants = sorted(tables.get("participants", {}).values(), key=_participant_order)
    lines = [fact("State", *state(it)), fact("Who", *who(it))]
    lines += _times(it, now_ms)
    advice = _advice(it)
    if advice:
        lines += [NO_LINE, *advice]
    return [*lines, NO_LINE, *_participants(it, participants, now_ms, width)]


def _times(it: Row, now_ms: int) -> Lines:
    began_ms = it["opened_at_ms"] or (0 if it["status"] in ENDED else it["since_ms"])
    lines = [fact("Begun", time_text(began_ms))]
    if it["status"] in ENDED:
        took = precise(it["ended_at_ms"] - began_ms) if began_ms else "not known"
        lines += [fact("Ended", time_text(it["ended_at_ms"])), fact("Took", took)]
        return lines
    age = duration(now_ms - it["since_ms"])
    if not it["timeout_ms"]:
        return [*lines, fact("Age", f"{age}; it never expires")]
    left_ms = it["since_ms"] + it["timeout_ms"] - now_ms
    left = f"expires in {duration(left_ms)}" if left_ms > 0 else "its time has passed"
    return [*lines, fact("Age", f"{age} of {duration(it['timeout_ms'])}; {left}")]


def _advice(it: Row) -> Lines:
    """Return advice for the state that it is in."""
    if it["may_be_prepared"]:
        name = shlex.quote(it["transactional_id"])
        state_text = shlex.quote(it["prepared_state"])
        return [
            (
                Part("It may be prepared: look into the database.", "warn"),
                Part(" It never expires, and the database of its program decides."),
            ),
            (Part("If the table magnetar_transaction_state has this state, commit it:"),),
            (Part(f"  magnetar transactions complete {name} --state {state_text}"),),
            (Part("If it does not, and the program never comes back, abort it:"),),
            (Part(f"  magnetar transactions force-terminate --abort-prepared {name}"),),
        ]
    if it["unfinished"] and it["status"] not in ENDED and it["status"] != "OPEN":
        missing = f"{count(it['unfinished'])} of {counted(it['participants'], 'participant')}"
        return [
            (
                Part(f"{missing} have not ended yet.", "bad"),
                Part(" The coordinator asks them until they answer."),
            )
        ]
    if it["connected"] is False and it["status"] == "OPEN":
        return [
            (
                Part("The connection is gone through which it was begun.", "warn"),
                Part(" If the program does not come back, it expires at its deadline."),
            )
        ]
    return []


def standing(one: Row) -> str:
    """Return how a participant stands: one of URGENCY."""
    if one["state"] == "open" and not one["first_ms"]:
        return "unseen"
    return str(one["state"])


def _participant_order(one: Row) -> tuple[int, str, int, str]:
    urgency = URGENCY.index(standing(one))
    return urgency, one["topic"], one["partition"], one["subscription"]


def _participants(it: Row, rows: Sequence[Row], now_ms: int, width: int) -> Lines:
    missing = sum(standing(one) in ("refuses", "waits") for one in rows)
    mark = (Part("   "), Part(f"{count(missing)} missing", "bad")) if missing else ()
    lines = [heading(f"Participants: {count(len(rows))}", *mark)]
    if not rows:
        if it["status"] == "OPEN":
            text = "It has written to no partition yet, and acknowledged nothing."
        else:
            text = "They are not known: a coordinator forgets them at the end."
        return [*lines, (Part(text),)]
    began_ms = it["opened_at_ms"] or min((one["first_ms"] for one in rows), default=0)
    stop_ms = it["ended_at_ms"] or now_ms
    names = [_participant_name(one) for one in rows]
    ends = [_end(one, it) for one in rows]
    name_cells = max(map(len, names)) + 2
    bar_cells = width - name_cells - max(len(one.text) for one in ends) - 4
    for one, name, end in zip(rows, names, ends, strict=True):
        bar = ""
        if began_ms and bar_cells >= BAR_CELLS_MIN:
            bar = f"{written(one, began_ms, stop_ms, bar_cells)}  "
        lines.append((Part(f"{name:<{name_cells}}"), Part(bar), end))
        if one["error"]:
            lines.append((Part(f"  {one['error']}", "soft"),))
        if one["first_ms"]:
            first = _moment(one["first_ms"], it)
            last = clock_text(one["last_ms"])
            amount = counted(one["written"], "ack" if one["subscription"] else "message")
            lines.append((Part(f"  {amount}: first {first}, last {last}", "soft"),))
    if began_ms and bar_cells >= BAR_CELLS_MIN:
        span = f"Bars reach from {clock_text(began_ms)} to {clock_text(stop_ms)}"
        text = f"{span}; ━ is from its first write or ack to its last."
        lines += [NO_LINE, (Part(text, "soft"),)]
    return lines


def written(one: Row, began_ms: int, stop_ms: int, cells: int) -> str:
    """Return a bar of the time of a transaction, with the writes of a participant."""
    if not one["first_ms"]:
        return "·" * cells

    def cell(ms: int) -> int:
        done = (ms - began_ms) / max(1, stop_ms - began_ms)
        return min(cells - 1, max(0, int(done * cells)))

    first, last = cell(one["first_ms"]), cell(max(one["first_ms"], one["last_ms"]))
    return "·" * first + "━" * (last - first + 1) + "·" * (cells - last - 1)


def _participant_name(one: Row) -> str:
    acks = f", acks of {one['subscription']}" if one["subscription"] else ""
    return f"{one['topic']} / {one['partition']}{acks}"


def _end(one: Row, it: Row) -> Part:
    match standing(one):
        case "refuses":
            return Part("refuses the end", "bad")
        case "waits":
            return Part("has not ended yet", "bad")
        case "unseen":
            return Part("no write seen", "warn")
        case "open":
            return Part("open")
    committed = it["status"] in ("COMMITTED", "COMMITTING")
    return Part("committed", "good") if committed else Part("aborted", "good")


def _moment(ms: int, it: Row) -> str:
    if not it["opened_at_ms"]:
        return clock_text(ms)
    return f"{clock_text(ms)}, {precise(ms - it['opened_at_ms'])} after it was begun"


def _topic(tables: Tables, _: int, __: int) -> Lines:
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


def _subscription(tables: Tables, name: str) -> Lines:
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


def _group(tables: Tables, _: int, __: int) -> Lines:
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


def _server(tables: Tables, key: str, now_ms: int) -> Lines:
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


def _shard(tables: Tables, key: str, now_ms: int) -> Lines:
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


def losses(told: Row) -> Lines:
    """Return the losses of an abort, as magnetar_console.actions.loss tells them."""
    lines: Lines = [(Part("This cannot be undone.", "bad"),), NO_LINE]
    if told["topics"]:
        lines.append((Part("All that it has written is discarded:", "strong"),))
        lines += [(Part(f"  {place(one)}"),) for one in told["topics"]]
    if told["subscriptions"]:
        lines.append((Part("Messages that it has acknowledged come back:", "strong"),))
        lines += [(Part(f"  {place(one)}"),) for one in told["subscriptions"]]
    if not told["topics"] and not told["subscriptions"]:
        lines.append((Part("It has written and acknowledged nothing."),))
    name = told["transactional_id"] or told["client"] or "not known"
    program = f"{name} at {told['host']}" if told["host"] else name
    lines.append(NO_LINE)
    text = f"Its program ({program}) gets an error with its next send, ack or commit."
    return [*lines, (Part(text),)]


CONSEQUENCES: Final = {
    "drain": "It gets no shards until the drain is ended, also when it is started anew.",
    "end the drain of": "It may have shards again.",
    "rebalance": "All pins are taken back, and each shard moves to where it belongs.",
}


def moves(what: str, told: Row) -> Lines:
    """Return the moves of a drain or a rebalance, as magnetar_console.actions.plan tells them.

    Args:
        what: one of CHANGES of that module.
    """
    lines: Lines = [(Part(CONSEQUENCES[what]),), NO_LINE]
    found = told["moves"]
    if not found:
        return [*lines, (Part("No shard will move."),)]
    number = counted(len(found), "shard")
    lines.append((Part(f"{number} will move, one at a time; clients wait meanwhile:", "strong"),))
    shown = found[:MOVES_MAX]
    lines += [
        (Part(f"  {one['shard']}: from {one['before'] or 'no server'} to {one['after']}"),)
        for one in shown
    ]
    if len(found) > len(shown):
        lines.append((Part(f"  and {counted(len(found) - len(shown), 'more shard')}", "soft"),))
    return lines
