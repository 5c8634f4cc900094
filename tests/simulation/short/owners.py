"""Owners that change: whatever clients do, while shards move, and members die, sleep and wake."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.servers import broker_names, coordinator_names
from tests.simulation.short import (
    acks,
    chains,
    consumers,
    crews,
    derived,
    hand_members,
    ledgers,
    members,
    producers,
    several,
    strangers,
    tricks,
)
from tests.simulation.short.draft import Draft
from tests.simulation.short.fault_drawing import spread_faults

# Without a renewal for so long a lease has ended.
LEASE_LOST_SECONDS = (1.3, 3.0)
# What clients do meanwhile, with how often it is drawn.
PARTS: dict[Any, int] = {
    producers.transactions: 4,
    producers.unheard: 2,
    producers.by_turns: 2,
    producers.late_refusals: 1,
    consumers.in_order: 2,
    consumers.crowd: 2,
    consumers.seeks: 1,
    consumers.keys_held: 1,
    consumers.keys_moving: 1,
    consumers.idle_client: 1,
    chains.chains: 1,
    acks.by_hand: 1,
    members.identities: 2,
    members.sequences: 1,
    ledgers.ledgers: 2,
    crews.crews: 1,
    hand_members.hand_members: 1,
    strangers.over: 1,
    derived.dead_letters: 1,
    several.several_brokers: 2,
    tricks.watermarks: 6,
}
# What befalls owners, with how often it is drawn.
OWNER_FAULTS = {
    "member killed": 4,
    "member frozen": 9,
    "member stopped": 2,
    "member joins": 2,
    "drained": 2,
    "pinned": 4,
    "directory away": 1,
    "directory cut": 4,
    "store cut": 2,
    "renewal late": 2,
}


def owners_that_change(draft: Draft) -> None:
    """Some of everything, on shards that move."""
    random = draft.random
    parts = random.choices(list(PARTS), list(PARTS.values()), k=random.choice((1, 1, 2)))
    for part in dict.fromkeys(parts):
        part(draft)
    if draft.broker_count == 1:
        draft.broker_count = random.choice((1, 2, 2, 3))
        spread_faults(draft, random)
    draft.coordinator_count = max(draft.coordinator_count, random.choice((1, 1, 2)))
    with_owners(draft, random, faults=random.choice((1, 2, 3, 4)))


def with_owners(draft: Draft, random: Random, *, faults: int) -> None:
    """Let shards have owners that change, and change."""
    draft.flags["owners"] = {
        "broker_members": random.choice((2, 2, 3)),
        "coordinator_members": random.choice((1, 2, 2)),
        "loss": random.choice((0.0, 0.0, 0.02, 0.1)),
        "lag_seconds_max": random.choice((0.01, 0.1, 1.0)),
        "settling_ms": random.choice((0, 200, 1_000)),
    }
    steps = [one.number for one in draft.steps if not one.closing]
    for _ in range(faults if steps else 0):
        kind = random.choices(list(OWNER_FAULTS), list(OWNER_FAULTS.values()))[0]
        draft.fault(
            kind,
            step=random.choice(steps),
            delay_s=random.choice((0.0, random.uniform(0.0, 0.05), random.uniform(0.0, 1.0))),
            **_arguments(draft, random, kind),
        )


def trouble_seconds(random: Random) -> float:
    """Shorter than what a lease forgives, about as long, or longer."""
    return random.choice(
        (random.uniform(0.05, 0.6), random.uniform(0.6, 1.3), random.uniform(1.3, 3.0))
    )


def _arguments(draft: Draft, random: Random, kind: str) -> dict[str, Any]:
    names = broker_names(draft.broker_count)
    names += coordinator_names(draft.coordinator_count)
    server = {"server": random.choice(names)}
    brief = {"seconds": round(trouble_seconds(random), 3)}
    match kind:
        case "member killed":
            down_s = round(random.choice((0.01, random.uniform(0.1, 2.0))), 3)
            return {**server, "down_s": down_s, "for_good": random.random() < 0.4}
        case "member stopped":
            return {**server, "down_s": round(random.uniform(0.2, 3.0), 3)}
        case "member joins":
            return {"of": random.choice(("broker", "broker", "coordinator"))}
        case "member frozen":
            return {**server, **brief, "asking": random.random() < 0.4}
        case "pinned":
            return {**server, **brief, "member": random.randrange(3)}
        case "directory away":
            return brief
        case "renewal late":
            return {**server, "seconds": round(random.uniform(*LEASE_LOST_SECONDS), 3)}
        case "directory cut":
            return {**server, **brief, "direction": random.choice(("to", "back", "both"))}
        case _:
            return {**server, **brief}
