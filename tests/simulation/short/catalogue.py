"""The parts of short histories: scenarios by name, profiles, and the meaning of every step."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.short import (
    acks,
    chains,
    consumers,
    consuming,
    crews,
    damage,
    derived,
    hand_members,
    hasty,
    ledgers,
    made_anew,
    members,
    owners,
    producers,
    producing,
    several,
    strangers,
    topic_lives,
    tricks,
)
from tests.simulation.short.draft import Draft
from tests.simulation.short.fault_drawing import draw_faults, spread_faults
from tests.simulation.short.script import Script
from tests.simulation.short.settings import draw_settings
from tests.simulation.short.world import Verb

Scenario = Callable[[Draft], None]

VERBS: dict[str, Verb] = {
    **producing.VERBS,
    **chains.VERBS,
    **consuming.VERBS,
    **strangers.VERBS,
    **members.VERBS,
    **derived.VERBS,
    **crews.VERBS,
    **acks.VERBS,
    **tricks.VERBS,
    **damage.VERBS,
    **made_anew.VERBS,
    **ledgers.VERBS,
    **hand_members.VERBS,
    **several.VERBS,
    **topic_lives.VERBS,
    **hasty.VERBS,
}
SCENARIOS: dict[str, Scenario] = {
    "transactions": producers.transactions,
    "unheard": producers.unheard,
    "by turns": producers.by_turns,
    "idle producer": producers.idle_producer,
    "behind": producers.behind,
    "amid": producers.amid,
    "late refusals": producers.late_refusals,
    "seeks": consumers.seeks,
    "chains": chains.chains,
    "deep chain": chains.deep_chain,
    "in order": consumers.in_order,
    "idle client": consumers.idle_client,
    "crowd": consumers.crowd,
    "keys held": consumers.keys_held,
    "keys moving": consumers.keys_moving,
    "over": strangers.over,
    "strangers": strangers.strangers,
    "identities": members.identities,
    "sequences": members.sequences,
    "coordinator away": members.coordinator_away,
    "large messages": derived.large_messages,
    "dead letters": derived.dead_letters,
    "crews": crews.crews,
    "acks by hand": acks.by_hand,
    "hand made": tricks.hand_made,
    "lost stores": tricks.lost_stores,
    "damaged rows": damage.damaged_rows,
    "made anew": made_anew.made_anew,
    "ledgers": ledgers.ledgers,
    "members by hand": hand_members.hand_members,
    "several brokers": several.several_brokers,
    "owners that change": owners.owners_that_change,
    "hasty": hasty.hasty,
}
# Costly ones are rarer.
WEIGHTS = {"hand made": 2.0, "transactions": 2.0, "deep chain": 0.2}
# Of histories of any scenario, so many have several brokers.
SEVERAL_BROKERS_SHARE = 0.25
# And in so many, shards have owners that change.
OWNERS_SHARE = 0.1
# Of all histories whose servers have disks: their brokers confirm plain messages before they sync.
OS_SHARE = 0.12
# One scenario each, by its name; and all of them by turns.
PROFILES = ("any", *SCENARIOS)


def make_script(seed: int | str, profile: str = "any") -> Script:
    """Write the history of a seed.

    Args:
        profile: "any", or the name of a scenario.
    """
    random = Random(f"short {profile} {seed}")
    draft = Draft(random)
    if profile == "any":
        weights = [WEIGHTS.get(name, 1.0) for name in SCENARIOS]
        names = random.choices(list(SCENARIOS), weights, k=random.choice((1, 1, 2)))
    else:
        names = [profile]
    names = list(dict.fromkeys(names))
    draft.scenarios = tuple(names)
    for name in names:
        SCENARIOS[name](draft)
    brokers = Random(f"brokers {profile} {seed}")
    of_any = profile == "any" and draft.broker_count == 1
    if of_any and brokers.random() < SEVERAL_BROKERS_SHARE:
        draft.broker_count = brokers.choice((2, 2, 3))
        spread_faults(draft, brokers)
    of_owners = Random(f"owners {profile} {seed}")
    if profile == "any" and "owners" not in draft.flags and of_owners.random() < OWNERS_SHARE:
        owners.with_owners(draft, of_owners, faults=of_owners.choice((0, 1, 1, 2)))
    draft.flags["probe"] = draft.topics.get("mix") == 2 and random.random() < 0.2
    draft.flags["read_seconds_max"] = random.choice((0.0, 0.0, 0.0, 0.002, 0.02))
    draw_faults(draft, random.choice((0, 1, 1, 2, 3)))
    draw_settings(draft)
    of_os = Random(f"durability {profile} {seed}")
    if "owners" not in draft.flags and of_os.random() < OS_SHARE:
        draft.settings["broker"]["durability"] = "os"
        draft.settings["broker"]["sync_interval_ms"] = of_os.choice((5, 100, 1_000))
    return draft.finish(str(seed), profile, tuple(names))
