"""Faults that any history may have: which, when, and whom they strike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.servers import broker_names, coordinator_names
from tests.simulation.short.draft import Draft

# Kinds that any history may have, with how often each is drawn.
COMMON = {
    "crash": 5,
    "power cut": 3,
    "client crash": 2,
    "link": 4,
    "half-open": 3,
    "congestion": 1,
    "partition": 2,
    "delays": 1,
    "copies": 4,
    "disk failure": 1,
    "disk stall": 1,
    "disk full": 1,
    "clock jump": 1,
}


def spread_faults(draft: Draft, random: Random, *, since: int = 0) -> None:
    """What was to strike the only broker strikes any of them.

    Args:
        since: of the faults behind so many.
    """
    brokers = broker_names(draft.broker_count)
    for place in range(since, len(draft.faults)):
        fault = draft.faults[place]
        if fault.arguments.get("server") == "broker":
            arguments = {**fault.arguments, "server": random.choice(brokers)}
            draft.faults[place] = replace(fault, arguments=arguments)


def draw_faults(draft: Draft, count: int, likely: Mapping[str, float]) -> None:
    """Some of what may go wrong. Args: likely: how likely each kind is."""
    random = draft.random
    steps = [one.number for one in draft.steps if not one.closing]
    if not steps:
        return
    clients = list(dict.fromkeys(one.client for one in draft.steps))
    brokers = broker_names(draft.broker_count)
    servers = [*brokers, *coordinator_names(draft.coordinator_count)]
    for _ in range(count):
        kind = random.choices(list(likely), list(likely.values()))[0]
        some = brokers[0] if len(brokers) == 1 else random.choice(brokers)
        server = random.choice((some, random.choice(servers)))
        # A coordinator is each broker's client, and the others are the first broker's.
        others = [*clients, "coordinator"] if server in brokers else clients
        if server == "broker":
            others += brokers[1:]
        ends = {"client": random.choice(others), "server": server}
        draft.fault(
            kind,
            step=random.choice(steps),
            delay_s=random.choice((0.0, random.uniform(0.0, 0.01), random.uniform(0.0, 0.3))),
            **_arguments(kind, random, ends, brokers, clients),
        )


def _arguments(
    kind: str, random: Random, ends: dict[str, str], brokers: list[str], clients: list[str]
) -> dict[str, Any]:
    server = {"server": ends["server"]}
    brief = round(random.choice((random.uniform(0.02, 0.3), random.uniform(0.3, 3.0))), 3)
    match kind:
        case "crash":
            return {
                **server,
                "power_loss": random.random() < 0.7,
                "in_write_s": random.choice((0.0, 0.01, 0.1)),
                "down_s": round(random.choice((0.01, random.uniform(0.05, 2.0))), 3),
            }
        case "power cut":
            down_s = round(random.choice((0.01, random.uniform(0.05, 2.0))), 3)
            return {**server, "answers": random.choice((0, 0, 1, 2, 5)), "down_s": down_s}
        case "client crash":
            return {"client": random.choice(clients), "down_s": round(random.uniform(0.01, 0.5), 3)}
        case "link":
            return {**ends, "late": random.random() < 0.5}
        case "half-open":
            way = random.choice(("requests", "answers", "both"))
            return {**ends, "way": way, "seconds": brief}
        case "congestion" | "partition":
            return {**ends, "seconds": brief}
        case "delays":
            return {"factor": random.choice((5.0, 50.0)), "seconds": brief}
        case "copies":
            late_s = random.choice((0.0, 0.05, 1.0))
            return {**ends, "late_s": late_s, "count": random.randint(1, 4)}
        case "disk failure":
            return {**server, "what": random.choice(("write", "sync"))}
        case "disk stall":
            return {**server, "sync_s": random.choice((0.02, 0.3)), "seconds": brief}
        case "disk full":
            return {**server, "seconds": brief}
        case _:
            node = random.choice([*brokers, "coordinator", *clients])
            return {"node": node, "jump_ms": random.randint(-(10**7), 10**7)}
