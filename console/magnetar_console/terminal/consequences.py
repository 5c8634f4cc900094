"""Consequences of an action, as text, before it is confirmed. Pure."""

from __future__ import annotations

from typing import Final

from magnetar_console.seen import Row
from magnetar_console.terminal.lines import NO_LINE, Lines
from magnetar_console.terminal.words import Part, counted, place

MOVES_MAX: Final = 12

CONSEQUENCES: Final = {
    "drain": "It gets no shards until the drain is ended, also when it is started anew.",
    "end the drain of": "It may have shards again.",
    "rebalance": "All pins are taken back, and each shard moves to where it belongs.",
}


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
