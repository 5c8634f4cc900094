"""The searches in spec/Owners.tla."""

from __future__ import annotations

from tests.spec.runs.run import Constants, Run, live, situation

# Owners: two members, two ownerships, and a lease of three ticks.
OWNERS: Constants = {
    "Members": "{a, b}",
    "LeaseTime": 3,
    "SpeakTime": 2,
    "ClockError": 0,
    "TimeMax": 4,
    "ClaimsMax": 2,
    "LeasesMax": 2,
    "ValueMax": 2,
}
CLOCKS_THAT_DIFFER: Constants = {"ClockError": 1}


def _owners(
    name: str, changes: Constants, *, finds: str = "", mistake: str = "none", is_small: bool = False
) -> Run:
    return Run(
        f"owners: {name}",
        "Owners",
        {**OWNERS, **changes},
        ("NothingIsLost", "NothingIsStale", "OnlyOwnerSpeaks"),
        finds,
        mistake,
        has_symmetry=True,
        is_small=is_small,
    )


def _owners_mistake(mistake: str, finds: str, changes: Constants, *, is_small: bool = False) -> Run:
    return _owners(mistake, changes, finds=finds, mistake=mistake, is_small=is_small)


_RUNS = (
    _owners("one lease each", {"TimeMax": 3, "LeasesMax": 1, "ValueMax": 1}, is_small=True),
    _owners("two leases each", {}),
    _owners("clocks that differ", CLOCKS_THAT_DIFFER),
)
_SITUATIONS = (
    situation(_owners("", {}), "NeverMoves"),
    situation(_owners("", {}), "NeverTaken"),
)
_MISTAKES = (
    _owners_mistake("silent_members_answer", "OnlyOwnerSpeaks", {}),
    _owners_mistake("lease_counts_from_answer", "OnlyOwnerSpeaks", {}),
    _owners_mistake("speaks_for_whole_lease", "OnlyOwnerSpeaks", CLOCKS_THAT_DIFFER),
    _owners_mistake("released_before_closed", "OnlyOwnerSpeaks", {}),
    _owners_mistake("store_does_not_fence", "NothingIsLost", {}),
    _owners_mistake("epochs_repeat", "NothingIsLost", {}),
    _owners_mistake("answers_before_durable", "NothingIsLost", {}, is_small=True),
)

# Progress: the content of the shard does not matter, and a lease of two ticks is enough.
PROGRESS = ("ShardsAreClaimed", "SilentOwnersLoseTheShard", "OwnersServe", "FencedOwnersLetGo")
LIVE: Constants = {"LeaseTime": 2, "SpeakTime": 1, "TimeMax": 2, "LeasesMax": 1, "ValueMax": 0}
_PROGRESS_RUNS = (live(_owners("", LIVE, is_small=True), *PROGRESS),)
_PROGRESS_SITUATIONS = (
    # The survivor is one of the members, so these may not be exchanged.
    situation(_owners("", LIVE)._replace(has_symmetry=False), "NeverFenced"),
)
_PROGRESS_MISTAKES = tuple(
    live(_owners("", LIVE), finds, mistake=mistake)
    for mistake, finds in (
        ("claims_outlive_leases", "SilentOwnersLoseTheShard"),
        ("given_back_is_not_claimed", "ShardsAreClaimed"),
        ("dead_members_are_wished", "ShardsAreClaimed"),
        ("lost_lease_is_not_replaced", "ShardsAreClaimed"),
        ("fenced_owner_keeps_the_shard", "FencedOwnersLetGo"),
    )
)

RUNS = (
    *_PROGRESS_RUNS,
    *_PROGRESS_SITUATIONS,
    *_PROGRESS_MISTAKES,
    *_RUNS,
    *_SITUATIONS,
    *_MISTAKES,
)
