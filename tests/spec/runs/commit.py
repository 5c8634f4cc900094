"""The searches in spec/Commit.tla."""

from __future__ import annotations

from tests.spec.runs.run import Constants, Run, live, situation

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


_RUNS = (
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
_SITUATIONS = (
    situation(_commit("", {}, is_small=True), "NeverWhole"),
    situation(_commit("", {"Crashes": 1, "Transactions": 2}), "NeverLost"),
    situation(_commit("", CHAIN_OF_TWO), "NeverWaits"),
    situation(_commit("", {"Undercounts": True}), "NeverSurplus"),
    situation(_commit("", FAULTS), "NeverForgetsEnds"),
    situation(_commit("", FAULTS), "NeverOrphaned"),
)
_MISTAKES = (
    _commit_mistake("answers_before_durable", "Durability", FAULTS, is_small=True),
    _commit_mistake("answers_join_an_earlier_group", "Durability", {"GroupCommits": True}),
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

# Progress: one transaction with all faults, and transactions that follow each other. All expire.
PROGRESS = ("DecidedEnd", "OpenEnd", "PartsEnd", "PlainSendsAreStored", "EndsAreAnswered")
LIVE: Constants = {"Expiry": True, "Crashes": 1}
# The first TxnID is durable before it is told; the second one may be lost.
LIVE_LOST: Constants = {**LIVE, "Transactions": 2, "Acks": False}
LIVE_CHAIN: Constants = {**CHAIN_OF_TWO, "Expiry": True}
LIVE_PLAIN_SENDS: Constants = {**PLAIN_SENDS, "Steps": 2, "Transactions": 1, "Expiry": True}
LIVE_GROUPS: Constants = {"GroupCommits": True, "Acks": False, "Expiry": True}


def _live_mistake(mistake: str, finds: str, changes: Constants, *, is_small: bool = False) -> Run:
    return live(_commit("", changes, is_small=is_small), finds, mistake=mistake)


_PROGRESS_RUNS = (
    live(_commit("", LIVE, is_small=True), *PROGRESS),
    live(_commit("", LIVE_LOST), *PROGRESS, name="progress when a transaction is lost"),
    live(_commit("", LIVE_CHAIN), *PROGRESS, name="progress of a chain"),
    live(_commit("", LIVE_PLAIN_SENDS), *PROGRESS, name="progress of plain sends"),
    live(_commit("", LIVE_GROUPS), *PROGRESS, name="progress with group commits"),
)
_PROGRESS_SITUATIONS = (situation(_commit("", LIVE_LOST), "NeverLostAndHeld"),)
_PROGRESS_MISTAKES = (
    _live_mistake("ends_are_sent_once", "DecidedEnd", {"Expiry": True}, is_small=True),
    _live_mistake("aborts_end_with_the_process", "DecidedEnd", LIVE),
    _live_mistake("commits_end_with_the_process", "DecidedEnd", LIVE),
    _live_mistake("missing_subscription_is_silent", "DecidedEnd", {"Expiry": True}),
    _live_mistake("marker_waits_for_a_commit", "DecidedEnd", LIVE_CHAIN),
    _live_mistake("silent_transactions_do_not_expire", "OpenEnd", {"Expiry": True}),
    _live_mistake("lost_transactions_are_not_judged", "PartsEnd", LIVE_LOST),
    _live_mistake("parked_sends_wait_for_a_commit", "PlainSendsAreStored", LIVE_PLAIN_SENDS),
    _live_mistake("only_first_end_is_answered", "EndsAreAnswered", {"Expiry": True}),
    _live_mistake("repeats_wait_for_rows", "EndsAreAnswered", LIVE_GROUPS),
)

RUNS = (
    *_PROGRESS_RUNS,
    *_PROGRESS_SITUATIONS,
    *_PROGRESS_MISTAKES,
    *_RUNS,
    *_SITUATIONS,
    *_MISTAKES,
)
