"""The searches in spec/Groups.tla."""

from __future__ import annotations

from tests.spec.runs.run import Constants, Run, situation

# Groups: two members who join once, two inputs, and three transactions.
GROUPS: Constants = {
    "Members": "{a, b}",
    "Inputs": 2,
    "Transactions": 3,
    "JoinsMax": 1,
    "GenerationsMax": 3,
    "ExpulsionsMax": 1,
}
PROMISES = ("OneOwnerInAGeneration", "OnlyOwnersAcksCount", "Once", "InOrder", "NoReturn")
ONE_INPUT: Constants = {"Inputs": 1, "Transactions": 2}
COMES_BACK: Constants = {"Members": "{a}", "JoinsMax": 2}
# A member that aborts two transactions at once.
ALONE: Constants = {"Members": "{a}", "Transactions": 4, "GenerationsMax": 1, "ExpulsionsMax": 0}


def _groups(
    name: str, changes: Constants, *, finds: str = "", mistake: str = "none", is_small: bool = False
) -> Run:
    return Run(
        f"groups: {name}",
        "Groups",
        {**GROUPS, **changes},
        PROMISES,
        finds,
        mistake,
        has_symmetry=True,
        is_small=is_small,
    )


def _groups_mistake(mistake: str, finds: str, changes: Constants, *, is_small: bool = False) -> Run:
    return _groups(mistake, changes, finds=finds, mistake=mistake, is_small=is_small)


_RUNS = (
    _groups("one input", ONE_INPUT, is_small=True),
    _groups("two inputs", {"Transactions": 2}),
    _groups("a member that comes back", COMES_BACK),
    _groups("a member that aborts two", ALONE),
)
_SITUATIONS = (
    situation(_groups("", {}), "NeverMoves"),
    situation(_groups("", {}), "NeverDone"),
    situation(_groups("", {}), "NeverWaits"),
)
_MISTAKES = (
    _groups_mistake("late_joins_accepted", "NoReturn", COMES_BACK),
    _groups_mistake("generation_stays", "OneOwnerInAGeneration", ONE_INPUT),
    _groups_mistake("owner_not_checked", "OnlyOwnersAcksCount", ONE_INPUT, is_small=True),
    _groups_mistake("generation_not_checked", "OnlyOwnersAcksCount", COMES_BACK),
    _groups_mistake("earlier_owners_not_awaited", "InOrder", {}),
    _groups_mistake("next_consumer_does_not_wait", "InOrder", {}),
    _groups_mistake("first_end_is_enough", "InOrder", ALONE),
    _groups_mistake("subscription_ends_first", "InOrder", {}),
)

RUNS = (*_RUNS, *_SITUATIONS, *_MISTAKES)
