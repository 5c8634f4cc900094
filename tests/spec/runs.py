"""The searches in the models: configurations, situations that have to arise, planted mistakes.

A run has a module, values for its constants, and the invariant that TLC has to find violated. It is
empty where nothing is planted. A situation is named by the formula that says that it never arises.

Two planted mistakes violate no invariant. Runs show this, and docs/design/0022-model.md says why:
`watermark_covers_applied_ends` and `claims_outlive_leases`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Constants = Mapping[str, object]


class Run(NamedTuple):
    """A search by TLC.

    Attributes:
        name: on the command line and in the results.
        module: of spec/.
        constants: values as TLA+ writes them; a string gets quotes, unless it is a set.
        invariants: what is checked in each state.
        finds: the invariant that has to be violated, or "".
        mistake: what is planted, or "none".
        constraint: a formula; states that violate it are not searched.
        has_symmetry: the module names values that may be exchanged.
        is_small: `make test-long` has it.
    """

    name: str
    module: str
    constants: Constants
    invariants: tuple[str, ...]
    finds: str = ""
    mistake: str = "none"
    constraint: str = ""
    has_symmetry: bool = False
    is_small: bool = False

    def configuration(self) -> str:
        """Return the text of TLC's configuration file."""
        values = {**self.constants, "Mistake": f'"{self.mistake}"'}
        lines = ["SPECIFICATION Spec", "CONSTANTS"]
        lines += [f"  {name} = {_written(value)}" for name, value in values.items()]
        lines += [f"INVARIANT {name}" for name in self.invariants]
        if self.has_symmetry:
            lines.append("SYMMETRY Symmetry")
        if self.constraint:
            lines.append(f"CONSTRAINT {self.constraint}")
        # The clients' steps are bounded, so that every history ends some day.
        lines.append("CHECK_DEADLOCK FALSE")
        return "\n".join(lines) + "\n"


def _written(value: object) -> str:
    return str(value).upper() if isinstance(value, bool) else str(value)


# Commit: one client, one transaction, one partition, and no fault.
COMMIT: Constants = {
    "Clients": "{c1}",
    "Partitions": "{p1}",
    "Subscription": "s",
    "Steps": 1,
    "Transactions": 1,
    "Reserved": 2,
    "Crashes": 0,
    "Announcements": 0,
    "Losses": 0,
    "Acks": True,
    "PlainSends": False,
    "Undercounts": False,
    "BothAsked": False,
    "Expiry": False,
    "Forgetting": False,
    "GroupCommits": False,
}
COMMIT_INVARIANTS = (
    "AllOrNothing",
    "Durability",
    "CommittedOnly",
    "Once",
    "InOrder",
    "InputsWithOutputs",
    "SingleDecision",
    "Unique",
    "Closed",
    "NoWaiting",
    "CoversEnded",
)
# A crash, a watermark, expiry and forgotten outcomes.
FAULTS: Constants = {"Crashes": 1, "Announcements": 1, "Expiry": True, "Forgetting": True}
# Transactions that follow each other at one partition.
CHAIN_OF_TWO: Constants = {"Steps": 2, "Transactions": 2, "Acks": False}
CHAIN_OF_THREE: Constants = {
    **CHAIN_OF_TWO,
    "Steps": 3,
    "Transactions": 3,
    "BothAsked": True,
    "Expiry": True,
}
PLAIN_SENDS: Constants = {**CHAIN_OF_TWO, "Steps": 3, "PlainSends": True}
TWO_CLIENTS: Constants = {"Clients": "{c1, c2}", "Transactions": 2}


def _commit(
    name: str,
    changes: Constants,
    *,
    finds: str = "",
    mistake: str = "none",
    constraint: str = "",
    is_small: bool = False,
) -> Run:
    return Run(
        f"commit: {name}",
        "Commit",
        {**COMMIT, **changes},
        COMMIT_INVARIANTS,
        finds,
        mistake,
        constraint,
        has_symmetry=True,
        is_small=is_small,
    )


def _commit_mistake(
    mistake: str, finds: str, changes: Constants, *, constraint: str = "", is_small: bool = False
) -> Run:
    return _commit(
        mistake, changes, finds=finds, mistake=mistake, constraint=constraint, is_small=is_small
    )


def _situation(run: Run, formula: str) -> Run:
    module = run.module.lower()
    return run._replace(name=f"{module}: {formula}", invariants=(formula,), finds=formula)


