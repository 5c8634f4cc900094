"""The age of rows that are shown, and the number of servers that are away. Pure."""

from __future__ import annotations

from typing import Final

from magnetar_console.seen import Picture
from magnetar_console.terminal.words import Part, Parts, clock_text, count, duration

# Rows that are older than this many periods, and than LATE_MS, are marked as old.
LATE_PERIODS: Final = 3
LATE_MS: Final = 5_000
PROBLEMS_MAX: Final = 3


def freshness(picture: Picture | None, now_ms: int, period_s: float, *, paused: bool) -> Parts:
    """Return whether rows are live, and their age if they are not."""
    if picture is None:
        return (Part("asking", "soft"),)
    age_ms = now_ms - picture.as_of_ms
    seen = f"as of {duration(age_ms)} ago" if picture.as_of_ms else "nothing seen yet"
    if paused:
        return (Part("paused", "warn"), Part(f" at {clock_text(now_ms)}"))
    if picture.error:
        return (Part("away", "bad"), Part(f" {seen}"))
    if age_ms > max(LATE_MS, LATE_PERIODS * period_s * 1_000):
        return (Part("late", "warn"), Part(f" {seen}"))
    return (Part("live", "good"), Part(f" {clock_text(now_ms)}"))


def servers_away(cluster: Picture | None) -> Parts:
    """Return how many servers do not answer; nothing if all do."""
    servers = [] if cluster is None else list(cluster.tables.get("servers", {}).values())
    away = sum(one["answers"] is False for one in servers)
    if not away:
        return ()
    names = f"{count(away)} of {count(len(servers))} servers away"
    return (Part(names, "bad"),)


def problems(picture: Picture | None) -> list[Parts]:
    """Return the problems of the shown rows, a line for each."""
    if picture is None:
        return []
    found: list[Parts] = []
    if picture.error:
        found.append((Part("No answer:", "bad"), Part(f" {picture.error}")))
    found += [(Part("Note:", "warn"), Part(f" {one}")) for one in picture.problems]
    if len(found) > PROBLEMS_MAX:
        more = f"and {count(len(found) - PROBLEMS_MAX)} more"
        found[PROBLEMS_MAX:] = [(Part(more, "soft"),)]
    return found
