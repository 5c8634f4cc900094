"""Group: its members, the target assignment, and the present owner of each partition. Pure.

    unowned --target--> owned --target names another--> asked back --released--> unowned
                          |                                 |
                          +------- the owner is gone -------+--> unowned

Every change of the target raises the generation, and a partition gets a new owner at most once in
each: partition and generation together name a single owner.
Source: docs/design/0003-groups.md; KIP-848; KIP-447.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar_broker.assignment.assignment import assign
from magnetar_broker.assignment.group_target import Interest, target_at_one_of_many
from magnetar_broker.assignment.past_members import PastMember, PastMembers
from magnetar_core.errors import FencedInstance, IllegalGeneration, InvalidArgument, UnknownMember
from magnetar_core.ids import MemberName, PartitionName


class PartitionOwner(NamedTuple):
    """Owner of a partition, and the generation since which it is the owner."""

    member_id: str
    generation: int


@dataclass(slots=True, kw_only=True)
class Member:
    """Member of a group, from its first join until it leaves or is expelled."""

    member_id: str
    instance_id: str = ""
    client_name: str = ""
    topics: frozenset[str] = frozenset()
    # Pattern with a shell's wildcards; empty: none.
    topic_pattern: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # Time of its last heartbeat or join.
    heard_ms: float = 0.0
    # Since when it must release partitions; None: nothing to release.
    asked_back_ms: float | None = None
    # The member raises both with each call, so that late copies are recognised. The number of
    # heartbeats is not stored: after a restart, a late one gives back what was asked back at most,
    # and its member's acks there are refused from then on.
    join_epoch: int = 0
    heartbeat_number: int = 0

    @property
    def deadline_ms(self) -> float:
        """When the member is expelled, unless it sends heartbeats and releases partitions."""
        deadline_ms = self.heard_ms + self.session_timeout_ms
        if self.asked_back_ms is None:
            return deadline_ms
        return min(deadline_ms, self.asked_back_ms + self.rebalance_timeout_ms)


@dataclass(slots=True)
class Change:
    """Changes that a step has made.

    Attributes:
        given: partitions with a new owner, or none.
        to_notify: members that must be told.
        gone: members that are no longer there.
        reassigned: there is a new target, and so a new generation.
    """

    given: dict[PartitionName, PartitionOwner | None] = field(default_factory=dict)
    to_notify: dict[str, None] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    reassigned: bool = False


class Group:
    """Members of a group, and their partitions."""

    def __init__(
        self,
        name: str,
        *,
        generation: int = 0,
        allow_two_phase_commit: bool = False,
        past_members: PastMembers | None = None,
    ) -> None:
        self.name = name
        self.generation = generation
        self.allow_two_phase_commit = allow_two_phase_commit
        self.members: dict[str, Member] = {}
        self.partition_owners: dict[PartitionName, PartitionOwner] = {}
        self.target: dict[PartitionName, str] = {}
        # Also those of a deleted group of this name.
        self.past_members = past_members if past_members is not None else PastMembers()

    def check(self) -> None:
        """Check the invariants."""
        for owner in self.partition_owners.values():
            assert owner.member_id in self.members
            assert owner.generation <= self.generation
        for partition, member_id in self.target.items():
            assert member_id in self.members
            assert partition in self.partition_owners, (
                "a member has interest in it, and none has it"
            )
        instances = [member.instance_id for member in self.members.values() if member.instance_id]
        assert len(instances) == len(dict.fromkeys(instances))

    # Authorization

    def member(self, name: MemberName) -> Member:
        """Return the member that a command names.

        Raises:
            UnknownMember: never joined, left, or expelled.
            FencedInstance: a newer member has its instance id.
        """
        found = self.members.get(name.member_id)
        if found is not None:
            return found
        if name.instance_id and self._by_instance(name.instance_id) is not None:
            raise FencedInstance(
                f"another member of group {self.name!r} has the instance id {name.instance_id!r}"
            )
        raise UnknownMember(
            f"group {self.name!r} has no member {name.member_id!r}: it never joined, left, or was"
            " expelled; join again",
        )

    def check_partition_owner(self, partition: PartitionName, name: MemberName) -> None:
        """Check that a member may act on a partition.

        Raises:
            UnknownMember: as member().
            FencedInstance: as member().
            IllegalGeneration: the member does not own it, or got it again since, or names a
                generation of another broker.
        """
        self.member(name)
        owner = self.partition_owners.get(partition)
        if owner is None or owner.member_id != name.member_id:
            raise IllegalGeneration(
                f"{name.member_id!r} does not own {partition} in group {self.name!r}",
                generation=self.generation,
            )
        if name.generation > self.generation:
            # Brokers count apart. The owner has not been told yet that it is one here.
            raise IllegalGeneration(
                f"group {self.name!r} has not come to generation {name.generation} here: it is in"
                f" {self.generation}",
                generation=self.generation,
            )
        if name.generation < owner.generation:
            raise IllegalGeneration(
                f"{name.member_id!r} got {partition} again in generation {owner.generation} of"
                f" group {self.name!r}; this is of {name.generation}",
                generation=owner.generation,
            )

    # Steps

    def refuse_late_join(self, newcomer: Member) -> None:
        """Refuse a late copy of a join.

        Raises:
            UnknownMember: the member has left since, or joined again.
        """
        known = self.members.get(newcomer.member_id)
        past = self.past_members.find(newcomer.member_id)
        is_late = (known is not None and 0 < newcomer.join_epoch < known.join_epoch) or (
            past is not None and 0 < newcomer.join_epoch <= past.join_epoch
        )
        if is_late:
            raise UnknownMember(
                f"{newcomer.member_id!r} has left the group {self.name!r} since, or joined anew:"
                " raise join_epoch to join again"
            )

    def is_late_heartbeat(self, name: MemberName, number: int) -> bool:
        """Return whether a heartbeat is a late copy, whose list of held partitions is outdated.

        Raises:
            UnknownMember: as member().
            FencedInstance: as member().
        """
        member = self.member(name)
        if 0 < number <= member.heartbeat_number:
            return True
        member.heartbeat_number = max(number, member.heartbeat_number)
        return False

    def join(self, newcomer: Member, interest: Interest, now_ms: float) -> Change:
        """Add a member, update it, or let it take the place of a member with its instance id.

        Args:
            interest: includes the newcomer's topics.
        Raises:
            InvalidArgument: it joined before under another instance id.
        """
        change = Change()
        newcomer.heard_ms = now_ms
        known = self.members.get(newcomer.member_id)
        if known is not None:
            if known.instance_id != newcomer.instance_id:
                raise InvalidArgument(
                    f"{newcomer.member_id!r} joined with the instance id {known.instance_id!r}"
                )
            newcomer.asked_back_ms = known.asked_back_ms
            newcomer.heartbeat_number = known.heartbeat_number
            if (known.topics, known.topic_pattern) == (newcomer.topics, newcomer.topic_pattern):
                self.members[newcomer.member_id] = newcomer
                return change
        past = self.past_members.back(newcomer.member_id)
        if past is not None:
            newcomer.heartbeat_number = past.heartbeat_number
        replaced = self._by_instance(newcomer.instance_id) if newcomer.instance_id else None
        if replaced is not None and replaced.member_id != newcomer.member_id:
            self._replace(replaced, newcomer, change)
        self.members[newcomer.member_id] = newcomer
        self._assign(interest, change, now_ms)
        # The answer to its join tells it already.
        change.to_notify.pop(newcomer.member_id, None)
        return change

    def heartbeat(
        self, name: MemberName, held: Mapping[PartitionName, int], now_ms: float
    ) -> Change:
        """Note a heartbeat, and release partitions that were asked back and are no longer held.

        Args:
            held: held partitions, with the generation in which the member got each.
        Raises:
            UnknownMember: as member().
            FencedInstance: as member().
        """
        member = self.member(name)
        member.heard_ms = now_ms
        change = Change()
        for partition in self.asked_back(member.member_id):
            if held.get(partition) != self.partition_owners[partition].generation:
                del self.partition_owners[partition]
                change.given[partition] = None
        if change.given:
            # The member releases as asked: the remaining partitions get a new deadline.
            member.asked_back_ms = None
            self._reconcile(change, now_ms)
        change.to_notify.pop(member.member_id, None)
        return change

    def leave(self, name: MemberName, interest: Interest, now_ms: float) -> Change:
        """Remove a member that leaves.

        Args:
            interest: without the topics of this member alone.
        Raises:
            UnknownMember: as member().
            FencedInstance: as member().
        """
        change = Change()
        self._remove(self.member(name), change)
        self._assign(interest, change, now_ms)
        return change

    def overdue(self, now_ms: float) -> list[Member]:
        """Return the members that must be expelled."""
        return [member for member in self.members.values() if member.deadline_ms <= now_ms]

    def expel(self, members: Iterable[Member], interest: Interest, now_ms: float) -> Change:
        """Remove members that sent no heartbeat, or do not release partitions.

        Args:
            interest: without the topics of these members alone.
        """
        change = Change()
        for member in members:
            self._remove(member, change)
        self._assign(interest, change, now_ms)
        return change

    def topics_changed(self, interest: Interest, now_ms: float) -> Change:
        """Assign again if topics of the members came or went."""
        change = Change()
        if self._target_of(interest) != self.target:
            self._assign(interest, change, now_ms)
        for partition in self.partition_owners.keys() - dict.fromkeys(interest.assignable):
            # The topic was deleted: there is nothing to release.
            change.to_notify[self.partition_owners.pop(partition).member_id] = None
        self._reconcile(change, now_ms)
        return change

    def restored(self, interest: Interest, now_ms: float) -> Change:
        """Assign after a restart: members and owners are as they were."""
        self.target = {
            partition: owner.member_id for partition, owner in self.partition_owners.items()
        }
        self.forgive(now_ms)
        return self.topics_changed(interest, now_ms)

    def forgive(self, now_ms: float) -> None:
        """Start all timeouts anew, because the broker could not receive heartbeats until now."""
        for member in self.members.values():
            member.heard_ms = now_ms
            if member.asked_back_ms is not None:
                member.asked_back_ms = now_ms

    # Views

    def assigned(self, member_id: str) -> dict[PartitionName, int]:
        """Return partitions that a member owns and keeps, with the generation of its ownership."""
        return {
            partition: owner.generation
            for partition, owner in self.partition_owners.items()
            if owner.member_id == member_id and self.target.get(partition) == member_id
        }

    def asked_back(self, member_id: str) -> list[PartitionName]:
        """Return partitions that a member owns and must release."""
        return [
            partition
            for partition, owner in self.partition_owners.items()
            if owner.member_id == member_id and self.target.get(partition) != member_id
        ]

    def coming_count(self, member_id: str) -> int:
        """Return how many partitions a member gets once others have released them."""
        return sum(
            taker == member_id and self.partition_owners[partition].member_id != member_id
            for partition, taker in self.target.items()
        )

    @property
    def is_rebalancing(self) -> bool:
        """Whether an owner differs from the target."""
        return any(
            self.target.get(one) != owner.member_id for one, owner in self.partition_owners.items()
        )

    @property
    def next_deadline_ms(self) -> float | None:
        """Return when the next member may be overdue; None without members."""
        return min((member.deadline_ms for member in self.members.values()), default=None)

    # Within a step

    def _by_instance(self, instance_id: str) -> Member | None:
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member
        return None

    def _replace(self, old: Member, new: Member, change: Change) -> None:
        """Replace a member by a new member of the same instance, in a later generation.

        The generation fences the old member.
        """
        self.generation += 1
        self._part_with(old)
        change.gone.append(old.member_id)
        for partition, owner in self.partition_owners.items():
            if owner.member_id == old.member_id:
                taken = PartitionOwner(new.member_id, self.generation)
                self.partition_owners[partition] = change.given[partition] = taken
        for partition, taker in self.target.items():
            if taker == old.member_id:
                self.target[partition] = new.member_id

    def _remove(self, member: Member, change: Change) -> None:
        self._part_with(member)
        change.gone.append(member.member_id)
        for partition, owner in list(self.partition_owners.items()):
            if owner.member_id == member.member_id:
                del self.partition_owners[partition]
                change.given[partition] = None

    def _part_with(self, member: Member) -> None:
        del self.members[member.member_id]
        past = PastMember(member.join_epoch, member.heartbeat_number)
        self.past_members.note(member.member_id, past)

    def _target_of(self, interest: Interest) -> dict[PartitionName, str]:
        if interest.hosted is not None:
            return target_at_one_of_many(interest, _places(self.members.values()))
        owners = {
            # A partition counts for its future owner: a second change moves as little as the first.
            partition: self.target.get(partition, owner.member_id)
            for partition, owner in self.partition_owners.items()
        }
        return assign(interest.partitions, interest.wanted, owners)

    def _assign(self, interest: Interest, change: Change, now_ms: float) -> None:
        self.target = {one: taker for one, taker in self.target.items() if taker in self.members}
        self.target = self._target_of(interest)
        self.generation += 1
        change.reassigned = True
        self._reconcile(change, now_ms)

    def _reconcile(self, change: Change, now_ms: float) -> None:
        """Give free partitions to their target, and ask other owners to release theirs."""
        for partition, taker in self.target.items():
            if partition not in self.partition_owners:
                given = PartitionOwner(taker, self.generation)
                self.partition_owners[partition] = change.given[partition] = given
                change.to_notify[taker] = None
        asked = {
            owner.member_id: None
            for partition, owner in self.partition_owners.items()
            if self.target.get(partition) != owner.member_id
        }
        change.to_notify.update(asked)
        for member in self.members.values():
            if member.member_id not in asked:
                member.asked_back_ms = None
            elif member.asked_back_ms is None:
                member.asked_back_ms = now_ms


def _places(members: Iterable[Member]) -> dict[str, str]:
    """Return a name for each member's place, which a static member leaves to its next self."""
    return {
        member.member_id: f"instance {member.instance_id}"
        if member.instance_id
        else f"member {member.member_id}"
        for member in members
    }
