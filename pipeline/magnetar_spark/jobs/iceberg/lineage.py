"""Lineage of a table: the cuts that it has had. Pure.

The cut of a table is in the summary of the last snapshot that a run has made. So it goes back with
the table when an operator rolls it back, and it cannot be lost while the rows are there.
Source: docs/design/0018-tables.md, The cut is the only state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.cuts.cut import Cut

# Of a snapshot: the cut's token, or the file that has it, and the run.
CUT: Final = "magnetar.cut"
CUT_FILE: Final = "magnetar.cut-file"
RUN: Final = "magnetar.run"
# Of a table: the topic that it has the rows of, which rows they are, and the topic's cluster.
TOPIC: Final = "magnetar.topic"
ROWS: Final = "magnetar.rows"
CLUSTER: Final = "magnetar.cluster"
# A longer token would be repeated in each metadata file for as long as its snapshot lives.
TOKEN_LENGTH_MAX: Final = 8_192


@dataclass(frozen=True)
class SnapshotFacts:
    """A snapshot: the one before it, and its summary."""

    parent_id: int | None
    summary: Mapping[str, str]


class CutForgotten(ValueError):
    """A table has rows, but its snapshots no longer say up to which cut."""


def last_told(
    snapshots: Mapping[int, SnapshotFacts], current_id: int | None
) -> Mapping[str, str] | None:
    """Return the summary of the last snapshot that names a cut; None: the table has none yet.

    Snapshots of others, such as those of maintenance, lie on top of it and change nothing.

    Raises:
        CutForgotten: it has expired.
    """
    is_empty = current_id is None
    while current_id is not None:
        found = snapshots.get(current_id)
        if found is None:
            break
        if CUT in found.summary or CUT_FILE in found.summary:
            return found.summary
        current_id = found.parent_id
    if is_empty:
        return None
    raise CutForgotten


def tag_of(cut: Cut) -> str:
    """Return the name of the tag that all snapshots at a cut have."""
    return f"cut-{cut.taken.stamp}"


def goals(cuts: Sequence[tuple[str, Cut | None]], goal: Cut) -> list[Cut]:
    """Return the cuts to which tables are to be brought, one after the other.

    A run that was killed has brought some of its tables to its cut. Then the others are brought
    there first, so that all tables have had the same cuts. Tables that have none yet begin with the
    last one.

    Args:
        cuts: the topic of each table, and where the table is.
        goal: the new cut.
    """
    known = [(topic, one) for topic, one in cuts if one is not None]
    if not known:
        return [goal]
    newest = max((one for _, one in known), key=lambda one: one.taken.stamp)
    is_unfinished = any(is_before(one, newest, topic) for topic, one in known)
    return [newest, goal] if is_unfinished else [goal]


def is_before(cut: Cut, goal: Cut, topic: str) -> bool:
    """Return whether a table of the topic that is at a cut has to be brought to another."""
    return topic in goal.topics and cut.taken.stamp < goal.taken.stamp
