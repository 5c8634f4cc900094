"""Descriptions of groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self

from magnetar_core.ids import TxnID
from magnetar_core.wire import group_pb2


class GroupState(IntEnum):
    """The state of a group.

    EMPTY: it has no members; its cursors stay. STABLE: all partitions are assigned. REBALANCING:
    partitions are moving to other members.
    """

    EMPTY = 0
    STABLE = 1
    REBALANCING = 2


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a list of groups.

    Attributes:
        generation: a number that rises with each new assignment.
        members: how many members it has.
        partitions: how many partitions it has.
        lag: how many messages are not acknowledged, over all partitions.
    """

    group: str
    state: GroupState
    generation: int
    members: int
    partitions: int
    lag: int

    @classmethod
    def from_wire(cls, wire: group_pb2.GroupSummary) -> Self:
        return cls(
            wire.group,
            GroupState(wire.state),
            wire.generation,
            wire.members,
            wire.partitions,
            wire.lag,
        )


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    Attributes:
        instance_id: the instance id of a static member; empty for a dynamic member.
        topic_pattern: a pattern with wildcards as in a shell; empty: none.
        silent_ms: how long ago the broker last heard from it, in milliseconds.
        partitions: how many partitions it owns.
        lag: how many messages of these partitions are not acknowledged.
    """

    member_id: str
    instance_id: str
    client_name: str
    topics: tuple[str, ...]
    topic_pattern: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    silent_ms: int
    partitions: int
    lag: int

    @classmethod
    def from_wire(cls, wire: group_pb2.GroupMemberDescription) -> Self:
        return cls(
            wire.member_id,
            wire.instance_id,
            wire.client_name,
            tuple(wire.topics),
            wire.topic_pattern,
            wire.session_timeout_ms,
            wire.rebalance_timeout_ms,
            wire.silent_ms,
            wire.partitions,
            wire.lag,
        )


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition of a group.

    Attributes:
        member_id: the member that owns it; empty: no member does.
        generation: the generation in which the owner got it.
        next_member_id: the next owner, when this owner has released it; empty: it does not move.
        mark_delete_offset: all messages below it are acknowledged.
        lag: how many messages are not acknowledged, including those pending in transactions.
        awaited_txns: the transactions of earlier generations for which the owner waits; the first
            100.
    """

    topic: str
    partition: int
    member_id: str
    generation: int
    next_member_id: str
    mark_delete_offset: int
    end_offset: int
    lag: int
    pending_ack_count: int
    awaited_txns: tuple[TxnID, ...]

    @classmethod
    def from_wire(cls, wire: group_pb2.GroupPartitionDescription) -> Self:
        return cls(
            wire.partition.topic,
            wire.partition.partition,
            wire.member_id,
            wire.generation,
            wire.next_member_id,
            wire.mark_delete_offset,
            wire.end_offset,
            wire.lag,
            wire.pending_ack_count,
            tuple(TxnID.from_wire(one) for one in wire.awaited_txns),
        )


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members and partitions.

    Attributes:
        summary: the group's state and sizes.
        allow_two_phase_commit: whether members may acknowledge in prepared transactions.
    """

    summary: GroupSummary
    allow_two_phase_commit: bool
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]

    @classmethod
    def from_wire(cls, wire: group_pb2.CommandDescribeGroupResponse) -> Self:
        return cls(
            GroupSummary.from_wire(wire.summary),
            wire.allow_two_phase_commit,
            tuple(GroupMember.from_wire(one) for one in wire.members),
            tuple(GroupPartition.from_wire(one) for one in wire.partitions),
        )


class OffsetReset(NamedTuple):
    """The offset of a partition's cursor before and after a reset."""

    topic: str
    partition: int
    old_offset: int
    new_offset: int
