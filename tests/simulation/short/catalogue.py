"""The parts of short histories: scenarios by name, profiles, and the meaning of every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from tests.simulation.short import (
    acks,
    chains,
    consumers,
    consuming,
    crews,
    damage,
    derived,
    growing,
    hand_members,
    hasty,
    jobs,
    ledgers,
    lookers,
    made_anew,
    members,
    owners,
    producers,
    producing,
    several,
    strangers,
    topic_lives,
    tricks,
    workers,
)
from tests.simulation.short.draft import Draft
from tests.simulation.short.fault_drawing import COMMON, draw_faults, spread_faults
from tests.simulation.short.rules import RULES
from tests.simulation.short.script import Script
from tests.simulation.short.settings import draw_settings
from tests.simulation.world import Verb

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
    **workers.VERBS,
    **jobs.VERBS,
    **lookers.VERBS,
    **growing.VERBS,
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
    tricks.MIXED_RUNS: tricks.mixed_runs,
    "damaged rows": damage.damaged_rows,
    "made anew": made_anew.made_anew,
    "ledgers": ledgers.ledgers,
    "members by hand": hand_members.hand_members,
    "several brokers": several.several_brokers,
    "owners that change": owners.owners_that_change,
    "hasty": hasty.hasty,
    "workers": workers.workers,
    "group workers": workers.group_workers,
    "jobs": jobs.jobs,
    "terminations": jobs.terminations,
    "lookers": lookers.lookers,
    "surveyors": lookers.surveyors,
    "growing topics": growing.growing_topics,
}
# Costly ones are rarer.
WEIGHTS = {
    "hand made": 2.0,
    "transactions": 2.0,
    "deep chain": 0.2,
    tricks.MIXED_RUNS: 0.0,
    "growing topics": 0.0,
}
# Of all histories whose servers have disks: their brokers confirm plain messages before they sync.
OS_SHARE = 0.12


@dataclass(frozen=True)
class Profile:
    """What a history is made of.

    Attributes:
        parts: scenarios with how likely each is to be drawn.
        counts: how many are drawn, one of these; once each, unless they may repeat.
        always: scenarios that are there in any case.
        fault_counts: how many faults are drawn, one of these, beside those of scenarios.
        faults: which, and how likely each is.
        several_brokers, owners: in so large a share there are several brokers, and owners that
            change.
        probes: in so large a share it is tried at the end what an open transaction delays.
    """

    parts: Mapping[str, float] = field(default_factory=dict)
    counts: tuple[int, ...] = (1,)
    repeats: bool = False
    always: tuple[str, ...] = ()
    fault_counts: tuple[int, ...] = (0, 1, 1, 2, 3)
    faults: Mapping[str, float] = field(default_factory=lambda: COMMON)
    several_brokers: float = 0.0
    owners: float = 0.0
    probes: float = 0.2


# A copy of a run may take effect after it has failed.
RUN_FAULTS = {"crash": 3.0, "power cut": 4.0, "disk stall": 2.0, "link": 1.0}
# All that a profile can have.
PARTS = {**SCENARIOS, **{f"rule {letter}": rule.write for letter, rule in RULES.items()}}
# What cannot be beside anything: a disk that loses rows, a stack that has no room, a broker that
# loses what it has confirmed. Topics that grow have a profile of their own.
ALONE = (
    "damaged rows",
    "deep chain",
    "owners that change",
    "growing topics",
    tricks.MIXED_RUNS,
)
# Some of everything beside everything else, for long: 100 transactions on the same topics.
LONG = Profile(
    parts={
        name: {"transactions": 6.0, "hand made": 4.0, "ledgers": 2.0, "crews": 2.0}.get(name, 1.0)
        for name in SCENARIOS
        if name not in ALONE
    },
    counts=(16, 20, 24),
    repeats=True,
    always=("lookers", "surveyors", "workers", "transactions"),
    fault_counts=(20, 30, 40),
    several_brokers=0.4,
    owners=0.2,
    probes=1.0,
)
PROFILES = {
    "any": Profile(
        parts={name: WEIGHTS.get(name, 1.0) for name in SCENARIOS},
        counts=(1, 1, 2),
        several_brokers=0.25,
        owners=0.1,
    ),
    **{name: Profile(always=(name,)) for name in SCENARIOS},
    "growing topics": Profile(always=("growing topics",), owners=0.25),
    tricks.MIXED_RUNS: Profile(
        always=(tricks.MIXED_RUNS,), fault_counts=(1, 2, 4), faults=RUN_FAULTS
    ),
    "long": LONG,
    **{
        f"rule {letter}": Profile(
            always=(f"rule {letter}",),
            fault_counts=(10, 15, 20),
            faults=rule.faults,
            several_brokers=0.4,
            probes=1.0,
        )
        for letter, rule in RULES.items()
    },
}


def make_script(seed: int | str, profile: str = "any") -> Script:
    """Write the history of a seed.

    Args:
        profile: one of PROFILES.
    """
    kind = PROFILES[profile]
    random = Random(f"short {profile} {seed}")
    draft = Draft(random)
    names = [*kind.always, *_drawn(random, kind)]
    draft.scenarios = tuple(names)
    for name in names:
        PARTS[name](draft)
    brokers = Random(f"brokers {profile} {seed}")
    if draft.broker_count == 1 and brokers.random() < kind.several_brokers:
        draft.broker_count = brokers.choice((2, 2, 3))
        spread_faults(draft, brokers)
    of_owners = Random(f"owners {profile} {seed}")
    if "owners" not in draft.flags and of_owners.random() < kind.owners:
        strikes = of_owners.choice((0, 1, 1, 2)) * max(1, len(names) // 4)
        owners.with_owners(draft, of_owners, faults=strikes)
    draft.flags["probe"] = draft.topics.get("mix") == 2 and random.random() < kind.probes
    draft.flags["read_seconds_max"] = random.choice((0.0, 0.0, 0.0, 0.002, 0.02))
    draw_faults(draft, random.choice(kind.fault_counts), kind.faults)
    draw_settings(draft)
    of_os = Random(f"durability {profile} {seed}")
    if "owners" not in draft.flags and of_os.random() < OS_SHARE:
        draft.settings["broker"]["durability"] = "os"
        draft.settings["broker"]["sync_interval_ms"] = of_os.choice((5, 100, 1_000))
    return draft.finish(str(seed), profile, draft.scenarios)


def _drawn(random: Random, kind: Profile) -> list[str]:
    if not kind.parts:
        return []
    names = random.choices(
        list(kind.parts), list(kind.parts.values()), k=random.choice(kind.counts)
    )
    return names if kind.repeats else list(dict.fromkeys(names))
