"""Puts together what the brokers of a cluster tell of groups. Pure.

Each broker knows the members, and owners, cursors and lag of its own partitions.
Source: docs/design/0008-cluster.md, Groups without a group coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from magnetar.admin.group_descriptions import (
    GroupDescription,
    GroupMember,
    GroupState,
    GroupSummary,
)


def merge_lists(lists: Iterable[Iterable[GroupSummary]]) -> list[GroupSummary]:
    """Return one summary for each group that any broker has, by name."""
    by_name: dict[str, list[GroupSummary]] = {}
    for summaries in lists:
        for summary in summaries:
            by_name.setdefault(summary.group, []).append(summary)
    return [merge_summaries(by_name[name]) for name in sorted(by_name)]


def merge_summaries(summaries: Sequence[GroupSummary]) -> GroupSummary:
    """Return the summary of a group from those of its brokers.

    A group is empty only where it has no members anywhere, and moves where any broker moves
    something. Brokers that count different numbers of members are about to agree on the highest.
    """
    states = [summary.state for summary in summaries]
    return GroupSummary(
        group=summaries[0].group,
        state=max(states),
        generation=max(summary.generation for summary in summaries),
        members=max(summary.members for summary in summaries),
        partitions=sum(summary.partitions for summary in summaries),
        lag=sum(summary.lag for summary in summaries),
    )


def merge_descriptions(descriptions: Sequence[GroupDescription]) -> GroupDescription:
    """Return the description of a group from those of its brokers."""
    members: dict[str, GroupMember] = {}
    for description in descriptions:
        for one in description.members:
            known = members.get(one.member_id)
            members[one.member_id] = one if known is None else _merge_members(known, one)
    summary = merge_summaries([one.summary for one in descriptions])
    partitions = [partition for one in descriptions for partition in one.partitions]
    return GroupDescription(
        summary=replace(summary, members=len(members)),
        allow_two_phase_commit=next(
            (
                one.allow_two_phase_commit
                for one in descriptions
                if one.summary.state is not GroupState.EMPTY
            ),
            descriptions[0].allow_two_phase_commit,
        ),
        members=tuple(members.values()),
        partitions=tuple(sorted(partitions, key=lambda one: (one.topic, one.partition))),
    )


def _merge_members(one: GroupMember, other: GroupMember) -> GroupMember:
    return replace(
        one,
        # The broker that has not heard from it for the longest is the next to expel it.
        silent_ms=max(one.silent_ms, other.silent_ms),
        partitions=one.partitions + other.partitions,
        lag=one.lag + other.lag,
    )