COMMIT_RUNS = (
    _commit("group commits", {"GroupCommits": True, "Crashes": 1}, is_small=True),
    _commit("plain sends", PLAIN_SENDS, is_small=True),
    _commit("a loss", {"Losses": 1, "Undercounts": True, "Acks": False}, is_small=True),
    _commit("two partitions", {"Partitions": "{p1, p2}", "Crashes": 1, "Announcements": 1}),
    _commit("one transaction, all faults", {**FAULTS, "BothAsked": True}),
    _commit("a chain of two, all faults", {**CHAIN_OF_TWO, **FAULTS, "Forgetting": False}),
    _commit("a chain of three", CHAIN_OF_THREE, constraint="OnlySecondAborts"),
    _commit("two clients", {**TWO_CLIENTS, "Crashes": 1}),
    _commit(
        "the watermark covers applied ends",
        {"GroupCommits": True, "Crashes": 1, "Announcements": 1, "Acks": False},
        mistake="watermark_covers_applied_ends",
    ),
)
COMMIT_SITUATIONS = (
    _situation(_commit("", {}, is_small=True), "NeverWhole"),
    _situation(_commit("", {"Crashes": 1, "Transactions": 2}), "NeverLost"),
    _situation(_commit("", CHAIN_OF_TWO), "NeverWaits"),
    _situation(_commit("", {"Undercounts": True}), "NeverSurplus"),
    _situation(_commit("", FAULTS), "NeverForgetsEnds"),
    _situation(_commit("", FAULTS), "NeverOrphaned"),
)
COMMIT_MISTAKES = (
    _commit_mistake("answers_before_durable", "Durability", FAULTS, is_small=True),
    _commit_mistake("participants_told_early", "AllOrNothing", {"GroupCommits": True}),
    _commit_mistake("watermark_covers_open", "CoversEnded", FAULTS),
    _commit_mistake("restart_reuses_ids", "Unique", {**TWO_CLIENTS, "Crashes": 1}),
    _commit_mistake("counts_ignored", "AllOrNothing", {"Losses": 1}),
    _commit_mistake("surplus_kept", "AllOrNothing", {"Undercounts": True}, is_small=True),
    _commit_mistake("empty_end_not_recorded", "Closed", FAULTS),
    _commit_mistake("subscription_records_no_end", "Closed", FAULTS),
    _commit_mistake(
        "forgotten_end_succeeds", "Durability", {"Forgetting": True, "BothAsked": True}
    ),
    _commit_mistake("repeated_end_not_compared", "Durability", {"BothAsked": True}),
    _commit_mistake("committing_expires", "Durability", FAULTS),
    _commit_mistake("marker_written_twice", "Once", {}),
    _commit_mistake("watermark_not_stored", "Closed", FAULTS),
    _commit_mistake("watermark_takes_back", "Closed", {**CHAIN_OF_TWO, "Announcements": 2}),
    _commit_mistake("open_transactions_are_orphans", "AllOrNothing", FAULTS),
    _commit_mistake("subscription_ends_first", "InputsWithOutputs", {}),
    _commit_mistake("one_answer_is_enough", "AllOrNothing", {}),
    _commit_mistake("acks_not_checked", "Once", TWO_CLIENTS),
    _commit_mistake("late_writes_accepted", "Closed", FAULTS),
    _commit_mistake("transactions_follow_nothing", "InOrder", CHAIN_OF_TWO),
    _commit_mistake("marker_does_not_wait", "InOrder", CHAIN_OF_TWO),
    _commit_mistake("plain_sends_not_parked", "InOrder", PLAIN_SENDS),
    _commit_mistake("commit_overtakes_plain_sends", "InOrder", PLAIN_SENDS),
    _commit_mistake(
        "abort_passes_nothing_on", "InOrder", CHAIN_OF_THREE, constraint="OnlySecondAborts"
    ),
)

# Identity: two instances, and two transactions.
IDENTITY: Constants = {
    "Instances": "{i1, i2}",
    "Transactions": 2,
    "EpochMax": 3,
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


IDENTITY_RUNS = (
    _identity("two instances", {}, is_small=True),
    _identity("both ends asked", {"BothAsked": True}),
    _identity("three instances, epochs that run out", {**ROTATION, "Transactions": 3}),
)
IDENTITY_SITUATIONS = (
    _situation(_identity("", {}), "NeverKept"),
    _situation(_identity("", {}), "NeverCommits"),
    _situation(_identity("", ROTATION), "NeverRotates"),
)
IDENTITY_MISTAKES = (
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


OWNERS_RUNS = (
    _owners("one lease each", {"TimeMax": 3, "LeasesMax": 1, "ValueMax": 1}, is_small=True),
    _owners("two leases each", {}),
    _owners("clocks that differ", CLOCKS_THAT_DIFFER),
    _owners("claims outlive leases", {}, mistake="claims_outlive_leases"),
)
OWNERS_SITUATIONS = (
    _situation(_owners("", {}), "NeverMoves"),
    _situation(_owners("", {}), "NeverTaken"),
)
OWNERS_MISTAKES = (
    _owners_mistake("silent_members_answer", "OnlyOwnerSpeaks", {}),
    _owners_mistake("lease_counts_from_answer", "OnlyOwnerSpeaks", {}),
    _owners_mistake("speaks_for_whole_lease", "OnlyOwnerSpeaks", CLOCKS_THAT_DIFFER),
    _owners_mistake("released_before_closed", "OnlyOwnerSpeaks", {}),
    _owners_mistake("store_does_not_fence", "NothingIsLost", {}),
    _owners_mistake("epochs_repeat", "NothingIsLost", {}),
    _owners_mistake("answers_before_durable", "NothingIsLost", {}, is_small=True),
)


def _all(groups: Iterable[Iterable[Run]]) -> tuple[Run, ...]:
    return tuple(run for group in groups for run in group)


RUNS = _all(
    (
        COMMIT_RUNS,
        COMMIT_SITUATIONS,
        COMMIT_MISTAKES,
        IDENTITY_RUNS,
        IDENTITY_SITUATIONS,
        IDENTITY_MISTAKES,
        OWNERS_RUNS,
        OWNERS_SITUATIONS,
        OWNERS_MISTAKES,
    )
)
