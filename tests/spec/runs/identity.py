"""The searches in spec/Identity.tla."""

from __future__ import annotations

from tests.spec.runs.run import Constants, Run, live, situation

# Identity: two instances, and two transactions.
IDENTITY: Constants = {
    "Instances": "{i1, i2}",
    "Transactions": 2,
    "EpochMax": 3,
    "Keeps": True,
    "BothAsked": False,
}
ANSWERS_AND_PAIRS = ("OnlyNewestActs", "AnswersAgree", "PairsAreUnique", "RowIsSound")
# Two epochs for each producer id.
ROTATION: Constants = {"Instances": "{i1, i2, i3}", "EpochMax": 2}


def _identity(
    name: str,
    changes: Constants,
    *,
    finds: str = "",
    mistake: str = "none",
    constraint: str = "",
    is_small: bool = False,
) -> Run:
    constants = {**IDENTITY, **changes}
    # A program that asks for both ends does not tell its database.
    invariants = (
        ANSWERS_AND_PAIRS if constants["BothAsked"] else ("DatabaseAgrees", *ANSWERS_AND_PAIRS)
    )
    return Run(
        f"identity: {name}",
        "Identity",
        constants,
        invariants,
        finds,
        mistake,
        constraint,
        has_symmetry=True,
        is_small=is_small,
    )


def _identity_mistake(
    mistake: str, finds: str, changes: Constants, *, constraint: str = "", is_small: bool = False
) -> Run:
    return _identity(
        mistake, changes, finds=finds, mistake=mistake, constraint=constraint, is_small=is_small
    )


_RUNS = (
    _identity("two instances", {}, is_small=True),
    _identity("both ends asked", {"BothAsked": True}),
    _identity("three instances, epochs that run out", {**ROTATION, "Transactions": 3}),
)
_SITUATIONS = (
    situation(_identity("", {}), "NeverKept"),
    situation(_identity("", {}), "NeverCommits"),
    situation(_identity("", ROTATION), "NeverRotates"),
)
_MISTAKES = (
    _identity_mistake("keep_loses_the_pair", "PairsAreUnique", {}),
    _identity_mistake("takeover_raises_nothing", "PairsAreUnique", {}),
    _identity_mistake("tokens_ignored", "OnlyNewestActs", {}, constraint="FewProducerIds"),
    _identity_mistake("old_pairs_accepted", "OnlyNewestActs", {}),
    _identity_mistake("epoch_wraps", "PairsAreUnique", ROTATION),
    _identity_mistake("repeated_end_not_compared", "AnswersAgree", {"BothAsked": True}),
    _identity_mistake("prepared_expires", "DatabaseAgrees", {}),
    _identity_mistake("recipe_does_not_keep", "DatabaseAgrees", {}),
    _identity_mistake("row_has_no_owner", "DatabaseAgrees", {}, is_small=True),
    _identity_mistake("completion_always_commits", "DatabaseAgrees", {}),
)

# Progress: with the recipe, and of programs that keep no transaction.
PROGRESS = ("TakeoversAreAnswered", "EndsComplete", "KeptEnds")
WITHOUT_RECIPE: Constants = {"Keeps": False, "BothAsked": True}
_PROGRESS_RUNS = (
    live(_identity("", {}, is_small=True), *PROGRESS),
    live(_identity("", WITHOUT_RECIPE), *PROGRESS, name="progress without the recipe"),
)
_PROGRESS_SITUATIONS = (situation(_identity("", WITHOUT_RECIPE), "NeverWaits"),)
_PROGRESS_MISTAKES = tuple(
    live(_identity("", changes), finds, mistake=mistake)
    for mistake, finds, changes in (
        ("takeover_ends_nothing", "TakeoversAreAnswered", WITHOUT_RECIPE),
        ("takeover_is_not_repeated", "TakeoversAreAnswered", WITHOUT_RECIPE),
        ("aborts_are_not_completed", "EndsComplete", WITHOUT_RECIPE),
        ("recipe_completes_nothing", "KeptEnds", {}),
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
