"""Groups of the cluster in memory, as docs/design/0003-groups.md has them."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from typing import Any

from magnetar.testing.envelope import command
from magnetar_core.errors import (
    FencedInstance,
    IllegalGeneration,
    InvalidArgument,
    MagnetarError,
    TopicNotFound,
    UnknownMember,
)
from magnetar_core.ids import PartitionName
from magnetar_core.wire import broker_pb2, group_pb2

Place = tuple[str, int]


@dataclass
class FakeMember:
    join: Any
    link: Any
    order: int
    held: dict[Place, int] = field(default_factory=dict)


@dataclass
class FakeGroup:
    generation: int = 0
    members: dict[str, FakeMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    # Who has a partition, and since when; and who is to have it.
    owners: dict[Place, tuple[str, int]] = field(default_factory=dict)
    target: dict[Place, str] = field(default_factory=dict)
    # An owner that waits there for transactions of earlier ones.
    waiting: set[Place] = field(default_factory=set)


class FakeGroups:
    """Mixed into FakeCluster."""

    topics: dict[str, Any]
    cursors: dict[tuple[str, str, int], Any]

    def __init__(self) -> None:
        self.groups: dict[str, FakeGroup] = {}
        self.joined_count = 0
        self.heartbeat_interval_ms = 5

    def on_join_group(self, link: Any, body: Any) -> Any:
        for topic in body.topics:
            if topic not in self.topics:
                raise TopicNotFound(f"{topic} does not exist")
        if not body.topics and not body.topic_pattern:
            raise InvalidArgument()
        group = self.groups.setdefault(body.group, FakeGroup())
        before = group.instances.get(body.instance_id) if body.instance_id else None
        if body.member_id in group.members:
            group.members[body.member_id].link = link
        else:
            self.joined_count += 1
            order = self.joined_count
            if before is not None:
                order = group.members.pop(before).order
            group.members[body.member_id] = FakeMember(body, link, order)
            if body.instance_id:
                group.instances[body.instance_id] = body.member_id
            group.generation += 1
            for place, (owner, _) in list(group.owners.items()):
                if owner == before:
                    self.give(body.group, place, body.member_id)
            self.rebalance(body.group)
        return group_pb2.CommandJoinGroupResponse(
            session_timeout_ms=body.session_timeout_ms or 10_000,
            rebalance_timeout_ms=body.rebalance_timeout_ms or 30_000,
            state=self.state(group, body.member_id),
        )

    def on_group_heartbeat(self, link: Any, body: Any) -> Any:
        group = self.groups.get(body.group, FakeGroup())
        member = self.member_of(group, body.member_id, body.instance_id)
        member.link = link
        member.held = {
            (one.partition.topic, one.partition.partition): one.generation for one in body.held
        }
        for place, (owner, _) in list(group.owners.items()):
            wanted_by_another = group.target.get(place) != body.member_id
            if owner == body.member_id and wanted_by_another and place not in member.held:
                del group.owners[place]
        self.settle(body.group)
        return self.state(group, body.member_id)

    def on_leave_group(self, link: Any, body: Any) -> Any:
        group = self.groups.get(body.group, FakeGroup())
        self.member_of(group, body.member_id, body.instance_id)
        self.expel(body.group, body.member_id)
        return group_pb2.CommandLeaveGroupResponse()

    # What tests do.

    def expel(self, name: str, member_id: str) -> None:
        """Give all that it has away, and tell the others."""
        group = self.groups[name]
        member = group.members.pop(member_id)
        group.instances.pop(member.join.instance_id, None)
        for place, (owner, _) in list(group.owners.items()):
            if owner == member_id:
                del group.owners[place]
                self.close_place(name, place)
        group.generation += 1
        self.rebalance(name)

    def take_away(self, name: str, place: Place) -> None:
        """Give a partition to its owner again, in a later generation."""
        group = self.groups[name]
        group.generation += 1
        self.give(name, place, group.owners[place][0])
        self.announce(name)

    def rebalance(self, name: str) -> None:
        group = self.groups[name]
        group.target.clear()
        in_order = sorted(group.members.items(), key=lambda one: one[1].order)
        loads = dict.fromkeys((one for one, _ in in_order), 0)
        for topic, (_, partitions) in self.topics.items():
            wanting = [one for one, member in in_order if wants(member, topic)]
            numbers = [one for one in range(len(partitions)) if self.assigns(topic, one)]
            share = -(-len(numbers) // len(wanting)) if wanting else 0
            for number in numbers:
                owner = group.owners.get((topic, number), ("", 0))[0]
                if owner in wanting and loads[owner] < share:
                    group.target[topic, number] = owner
                    loads[owner] += 1
            for number in numbers:
                if wanting and (topic, number) not in group.target:
                    least = min(wanting, key=lambda one: loads[one])
                    group.target[topic, number] = least
                    loads[least] += 1
        self.settle(name)
        self.announce(name)

    def assigns(self, topic: str, number: int) -> bool:
        """Whether a partition is assigned here; with several brokers each has its own."""
        return True

    def settle(self, name: str) -> None:
        """Give what is free to whom it is meant for."""
        group = self.groups[name]
        for place, member_id in group.target.items():
            if place not in group.owners:
                group.owners[place] = (member_id, group.generation)
                self.announce(name)

    def give(self, name: str, place: Place, member_id: str) -> None:
        self.groups[name].owners[place] = (member_id, self.groups[name].generation)
        self.close_place(name, place)

    def close_place(self, name: str, place: Place) -> None:
        cursor = self.cursors.get((place[0], name, place[1]))
        if cursor is not None:
            self.close_attached(cursor, place[1], IllegalGeneration())

    def close_attached(
        self, cursor: Any, partition: int, error: MagnetarError | None = None
    ) -> None:
        raise NotImplementedError

    def announce(self, name: str) -> None:
        for member_id, member in self.groups[name].members.items():
            change = group_pb2.CommandGroupChange(group=name, member_id=member_id)
            member.link.push(command(change))

    def tell_waiting(self, name: str, place: Place, *, waiting: bool) -> None:
        group = self.groups[name]
        (group.waiting.add if waiting else group.waiting.discard)(place)
        cursor = self.cursors[place[0], name, place[1]]
        for consumer_id, attachment in cursor.attached.items():
            change = broker_pb2.CommandConsumerChange(
                consumer_id=consumer_id, partition=place[1], active=True, waiting=waiting
            )
            attachment.link.push(command(change))

    # What the others ask.

    def state(self, group: FakeGroup, member_id: str) -> group_pb2.CommandGroupHeartbeatResponse:
        mine = [place for place, owner in group.target.items() if owner == member_id]
        return group_pb2.CommandGroupHeartbeatResponse(
            generation=group.generation,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            assigned=[
                group_pb2.AssignedPartition(
                    partition=PartitionName(*place, self.topics[place[0]][0]).to_wire(),
                    generation=group.owners[place][1],
                )
                for place in mine
                if group.owners.get(place, ("", 0))[0] == member_id
            ],
            coming=sum(group.owners.get(place, ("", 0))[0] != member_id for place in mine),
        )

    def member_of(self, group: FakeGroup, member_id: str, instance_id: str) -> FakeMember:
        newer = group.instances.get(instance_id, member_id) if instance_id else member_id
        if newer != member_id:
            raise FencedInstance()
        if member_id not in group.members:
            raise UnknownMember()
        return group.members[member_id]

    def fence(self, body: Any) -> None:
        """Check who subscribes, acknowledges or seeks on a group's partition."""
        wire = body.subscription
        group = self.groups.get(wire.subscription)
        if group is None:
            return
        if not body.HasField("member"):
            if group.members:
                raise UnknownMember()
            return
        self.member_of(group, body.member.member_id, body.member.instance_id)
        owner, since = group.owners.get((wire.topic, wire.partition), ("", 0))
        if owner != body.member.member_id or body.member.generation < since:
            raise IllegalGeneration()
        two_phase_commit = getattr(body, "two_phase_commit", False)
        member = group.members[owner]
        if two_phase_commit and not member.join.allow_two_phase_commit:
            raise InvalidArgument("the group does not allow two-phase commit")

    def is_waiting(self, wire: Any) -> bool:
        group = self.groups.get(wire.subscription)
        return group is not None and (wire.topic, wire.partition) in group.waiting


def wants(member: FakeMember, topic: str) -> bool:
    pattern = member.join.topic_pattern
    return topic in member.join.topics or bool(pattern and fnmatch.fnmatchcase(topic, pattern))
