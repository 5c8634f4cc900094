"""All about a transaction: its times, and its participants, what is missing first. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from magnetar_console.seen import Row, Tables
from magnetar_console.terminal.lines import NO_LINE, Lines, fact, heading
from magnetar_console.terminal.words import (
    Part,
    clock_text,
    count,
    counted,
    duration,
    precise,
    state,
    time_text,
    who,
)

ENDED: Final = ("COMMITTED", "ABORTED")

BAR_CELLS_MIN: Final = 8

# How a participant stands, the most urgent first.
URGENCY: Final = ("refuses", "waits", "unseen", "open", "ended")


def transaction_lines(tables: Tables, now_ms: int, width: int) -> Lines:
    """Return all about a transaction."""
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
