"""Descriptions of groups for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar_broker.assignment.group import Group, Member
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_broker.topics.partition import Partition
from magnetar_core.wire import group_pb2 as wire

AWAITED_SHOWN_MAX = 100

# The cursors of a group.
Cursors = Sequence[tuple[Partition, Subscription]]


def summary_of(group: Group, cursors: Cursors) -> wire.GroupSummary:
    """Summarise a group for a list."""
    if not group.members:
        state = wire.GROUP_EMPTY
    elif group.is_rebalancing:
        state = wire.GROUP_REBALANCING
    else:
        state = wire.GROUP_STABLE
    return wire.GroupSummary(
        group=group.name,
        state=state,
        generation=group.generation,
        members=len(group.members),
        partitions=len(cursors),
        lag=sum(subscription.backlog for _, subscription in cursors),
    )


def describe_group(
    group: Group, cursors: Cursors, silent_ms: Callable[[Member], float]
) -> wire.CommandDescribeGroupResponse:
    """Describe a group with its members and partitions.

    Args:
        silent_ms: returns the milliseconds since a member's last heartbeat.
    """
    partitions = [_describe_partition(group, *cursor) for cursor in cursors]
    response = wire.CommandDescribeGroupResponse(
        summary=summary_of(group, cursors),
        allow_two_phase_commit=group.allow_two_phase_commit,
        partitions=partitions,
    )
    for member in group.members.values():
        owned = [partition for partition in partitions if partition.member_id == member.member_id]
        response.members.add(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_name=member.client_name,
            topics=sorted(member.topics),
            topic_pattern=member.topic_pattern,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            silent_ms=int(silent_ms(member)),
            partitions=len(owned),
            lag=sum(one.lag for one in owned),
        )
    return response


def _describe_partition(
    group: Group, partition: Partition, subscription: Subscription
) -> wire.GroupPartitionDescription:
    owner = group.partition_owners.get(partition.name)
    member_id = owner.member_id if owner is not None else ""
    taker = group.target.get(partition.name, "")
    return wire.GroupPartitionDescription(
        partition=partition.name.to_wire(),
        member_id=member_id,
        generation=owner.generation if owner is not None else 0,
        next_member_id=taker if taker != member_id else "",
        mark_delete_offset=subscription.cursor.floor,
        end_offset=partition.log.durable_end,
        lag=subscription.backlog,
        pending_ack_count=len(subscription.cursor.pending),
        awaited_txns=[one.to_wire() for one in subscription.awaited()[:AWAITED_SHOWN_MAX]],
    )
