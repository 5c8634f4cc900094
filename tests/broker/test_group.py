"""The group's state machine: whatever members do and fail to do, its invariants hold."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar_broker.assignment.group import Change, Group, Member
from magnetar_broker.assignment.group_target import Interest
from magnetar_core.errors import (
    FencedInstance,
    IllegalGeneration,
    InvalidArgument,
    UnknownMember,
)
from magnetar_core.ids import MemberName, PartitionName

PARTITIONS = tuple(PartitionName("t", number, 1) for number in range(6))
SESSION_MS = 10_000
REBALANCE_MS = 30_000


def newcomer(member_id: str, instance_id: str = "") -> Member:
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        topics=frozenset({"t"}),
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
    )


def interest(*member_ids: str, partitions: tuple[PartitionName, ...] = PARTITIONS) -> Interest:
    return Interest(partitions, dict.fromkeys(member_ids, frozenset({1})))


def joined(group: Group, member_id: str, now_ms: float = 0, instance_id: str = "") -> Change:
    return group.join(
        newcomer(member_id, instance_id),
        interest(*dict.fromkeys([*group.members, member_id])),
        now_ms,
    )


def beat(group: Group, member_id: str, now_ms: float = 0) -> Change:
    """A member that does as it is told: it holds what it is assigned."""
    held = group.assigned(member_id)
    return group.heartbeat(MemberName(member_id), held, now_ms)


def test_the_first_member_owns_everything_at_once() -> None:
    group = Group("g")
    change = joined(group, "a")
    assert set(change.given) == set(PARTITIONS)
    assert group.assigned("a") == dict.fromkeys(PARTITIONS, 1)


def test_a_partition_is_released_before_it_is_given() -> None:
    group = Group("g")
    joined(group, "a")
    held = group.assigned("a")
    change = joined(group, "b")
    assert not change.given, "nothing moves before its owner has let go of it"
    assert group.coming_count("b") == 3
    assert group.assigned("b") == {}
    assert len(group.assigned("a")) == 3
    # Still settling: it holds everything, and goes on to own it.
    assert not group.heartbeat(MemberName("a"), held, 1).given
    change = beat(group, "a", 2)
    assert len(change.given) == 3
    assert set(group.assigned("b").values()) == {2}
    assert set(group.assigned("a").values()) == {1}, "what stays keeps its generation"
    assert not group.is_rebalancing


def test_acks_are_held_against_owner_and_generation() -> None:
    group = Group("g")
    joined(group, "a")
    joined(group, "b")
    beat(group, "a")
    moved = next(iter(group.assigned("b")))
    stayed = next(iter(group.assigned("a")))
    group.check_partition_owner(stayed, MemberName("a", generation=1))
    group.check_partition_owner(moved, MemberName("b", generation=2))
    with pytest.raises(IllegalGeneration):
        group.check_partition_owner(moved, MemberName("a", generation=1))
    with pytest.raises(IllegalGeneration):
        # Whoever knows the generation is not the owner for that.
        group.check_partition_owner(moved, MemberName("a", generation=2))
    with pytest.raises(IllegalGeneration):
        group.check_partition_owner(moved, MemberName("b", generation=1))
    # It has the number from another broker, and does not know of this partition yet.
    with pytest.raises(IllegalGeneration, match="has not come to generation 3 here"):
        group.check_partition_owner(moved, MemberName("b", generation=3))
    with pytest.raises(UnknownMember):
        group.check_partition_owner(moved, MemberName("c", generation=9))


def test_a_heartbeat_that_came_before_is_late_whatever_came_since() -> None:
    group = Group("g")
    joined(group, "a")
    member = MemberName("a")
    assert [group.is_late_heartbeat(member, number) for number in (1, 2, 5)] == [False] * 3
    assert [group.is_late_heartbeat(member, number) for number in (5, 4, 3, 1)] == [True] * 4
    assert not group.is_late_heartbeat(member, 6)
    assert not group.is_late_heartbeat(member, 0), "who does not count is never late"


def test_who_is_silent_is_expelled_and_may_come_again() -> None:
    group = Group("g")
    joined(group, "a")
    joined(group, "b", 5_000)
    assert not group.overdue(9_999)
    assert [one.member_id for one in group.overdue(10_000)] == ["a"]
    change = group.expel(group.overdue(10_000), interest("b"), 10_000)
    assert change.gone == ["a"]
    assert set(group.assigned("b")) == set(PARTITIONS)
    with pytest.raises(UnknownMember):
        beat(group, "a", 11_000)
    joined(group, "a", 11_000)
    beat(group, "b", 11_000)
    regained = next(iter(group.assigned("a")))
    with pytest.raises(IllegalGeneration):
        group.check_partition_owner(regained, MemberName("a", generation=1))


def test_who_does_not_release_is_expelled() -> None:
    group = Group("g")
    joined(group, "a")
    held = group.assigned("a")
    joined(group, "b", 0)
    for now_ms in range(0, REBALANCE_MS, 5_000):
        group.heartbeat(MemberName("a"), held, now_ms)
        beat(group, "b", now_ms)
        assert not group.overdue(now_ms)
    group.heartbeat(MemberName("a"), held, REBALANCE_MS)
    assert [one.member_id for one in group.overdue(REBALANCE_MS)] == ["a"]


def test_each_release_gives_time_for_the_next_one() -> None:
    group = Group("g")
    joined(group, "a")
    held = group.assigned("a")
    joined(group, "b", 0)
    for number, partition in enumerate(group.asked_back("a")):
        now_ms = number * (REBALANCE_MS - 1_000)
        del held[partition]
        group.heartbeat(MemberName("a"), held, now_ms)
        assert not [one for one in group.overdue(now_ms) if one.member_id == "a"]
    assert not group.is_rebalancing


def test_a_restarted_instance_keeps_its_partitions_and_fences_its_former_self() -> None:
    group = Group("g")
    joined(group, "a1", instance_id="worker-a")
    joined(group, "b1", instance_id="worker-b")
    beat(group, "a1")
    before = dict(group.partition_owners)
    change = joined(group, "a2", instance_id="worker-a")
    assert change.gone == ["a1"]
    for partition, owner in before.items():
        now = group.partition_owners[partition]
        assert now.member_id == ("a2" if owner.member_id == "a1" else "b1")
        assert (now.generation > owner.generation) == (owner.member_id == "a1")
    with pytest.raises(FencedInstance):
        group.check_partition_owner(next(iter(before)), MemberName("a1", "worker-a", 9))
    with pytest.raises(FencedInstance):
        group.heartbeat(MemberName("a1", "worker-a"), {}, 0)


def test_a_member_keeps_its_instance_id() -> None:
    group = Group("g")
    joined(group, "a", instance_id="one")
    with pytest.raises(InvalidArgument):
        joined(group, "a", instance_id="other")


def test_joining_again_is_a_repeat() -> None:
    group = Group("g")
    joined(group, "a")
    change = joined(group, "a", 1)
    assert (change, group.generation) == (Change(), 1)


def test_a_topic_that_is_deleted_takes_its_partitions_along() -> None:
    group = Group("g")
    joined(group, "a")
    joined(group, "b")
    beat(group, "a")
    change = group.topics_changed(interest("a", "b", partitions=()), 0)
    assert not group.partition_owners
    assert set(change.to_notify) == {"a", "b"}
    assert group.members["a"].asked_back_ms is None
    assert not group.topics_changed(interest("a", "b", partitions=()), 0).reassigned


def test_time_in_which_nobody_could_be_heard_does_not_count() -> None:
    group = Group("g")
    joined(group, "a")
    joined(group, "b")
    group.forgive(60_000)
    assert not group.overdue(60_000 + SESSION_MS - 1)
    assert len(group.overdue(60_000 + SESSION_MS)) == 2


class GroupMachine(RuleBasedStateMachine):
    """Members that join, leave, die, stall and obey, with a clock that goes on."""

    names = st.sampled_from(["a", "b", "c", "d"])

    def __init__(self) -> None:
        super().__init__()
        self.group = Group("g")
        self.now_ms = 0.0
        self.deleted: set[PartitionName] = set()
        # What members believe to hold, with the generation.
        self.held: dict[str, dict[PartitionName, int]] = {}
        # Every owner there ever was.
        self.history: dict[tuple[PartitionName, int], str] = {}

    def interest(self, members: list[str]) -> Interest:
        left = tuple(partition for partition in PARTITIONS if partition not in self.deleted)
        return interest(*members, partitions=left)

    def apply(self, change: Change) -> None:
        for partition, owner in change.given.items():
            if owner is not None:
                place = partition, owner.generation
                assert self.history.setdefault(place, owner.member_id) == owner.member_id, (
                    "two owners in one generation"
                )

    @rule(name=names)
    def join(self, name: str) -> None:
        members = list(dict.fromkeys([*self.group.members, name]))
        self.apply(self.group.join(newcomer(name), self.interest(members), self.now_ms))

    @rule(name=names, number=st.integers(0, 9))
    def replace(self, name: str, number: int) -> None:
        """A static member's next self."""
        member_id, instance_id = f"{name}{number}", f"instance-{name}"
        if self.group.members.get(member_id) is None:
            others = [member.member_id for member in self.group.members.values()]
            members = [one for one in others if self.group.members[one].instance_id != instance_id]
            self.apply(
                self.group.join(
                    newcomer(member_id, instance_id),
                    self.interest([*members, member_id]),
                    self.now_ms,
                )
            )

    @precondition(lambda self: self.group.members)
    @rule(data=st.data(), obeys=st.booleans())
    def heartbeat(self, data: st.DataObject, obeys: bool) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.group.members)))
        name = MemberName(member_id, self.group.members[member_id].instance_id)
        held = self.held.setdefault(member_id, {})
        if obeys:
            assigned = self.group.assigned(member_id)
            for one in [one for one in held if assigned.get(one) != held[one]]:
                del held[one]
        self.apply(self.group.heartbeat(name, held, self.now_ms))
        held.update(self.group.assigned(member_id))

    @precondition(lambda self: self.group.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.group.members)))
        name = MemberName(member_id, self.group.members[member_id].instance_id)
        left = [one for one in self.group.members if one != member_id]
        self.apply(self.group.leave(name, self.interest(left), self.now_ms))

    @rule(by_ms=st.integers(1, 8_000))
    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms
        overdue = self.group.overdue(self.now_ms)
        left = [member for member in self.group.members.values() if member not in overdue]
        ids = [one.member_id for one in left]
        if overdue:
            self.apply(self.group.expel(overdue, self.interest(ids), self.now_ms))

    @rule(partition=st.sampled_from(PARTITIONS))
    def topic_comes_or_goes(self, partition: PartitionName) -> None:
        self.deleted ^= {partition}
        members = self.interest(list(self.group.members))
        self.apply(self.group.topics_changed(members, self.now_ms))

    @invariant()
    def is_sound(self) -> None:
        self.group.check()

    @invariant()
    def everything_is_owned_while_somebody_is_there(self) -> None:
        if self.group.members:
            assert set(self.group.partition_owners) == set(PARTITIONS) - self.deleted

    @invariant()
    def ends_when_all_obey(self) -> None:
        """From anywhere: two rounds of obedient heartbeats, and nothing is on its way."""
        if not self.group.members or self.group.generation % 7:
            return
        for _ in range(2):
            for member in list(self.group.members.values()):
                name = MemberName(member.member_id, member.instance_id)
                held = self.group.assigned(member.member_id)
                self.apply(self.group.heartbeat(name, held, self.now_ms))
                self.held[member.member_id] = held
        assert not self.group.is_rebalancing


GroupMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestGroupMachine = GroupMachine.TestCase
