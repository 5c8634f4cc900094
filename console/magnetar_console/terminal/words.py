"""Numbers, times and names as text for people, as static/format.js and parts.js write them. Pure.

A text is made of parts. Each has a kind, which says how it looks: "good", "warn" and "bad" for
marks, "soft" for what matters less, "strong" for headings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from magnetar_console.seen import Row


class Part(NamedTuple):
    """A piece of text, and how it looks."""

    text: str
    kind: str = ""


Parts: TypeAlias = tuple[Part, ...]

STATES: Final = {
    "OPEN": Part("open"),
    "COMMITTING": Part("committing", "warn"),
    "ABORTING": Part("aborting", "warn"),
    "COMMITTED": Part("committed", "good"),
    "ABORTED": Part("aborted", "bad"),
}
GROUP_STATES: Final = {
    "EMPTY": Part("no members", "warn"),
    "STABLE": Part("stable", "good"),
    "REBALANCING": Part("rebalancing", "warn"),
}


def plain(text: str) -> str:
    """Return a text without characters that a terminal would obey, or that reorder the line."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def count(number: int | None) -> str:
    """Return a number with separators; "-": it is not known."""
    return "-" if number is None else f"{number:,}"


def counted(number: int, one: str) -> str:
    """Return "1 message", "2 messages"."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def duration(ms: int) -> str:
    """Return a time in milliseconds as "9.9 s", "3 min 20 s", "5 h 20 min", "3 d 4 h"."""
    seconds = max(0, ms) / 1_000
    if seconds < 10:
        return f"{int(seconds * 10) / 10:.1f} s"
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    hours = minutes // 60
    if hours < 48:
        return f"{hours} h {minutes % 60} min"
    return f"{hours // 24} d {hours % 24} h"


def precise(ms: int) -> str:
    """Return a time in milliseconds; a short one to the millisecond."""
    return f"{max(0, ms)} ms" if ms < 1_000 else duration(ms)


def clock_text(ms: int) -> str:
    """Return a moment in milliseconds since the Unix epoch as "17:05:09 UTC"."""
    return f"{datetime.fromtimestamp(ms / 1_000, UTC):%H:%M:%S} UTC" if ms else "not known"


def time_text(ms: int) -> str:
    """Return a moment in milliseconds since the Unix epoch, with its day."""
    return f"{datetime.fromtimestamp(ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC" if ms else "not known"


def joined(parts: Iterable[str], count_max: int = 5) -> str:
    """Return the first few names; "-": there are none."""
    names = list(parts)
    more = " and more" if len(names) > count_max else ""
    return ", ".join(names[:count_max]) + more or "-"


def state(one: Row) -> Parts:
    """Return the state of a transaction; "was": its coordinator is away."""
    if one["may_be_prepared"]:
        return (Part("may be prepared", "warn"),)
    if one["as_of_ms"]:
        return (Part(f"was {one['status'].lower()}", "bad"),)
    found = STATES.get(one["status"], Part(one["status"].lower()))
    return (found, Part(", two-phase")) if one["two_phase"] else (found,)


def who(one: Row) -> Parts:
    """Return whose a transaction is: the most telling name first."""
    names = [one[name] for name in ("transactional_id", "principal", "client") if one[name]]
    first = names[0] if names else "not known"
    more = []
    if one["client"] and first != one["client"]:
        more.append(one["client"])
    if one["principal"] and first != one["principal"]:
        more.append(f"as {one['principal']}")
    if one["host"]:
        more.append(f"at {one['host']}")
    parts = [Part(first), *([Part(" " + ", ".join(more), "soft")] if more else [])]
    if one["connected"] is False:
        parts += [Part(" "), Part("its connection is gone", "warn")]
    return tuple(parts)


def places(one: Mapping[str, Any]) -> str:
    """Return where a transaction has written and acknowledged."""
    return "; ".join(place(part) for part in (*one["topics"], *one["subscriptions"]))


def place(one: Mapping[str, Any]) -> str:
    """Return partitions as "invoices / 0, 2", acks as "acks of bill: purchases / 3"."""
    if "more" in one:
        return f"and {counted(one['more'], 'more name')}"
    numbers = ", ".join(map(str, one["partitions"]))
    if one["count"] > len(one["partitions"]):
        numbers += ", …"
    acks = f"acks of {one['subscription']}: " if one["subscription"] else ""
    return f"{acks}{one['topic']} / {numbers}"


def pending(one: Row) -> str:
    """Return in which transactions the acks of a subscription wait."""
    if not one["pending"]:
        return "none"
    return f"{counted(one['pending'], 'message')} in {joined(one['pending_txns'])}"


def meter(done: float, width: int) -> str:
    """Return a bar that is filled from 0 to 1."""
    filled = round(width * min(1.0, max(0.0, done)))
    return "█" * filled + "░" * (width - filled)


def width_of(parts: Sequence[Part]) -> int:
    """Return how many characters parts have."""
    return sum(len(one.text) for one in parts)
