"""Drains of servers, their ends, and rebalances, as plans."""

from __future__ import annotations

from typing import Any, Final

from magnetar import Client
from magnetar_console import actions
from magnetar_console.asks.plans import Plan

_CONSEQUENCES: Final = {
    actions.DRAIN: "It gets no shards until the drain is ended, also when it is started anew.",
    actions.END_DRAIN: "It may have shards again.",
    actions.REBALANCE: "All pins of shards are taken back, and each moves to where it belongs.",
}
_BUTTONS: Final = {
    actions.DRAIN: "Drain it",
    actions.END_DRAIN: "End the drain",
    actions.REBALANCE: "Rebalance",
}


async def plan_moves(client: Client, body: dict[str, Any]) -> Plan:
    """Plan to drain a server, to end that, or to rebalance.

    Args:
        body: as of `actions.plan`.
    Raises:
        InvalidArgument: the request is not complete, or no other server could take the shards.
        MagnetarError: the servers refuse.
    """
    told = (await actions.plan(client, body))["moves"]
    what, server = body["what"], f"{body.get('kind', '')} {body.get('member', '')}".strip()
    shards = "shard" if len(told) == 1 else "shards"
    summary = "No shard will move."
    if told:
        summary = f"{len(told):,} {shards} will move, one at a time; its clients wait meanwhile:"

    async def work() -> str:
        moves = await actions.moves_of(client, body, dry_run=False)
        return f"{len(moves):,} {'shard is' if len(moves) == 1 else 'shards are'} to move."

    question = f"{what[0].upper()}{what[1:]} {server}?"
    if what == actions.REBALANCE:
        question = "Rebalance the cluster?"
    return Plan(
        question,
        (
            _CONSEQUENCES[what],
            summary,
            *(
                f"{one['shard']}: from {one['before'] or 'no server'} to {one['after']}"
                for one in told
            ),
        ),
        _BUTTONS[what],
        f"asks to {what} {server}".strip(),
        work,
    )
