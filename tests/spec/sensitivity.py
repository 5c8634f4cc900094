"""Compares TLC and the follower: at which event does each refuse a changed history?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.spec.changes import CHANGES
from tests.spec.doubtful_groups import doubtful_groups
from tests.spec.following import follow_all
from tests.spec.recording import Recorded
from tests.spec.traces import translate

from magnetar_cli.histories.follower import Follower, HistoryRefused


class Verdict(NamedTuple):
    """Verdicts about a changed history. A place counts events; None: it is not refused.

    Attributes:
        place: where it was changed.
        tlc: the event that no behaviour of `spec/Commit.tla` has there.
        follower: the event that the follower refuses.
        is_passed_over: TLC does not look at that event, since a crash has taken it back.
    """

    change: str
    place: int
    tlc: int | None
    follower: int | None
    is_passed_over: bool

    @property
    def agreement(self) -> str:
        """Return a word for it: both refuse the same event, or one of them alone, or earlier."""
        if self.tlc == self.follower:
            return BOTH if self.tlc is not None else NEITHER
        if self.follower is None:
            return TLC_ALONE
        if self.tlc is None:
            return FOLLOWER_ALONE
        return TLC_FIRST if self.tlc < self.follower else FOLLOWER_FIRST


BOTH = "both"
NEITHER = "neither"
TLC_ALONE = "TLC alone"
TLC_FIRST = "TLC first"
FOLLOWER_ALONE = "the follower alone"
FOLLOWER_FIRST = "the follower first"


def verdicts(tlc: Path, recorded: Recorded, directory: Path) -> list[Verdict]:
    """Change a history in all ways, and have TLC and the follower judge each.

    Args:
        directory: for files that are not needed afterwards.
    """
    changed = [(name, one) for name, change in CHANGES.items() for one in change(recorded)]
    histories = [translate(one.recorded, recorded) for _, one in changed]
    found = follow_all(tlc, histories, directory)
    result = []
    for (name, one), history, followed in zip(changed, histories, found, strict=True):
        refused = None if followed.refused is None else history.places[followed.refused]
        place = refused_by_follower(one.recorded)
        is_passed_over = place in doubtful_groups(one.recorded.noted)
        result.append(Verdict(name, one.place, refused, place, is_passed_over))
    return result


def refused_by_follower(recorded: Recorded) -> int | None:
    """Return the place of the event that the follower refuses; at the end, the one behind it."""
    follower = Follower()
    for place, (life, event) in enumerate(recorded.noted):
        try:
            follower.take(life, event)
        except HistoryRefused:
            return place
    try:
        follower.finish()
    except HistoryRefused:
        return len(recorded.noted)
    return None


class Difference(NamedTuple):
    """Difference between TLC and the follower that a change may show.

    Attributes:
        why: the knowledge that one of them lacks.
        always: they never refuse the same event of it.
    """

    agreements: frozenset[str]
    why: str
    always: bool = False


_CLIENTS = (
    "the model has the clients, which count what was confirmed; the follower compares counts with"
    " the ends"
)
_MARKERS = "the follower compares a marker with its end, which comes next"
DIFFERENCES: Mapping[str, Difference] = {
    "a count is one too low": Difference(frozenset({TLC_FIRST}), _CLIENTS, always=True),
    "a count is one too high": Difference(frozenset({TLC_FIRST}), _CLIENTS, always=True),
    "a marker with fewer messages": Difference(frozenset({TLC_FIRST}), _MARKERS, always=True),
    "a marker of another transaction": Difference(frozenset({TLC_FIRST}), _MARKERS),
    "a write of another transaction": Difference(
        frozenset({TLC_FIRST}),
        "no client of the model writes in a transaction that was not told to it; for the follower,"
        " a broker knows only up to where TxnIDs are reserved",
    ),
    "a write that follows nothing": Difference(
        frozenset({TLC_ALONE, TLC_FIRST}),
        "a client of the model names all that its next transaction has to follow; the follower"
        " knows only what was named",
        always=True,
    ),
    "a confirmation of another transaction": Difference(
        frozenset({TLC_ALONE, FOLLOWER_FIRST, FOLLOWER_ALONE}),
        "the follower knows the writers of a transaction, and the model that a commit counts what"
        " was confirmed to its client",
    ),
    "another outcome is told": Difference(
        frozenset({TLC_ALONE}),
        "the follower does not judge transactions that were opened before the history",
    ),
    "a group is not durable": Difference(
        frozenset({TLC_ALONE, FOLLOWER_FIRST}),
        "for the follower a group may become durable with a later one, as with late syncs; and it"
        " follows the partition of inputs, too",
    ),
    "a watermark is not taken": Difference(
        frozenset({FOLLOWER_ALONE}),
        "for the model, a watermark that covers nothing changes nothing",
    ),
    "an end is missing": Difference(
        frozenset({TLC_ALONE}),
        "a client of the model names all that its next transaction has to follow",
    ),
    "finished before an end": Difference(
        frozenset({TLC_ALONE}),
        "for the follower, events of other servers may come between a marker and its end",
    ),
}


# Some of these leave a history that the protocol allows: an answer that was not sent, a group that
# stays open until a crash, an event that comes before another one which it does not rest on, or the
# same outcome of another transaction.
MAY_BE_ALLOWED = frozenset(
    {
        "a confirmation of another transaction",
        "a decision before the participants",
        "a group is not durable",
        "a group is not sealed",
        "a participant is not added",
        "a watermark is not taken",
        "an end before its decision is durable",
        "an end is missing",
        "an outcome is told too early",
        "another outcome is told",
        "finished before an end",
        "finished before an end is durable",
    }
)


def is_explained(verdict: Verdict) -> bool:
    """Whether TLC and the follower agree, or differ as they may."""
    agreement = verdict.agreement
    if agreement == BOTH:
        return True
    if agreement == NEITHER:
        return verdict.change in MAY_BE_ALLOWED
    if verdict.is_passed_over and agreement in (FOLLOWER_ALONE, FOLLOWER_FIRST):
        return True
    known = DIFFERENCES.get(verdict.change)
    return known is not None and agreement in known.agreements
