"""The tables of transactions, and what stands above them. Pure."""

from __future__ import annotations

from typing import Final

from magnetar_console.looks import view as views
from magnetar_console.looks.view import View
from magnetar_console.seen import Row, Tables
from magnetar_console.terminal.columns import LATE, Column, Tab, text, txn_order
from magnetar_console.terminal.words import (
    Part,
    Parts,
    clock_text,
    count,
    counted,
    duration,
    meter,
    places,
    precise,
    state,
    who,
)

METER_CELLS: Final = 10


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


def _wrote(row: Row, _: int) -> Parts:
    found = places(row)
    return (Part(found),) if found else (Part("not known", "soft"),)


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
        return (name, *who(row), Part("  its coordinator no longer knows more", "soft"))
    return (name, *who(row), Part("  →  ", "soft"), Part(places(row)))


def _took(row: Row, _: int) -> Parts:
    began = row["opened_at_ms"]
    return (Part(precise(row["ended_at_ms"] - began) if began else "-"),)


TRANSACTIONS_TAB: Final = Tab(
    "Transactions",
    View(views.TRANSACTIONS),
    "transactions",
    (
        Column("TRANSACTION", text("id"), lambda row: txn_order(row["id"]), 20, fits=True),
        Column("WHO", lambda row, _: who(row), lambda row: who(row)[0].text.casefold()),
        Column("STATE", lambda row, _: state(row), lambda row: state(row)[0].text, 15, fits=True),
        Column("AGE", _age, lambda row: -row["since_ms"], 11, right=True),
        Column("EXPIRES IN", _left, _deadline, 11, right=True),
        Column("OF ITS TIME", _meter, _deadline, 12, from_width=110),
        Column("WHERE", _where, lambda row: places(row).casefold()),
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
        Column("TRANSACTION", text("id"), lambda row: txn_order(row["id"]), 20, fits=True),
        Column("OUTCOME", lambda row, _: state(row), lambda row: row["status"], 10),
        Column("WHO", lambda row, _: who(row), lambda row: who(row)[0].text.casefold()),
        Column("ENDED AGO", _age, lambda row: -row["since_ms"], 12, right=True),
        Column("TOOK", _took, lambda row: row["ended_at_ms"] - row["opened_at_ms"], 12, right=True),
        Column("WHERE", _wrote, lambda row: places(row).casefold()),
    ),
    (3, False),
    _ended_facts,
    _about_ended,
    "No transaction has ended that a coordinator remembers.",
)
