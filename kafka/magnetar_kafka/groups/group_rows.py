"""Stored rows of groups, and groups that are made from their rows. Pure."""

from __future__ import annotations

from magnetar_core.wire import record_pb2 as records
from magnetar_kafka.groups.classic_group import ClassicGroup, State
from magnetar_kafka.groups.members import Member


def row_of(group: ClassicGroup, used_run_time_ms: int) -> records.KafkaGroupRow:
    """Return the row of a group."""
    return records.KafkaGroupRow(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader_id=group.leader_id,
        members=[_member_row(member) for member in group.members.values()],
        is_stable=group.state is State.STABLE,
        used_run_time_ms=used_run_time_ms,
    )


def restored(
    name: str, row: records.KafkaGroupRow, *, first_join_delay_ms: int, now_ms: float
) -> ClassicGroup:
    """Return the group that a row describes; all of its times begin now."""
    group = ClassicGroup(name, first_join_delay_ms=first_join_delay_ms, generation=row.generation)
    group.protocol_type, group.protocol = row.protocol_type, row.protocol
    group.leader_id = row.leader_id
    group.restore(
        [_member_of(each) for each in row.members], is_stable=row.is_stable, now_ms=now_ms
    )
    return group


def _member_row(member: Member) -> records.KafkaMemberRow:
    return records.KafkaMemberRow(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assignors=[
            records.KafkaAssignor(name=name, metadata=metadata)
            for name, metadata in member.protocols
        ],
        assignment=member.assignment,
    )


def _member_of(row: records.KafkaMemberRow) -> Member:
    return Member(
        member_id=row.member_id,
        instance_id=row.instance_id if row.HasField("instance_id") else None,
        client_id=row.client_id,
        client_host=row.client_host,
        session_timeout_ms=row.session_timeout_ms,
        rebalance_timeout_ms=row.rebalance_timeout_ms,
        protocols=tuple((one.name, one.metadata) for one in row.assignors),
        assignment=row.assignment,
    )
