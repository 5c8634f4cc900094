"""The tables of `magnetar top`: columns, how they are sorted, and what stands above them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from magnetar_console.looks import view as views
from magnetar_console.looks.view import View
from magnetar_console.seen import Row, Table, Tables
from magnetar_console.terminal.words import (
    GROUP_STATES,
    Part,
    Parts,
    clock_text,
    count,
    counted,
    duration,
    joined,
    meter,
    pending,
    places,
    precise,
    state,
    who,
)

# A row, and the present time in milliseconds since the Unix epoch.
Cell: TypeAlias = Callable[[Row, int], Parts]
METER_CELLS: Final = 10
# A topic that was described earlier than this is marked as old.
OLD_MS: Final = 20_000
LATE: Final = float("inf")


class Column(NamedTuple):
    """A column.

    Attributes:
        cell: what it shows of a row.
        order: by what it sorts rows.
        width: in characters; 0: a share of what the others leave.
        share: how large that is, in proportion to the shares of others.
        fits: whether it becomes narrower when all its rows have room.
        right: whether it has numbers: at the right, and the largest first.
        from_width: in terminals that are narrower, it is left out.
    """

    title: str
    cell: Cell
    order: Callable[[Row], Any]
    width: int = 0
    right: bool = False
    from_width: int = 0
    fits: bool = False
    share: int = 1


class Tab(NamedTuple):
    """A table with a key of its own.

    Attributes:
        name: its title, and what its rows are called.
        view: where its rows come from, and table: which of its tables.
        sort: the column that it is sorted by at first, and whether the largest comes first.
        facts: numbers of the whole table.
        beside: a table whose rows of the same keys are added, under its name.
        about: all about the row under the cursor that has no room in the table.
        empty: how to get something to see.
    """

    name: str
    view: View
    table: str
    columns: tuple[Column, ...]
    sort: tuple[int, bool]
    facts: Callable[[Tables, int], Parts]
    about: Cell
    empty: str
    beside: str = ""

    def rows(self, tables: Tables) -> Table:
        """Return its rows, by key."""
        rows = tables.get(self.table, {})
        if not self.beside:
            return rows
        others = tables.get(self.beside, {})
        return {key: {**row, self.beside: others.get(key)} for key, row in rows.items()}


def matches(row: Row, text: str) -> bool:
    """Whether any text in a row contains this one; case does not matter."""
    wanted = text.strip().casefold()
    return not wanted or any(wanted in one.casefold() for one in _texts(row))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if value.get("may_be_prepared"):
            yield "may be prepared"
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from _texts(one)


def _text(name: str) -> Cell:
    return lambda row, _: (Part(row[name]),)


def _number(name: str) -> Cell:
    return lambda row, _: (Part(count(row.get(name))),)


def _by(name: str) -> Callable[[Row], Any]:
    return lambda row: row.get(name) or 0


def _by_text(name: str) -> Callable[[Row], Any]:
    return lambda row: row[name].casefold()


def txn_order(text: str) -> tuple[int, ...]:
    """Return by what a TxnID, or another name with numbers, is sorted."""
    return tuple(int(one) for one in text.replace("-", ":").split(":") if one.isdigit())


def _age(row: Row, now_ms: int) -> Parts:
    return (Part(duration(now_ms - row["since_ms"])),)


def _left(row: Row, now_ms: int) -> Parts:
    if not row["timeout_ms"]:
        return (Part("never"),)
    left_ms = row["since_ms"] + row["timeout_ms"] - now_ms
    if left_ms <= 0:
        return (Part("passed", "warn"),)
    return (Part(duration(left_ms), "warn" if left_ms * 4 < row["timeout_ms"] else ""),)


def _meter(row: Row, now_ms: int) -> Parts:
    if not row["timeout_ms"]:
        return (Part("-", "soft"),)
    return (Part(meter((now_ms - row["since_ms"]) / row["timeout_ms"], METER_CELLS)),)


def _deadline(row: Row) -> float:
    return row["since_ms"] + row["timeout_ms"] if row["timeout_ms"] else LATE


def _where(row: Row, _: int) -> Parts:
    found = places(row)
    return (Part(found),) if found else (Part("nothing yet", "soft"),)


def _transaction_facts(tables: Tables, now_ms: int) -> Parts:
    rows = tables.get("transactions", {}).values()
    ending = sum(one["status"] != "OPEN" for one in rows)
    prepared = sum(one["may_be_prepared"] for one in rows)
    facts = [Part(f"Open {count(len(rows) - ending)}", "strong")]
    if rows:
        oldest = min(one["since_ms"] for one in rows)
        facts.append(Part(f"   Oldest {duration(now_ms - oldest)}"))
    facts += [Part("   "), Part(f"May be prepared {count(prepared)}", "warn" if prepared else "")]
    facts.append(Part(f"   Ending {count(ending)}"))
    return tuple(facts)


def _about_transaction(row: Row, _: int) -> Parts:
    found = places(row) or "nothing written yet"
    parts = [Part(f"{row['id']}  ", "strong"), *who(row), Part("  →  ", "soft"), Part(found)]
    if row["as_of_ms"]:
        told = f"as of {clock_text(row['as_of_ms'])}: its coordinator is away"
        parts += [Part("  "), Part(told, "bad")]
    elif row["may_be_prepared"]:
        parts += [Part("  "), Part("look into its database", "warn")]
    if row["unfinished"] and row["status"] != "OPEN":
        missing = f"{row['unfinished']} of {counted(row['participants'], 'participant')}"
        parts += [Part("  "), Part(f"{missing} have not ended yet", "bad")]
    return tuple(parts)


def _ended_facts(tables: Tables, _: int) -> Parts:
    rows = tables.get("ended", {}).values()
    committed = sum(one["status"] == "COMMITTED" for one in rows)
    return (
        Part("Ended last", "strong"),
        Part(f"   Committed {count(committed)}   Aborted {count(len(rows) - committed)}"),
    )


def _about_ended(row: Row, _: int) -> Parts:
    name = Part(f"{row['id']}  ", "strong")
    if not row["participants"]:
        return (name, *who(row), Part("  was not seen while it was open", "soft"))
    return (name, *who(row), Part("  →  ", "soft"), Part(places(row)))


def _took(row: Row, _: int) -> Parts:
    began = row["opened_at_ms"]
    return (Part(precise(row["ended_at_ms"] - began) if began else "-"),)


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


TRANSACTIONS_TAB: Final = Tab(
    "Transactions",
    View(views.TRANSACTIONS),
    "transactions",
    (
        Column("TRANSACTION", _text("id"), lambda row: txn_order(row["id"]), 20, fits=True),
        Column("WHO", lambda row, _: who(row), lambda row: who(row)[0].text.casefold()),
        Column("STATE", lambda row, _: state(row), lambda row: state(row)[0].text, 15, fits=True),
        Column("AGE", _age, lambda row: -row["since_ms"], 11, right=True),
        Column("EXPIRES IN", _left, _deadline, 11, right=True),
        Column("OF ITS TIME", _meter, _deadline, 12, from_width=110),
        Column("WHERE", _where, lambda row: places(row).casefold(), share=2),
    ),
    (3, True),
    _transaction_facts,
    _about_transaction,
    "No transaction is open. To see one, run this in another terminal:\n\n"
    "  magnetar topics create integers --exist-ok\n"
    "  seq 1000000 | magnetar produce integers --transactional",
)
ENDED_TAB: Final = Tab(
    "Ended",
    View(views.TRANSACTIONS),
    "ended",
    (
        Column("TRANSACTION", _text("id"), lambda row: txn_order(row["id"]), 20, fits=True),
        Column("OUTCOME", lambda row, _: state(row), lambda row: row["status"], 10),
        Column("WHO", lambda row, _: who(row), lambda row: who(row)[0].text.casefold()),
        Column("ENDED AGO", _age, lambda row: -row["since_ms"], 12, right=True),
        Column("TOOK", _took, lambda row: row["ended_at_ms"] - row["opened_at_ms"], 12, right=True),
        Column("WHERE", _where, lambda row: places(row).casefold(), share=2),
    ),
    (3, False),
    _ended_facts,
    _about_ended,
    "No transaction has ended that a coordinator remembers.",
)
TOPICS_TAB: Final = Tab(
    "Topics",
    View(views.TOPICS),
    "topics",
    (
        Column("TOPIC", _topic, _by_text("name")),
        Column("PARTITIONS", _number("partitions"), _by("partitions"), 11, right=True),
        Column("MESSAGES", _number("messages"), _by("messages"), 13, right=True),
        Column("MESSAGES/S", _number("per_s"), _by("per_s"), 11, right=True),
        Column("OPEN TXNS", _number("open"), _by("open"), 10, right=True),
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
        Column("SUBSCRIPTION", _text("name"), _by_text("name")),
        Column("TOPIC", _text("topic"), _by_text("topic")),
        Column("BACKLOG", _number("backlog"), _by("backlog"), 13, right=True),
        Column("PENDING_ACK", _pending, _by("pending"), 12, right=True),
        Column("UNACKED", _number("unacked"), _by("unacked"), 10, right=True),
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
        Column("GROUP", _text("name"), _by_text("name")),
        Column("STATE", _group_state, _by_text("state"), 11),
        Column("MEMBERS", _number("members"), _by("members"), 8, right=True),
        Column("PARTITIONS", _number("partitions"), _by("partitions"), 11, right=True),
        Column("GENERATION", _number("generation"), _by("generation"), 11, right=True),
        Column("BACKLOG", _number("lag"), _by("lag"), 13, right=True),
    ),
    (0, False),
    _group_facts,
    _about_group,
    "There are no groups. A group is made when its first member joins, by\n\n"
    '  client.consumer_group("billing", "orders")',
)
SERVERS_TAB: Final = Tab(
    "Servers",
    View(views.CLUSTER),
    "servers",
    (
        Column("SERVER", _text("address"), _by_text("address")),
        Column("KIND", _text("kind"), _by_text("kind"), 11),
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
        Column("SHARD", _text("name"), _shard_order, 16),
        Column("OWNER", _owner, _by_text("server")),
        Column("EPOCH", _number("epoch"), _by("epoch"), 8, right=True),
        Column("OWNER SINCE", _moved, _by("since_ms"), 17),
    ),
    (0, False),
    _shard_facts,
    _about_shard,
    "No broker has told where the shards are.",
)
TABS: Final = (
    *(TRANSACTIONS_TAB, ENDED_TAB, TOPICS_TAB, SUBSCRIPTIONS_TAB),
    *(GROUPS_TAB, SERVERS_TAB, SHARDS_TAB),
)
