"""The searches in spec/Disaster.tla."""

from __future__ import annotations

from tests.spec.runs.run import Constants, Run, situation

# Disaster: a transaction at two participants, and a copy of the store that is restored.
DISASTER: Constants = {"Participants": "{p, q}", "Transactions": 1, "Restores": 1}
TWO_TRANSACTIONS: Constants = {"Transactions": 2}


def _disaster(
    name: str, changes: Constants, *, finds: str = "", mistake: str = "none", is_small: bool = False
) -> Run:
    return Run(
        f"disaster: {name}",
        "Disaster",
        {**DISASTER, **changes},
        ("NotTorn", "DecisionsAgree", "Unique"),
        finds,
        mistake,
        has_symmetry=True,
        is_small=is_small,
    )


def _disaster_mistake(mistake: str, finds: str, changes: Constants) -> Run:
    return _disaster(mistake, changes, finds=finds, mistake=mistake)


_RUNS = (
    _disaster("one transaction", {}, is_small=True),
    _disaster("restored twice", {"Restores": 2}),
)
_SITUATIONS = (
    situation(_disaster("", {}), "NeverLearns"),
    situation(_disaster("", {}), "NeverCloses"),
    situation(_disaster("", {}), "NeverForgets"),
    situation(_disaster("", {}), "NeverTorn"),
)
_MISTAKES = (
    _disaster_mistake("incarnation_stays", "Unique", TWO_TRANSACTIONS),
    _disaster_mistake("serves_before_asking", "DecisionsAgree", {}),
    _disaster_mistake("one_broker_is_enough", "DecisionsAgree", {}),
    _disaster_mistake("last_answer_counts", "DecisionsAgree", {}),
    _disaster_mistake("former_ends_accepted", "DecisionsAgree", {}),
    _disaster_mistake("asking_does_not_fence", "DecisionsAgree", {}),
    _disaster_mistake("former_coverage_dropped", "DecisionsAgree", {"Restores": 2}),
    _disaster_mistake("forgotten_not_told", "DecisionsAgree", {}),
    _disaster_mistake("forgotten_told_as_abort", "DecisionsAgree", {}),
    _disaster_mistake("abort_counts_over_forgotten", "DecisionsAgree", {}),
)

RUNS = (*_RUNS, *_SITUATIONS, *_MISTAKES)
