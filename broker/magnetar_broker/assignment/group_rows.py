"""Rows of a group and its members, and a group as its row has it. Pure."""

from __future__ import annotations

from magnetar_broker.assignment.group import Group, Member
from magnetar_core.wire import record_pb2 as records


def row_of(group: Group) -> records.GroupRow:
    """Return the row of a group. Its owners have rows of their own."""
    return records.GroupRow(
        generation=group.generation,
        allow_two_phase_commit=group.allow_two_phase_commit,
        members=[
            records.GroupMemberRow(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_name=member.client_name,
                topics=sorted(member.topics),
                topic_pattern=member.topic_pattern,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                join_epoch=member.join_epoch,
            )
            for member in group.members.values()
        ],
    )


def restored_group(name: str, row: records.GroupRow) -> Group:
    """Return a group as its row has it; its owners come with the cursors."""
    group = Group(
        name, generation=row.generation, allow_two_phase_commit=row.allow_two_phase_commit
    )
    for one in row.members:
        group.members[one.member_id] = Member(
            member_id=one.member_id,
            instance_id=one.instance_id,
            client_name=one.client_name,
            topics=frozenset(one.topics),
            topic_pattern=one.topic_pattern,
            session_timeout_ms=one.session_timeout_ms,
            rebalance_timeout_ms=one.rebalance_timeout_ms,
            join_epoch=one.join_epoch,
        )
    return group
