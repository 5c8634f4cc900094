"""The searches in spec/Cuts.tla."""

from __future__ import annotations

from tests.spec.runs.run import Constants, Run, situation

# Cuts: a client with two transactions, each decided by one of two coordinators.
CUTS: Constants = {
    "Clients": "{i1}",
    "Coordinators": "{c1, c2}",
    "Partitions": "{p1, p2}",
    "Transactions": 2,
    "Times": "{0}",
    "Ahead": 1,
    "Restarts": 0,
    "Losses": 0,
    "CutsMax": 1,
}
CLOCKS_THAT_DIFFER: Constants = {"Times": "{0, 3}"}
TWO_CLIENTS: Constants = {"Clients": "{i1, i2}", "Partitions": "{p1}"}
ONE_COORDINATOR: Constants = {"Coordinators": "{c1}"}
ONE_TRANSACTION: Constants = {"Transactions": 1, **CLOCKS_THAT_DIFFER}
RESTART: Constants = {**ONE_TRANSACTION, "Restarts": 1}
LOSS: Constants = {**ONE_COORDINATOR, "Losses": 1, "Times": "{0, 3}"}
TWO_CUTS: Constants = {**ONE_COORDINATOR, "Partitions": "{p1}", "CutsMax": 2}


def _cuts(
    name: str, changes: Constants, *, finds: str = "", mistake: str = "none", is_small: bool = False
) -> Run:
    return Run(
        f"cuts: {name}",
        "Cuts",
        {**CUTS, **changes},
        ("Whole", "HasAnswered", "HasCauses", "OnceFromCutToCut"),
        finds,
        mistake,
        has_symmetry=True,
        is_small=is_small,
    )


def _cuts_mistake(mistake: str, finds: str, changes: Constants, *, is_small: bool = False) -> Run:
    return _cuts(mistake, changes, finds=finds, mistake=mistake, is_small=is_small)


_RUNS = (
    _cuts("two coordinators", {}),
    _cuts("two coordinators, clocks that differ", {**CLOCKS_THAT_DIFFER, "Partitions": "{p1}"}),
    _cuts("two clients", TWO_CLIENTS),
    _cuts("a restart", RESTART, is_small=True),
    _cuts("a lost store", LOSS),
    _cuts("from cut to cut", {**TWO_CUTS, "Transactions": 3, "Restarts": 1}),
)
_SITUATIONS = (
    situation(_cuts("", {}), "NeverTaken"),
    situation(_cuts("", {}), "NeverLeftOut"),
    situation(_cuts("", TWO_CUTS), "NeverBetween"),
)
_MISTAKES = (
    _cuts_mistake("ends_before_closing", "Whole", {}, is_small=True),
    _cuts_mistake("closing_does_not_wait", "HasAnswered", {}),
    _cuts_mistake("closing_raises_no_clock", "Whole", ONE_TRANSACTION),
    _cuts_mistake("closing_is_forgotten", "Whole", RESTART),
    _cuts_mistake("incarnations_not_compared", "Whole", LOSS),
    _cuts_mistake("loss_before_clocks_not_seen", "HasAnswered", LOSS),
    _cuts_mistake("one_clock_is_enough", "HasAnswered", {}),
    _cuts_mistake("highest_stamps_ignored", "HasAnswered", LOSS),
    _cuts_mistake("seen_stamps_not_told", "HasCauses", CLOCKS_THAT_DIFFER),
    _cuts_mistake("told_at_the_beginning_only", "HasCauses", {**TWO_CLIENTS, **CLOCKS_THAT_DIFFER}),
    _cuts_mistake("begins_after_closing", "OnceFromCutToCut", TWO_CUTS),
)

RUNS = (*_RUNS, *_SITUATIONS, *_MISTAKES)
