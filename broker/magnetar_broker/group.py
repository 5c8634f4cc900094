"""A group: its members, the target assignment, and who owns which partition meanwhile. Pure.

    nobody's --target--> owned --target names another--> asked back --released--> nobody's
                          |                                 |
                          +------- the owner is gone -------+--> nobody's

Every change of the target raises the generation, and a partition is given away at most once in
each: partition and generation name one owner.
Source: docs/design/0003-groups.md; KIP-848; KIP-447.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar_broker.assignment import assign
from magnetar_core.errors import FencedInstance, IllegalGeneration, InvalidArgument, UnknownMember
from magnetar_core.ids import MemberName, PartitionName


class Owner(NamedTuple):
    """Of a partition, since a generation."""

    member_id: str
    generation: int


# Members that have left and are still known.
PAST_MEMBERS_MAX = 1_000


@dataclass(slots=True, kw_only=True)
class Member:
    """One member, from its first join until it leaves or is expelled."""

    member_id: str
    instance_id: str = ""
    client_name: str = ""
    topics: frozenset[str] = frozenset()
    # With a shell's wildcards; empty: none.
    topic_pattern: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # When its last sign of life came.
    heard_ms: float = 0.0
    # Since when it has something to release; None: nothing.
    asked_back_ms: float | None = None
    # Raised by the member with each call, to know late copies; not kept over a restart, which
    # copies do not survive.
    join_epoch: int = 0
    heartbeat_number: int = 0

    @property
    def deadline_ms(self) -> float:
        """When it is expelled, unless it does what is expected of it."""
        deadline_ms = self.heard_ms + self.session_timeout_ms
        if self.asked_back_ms is None:
            return deadline_ms
        return min(deadline_ms, self.asked_back_ms + self.rebalance_timeout_ms)


@dataclass(slots=True)
class Change:
    """What a step has changed.

    Attributes:
        given: partitions with a new owner, or none.
        told: members that have to hear of it.
        gone: members that are no longer there.
        reassigned: there is a new target, and so a new generation.
    """

    given: dict[PartitionName, Owner | None] = field(default_factory=dict)
    told: dict[str, None] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    reassigned: bool = False


class Interest(NamedTuple):
    """What the members of a group want, among the topics that there are.

    Attributes:
        partitions: of all these topics.
        wanted: topic ids by member.
    """

    partitions: tuple[PartitionName, ...]
    wanted: Mapping[str, frozenset[int]]


class Group:
    """The members of one group and their partitions."""

    def __init__(
        self, name: str, *, generation: int = 0, allow_two_phase_commit: bool = False
    ) -> None:
        self.name = name
        self.generation = generation
        self.allow_two_phase_commit = allow_two_phase_commit
        self.members: dict[str, Member] = {}
        self.owners: dict[PartitionName, Owner] = {}
        self.target: dict[PartitionName, str] = {}
        # Who has left, or was replaced, the latest last: to know late copies of what they said.
        self._past_members: dict[str, Member] = {}

    def check(self) -> None:
        """Our bugs assert; clients' mistakes raise."""
        for owner in self.owners.values():
            assert owner.member_id in self.members
            assert owner.generation <= self.generation
        for partition, member_id in self.target.items():
            assert member_id in self.members
            assert partition in self.owners, "somebody wants it, and nobody has it"
        instances = [one.instance_id for one in self.members.values() if one.instance_id]
        assert len(instances) == len(dict.fromkeys(instances))

    # Who may do what

    def member(self, name: MemberName) -> Member:
        """The member that a command names.

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

    def check_owner(self, partition: PartitionName, name: MemberName) -> None:
        """Whether a member may act on a partition.

        Raises:
            UnknownMember, FencedInstance: as member().
            IllegalGeneration: it does not own it, or has got it again since.
        """
        self.member(name)
        owner = self.owners.get(partition)
        if owner is None or owner.member_id != name.member_id:
            raise IllegalGeneration(
                f"{name.member_id!r} does not own {partition} in group {self.name!r}",
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
        """Raises: UnknownMember: a copy of an earlier call. It has left since, or joined anew."""
        known = self.members.get(newcomer.member_id)
        past = self._past_members.get(newcomer.member_id)
        is_late = (known is not None and 0 < newcomer.join_epoch < known.join_epoch) or (
            past is not None and 0 < newcomer.join_epoch <= past.join_epoch
        )
        if is_late:
            raise UnknownMember(
                f"{newcomer.member_id!r} has left the group {self.name!r} since, or joined anew:"
                " raise join_epoch to join again"
            )

    def is_late_heartbeat(self, name: MemberName, number: int) -> bool:
        """Whether it is a copy of an earlier one, which names what was held then.

        Raises: as member().
        """
        member = self.member(name)
        if 0 < number <= member.heartbeat_number:
            return True
        member.heartbeat_number = max(number, member.heartbeat_number)
        return False

    def join(self, newcomer: Member, interest: Interest, now_ms: float) -> Change:
        """A member joins, joins again, or takes the place of one with its instance id.

        Args:
            interest: with what the newcomer wants.
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
        past = self._past_members.pop(newcomer.member_id, None)
        if past is not None:
            newcomer.heartbeat_number = past.heartbeat_number
        replaced = self._by_instance(newcomer.instance_id) if newcomer.instance_id else None
        if replaced is not None and replaced.member_id != newcomer.member_id:
            self._replace(replaced, newcomer, change)
        self.members[newcomer.member_id] = newcomer
        self._assign(interest, change, now_ms)
        # Its answer says it.
        change.told.pop(newcomer.member_id, None)
        return change

    def heartbeat(
        self, name: MemberName, held: Mapping[PartitionName, int], now_ms: float
    ) -> Change:
        """A sign of life; what was asked back and is no longer held is released.

        Args:
            held: with the generation in which it got each.
        Raises: as member().
        """
        member = self.member(name)
        member.heard_ms = now_ms
        change = Change()
        for partition in self.asked_back(member.member_id):
            if held.get(partition) != self.owners[partition].generation:
                del self.owners[partition]
                change.given[partition] = None
        if change.given:
            # It does what it was asked for: what is left has its own time.
            member.asked_back_ms = None
            self._reconcile(change, now_ms)
        change.told.pop(member.member_id, None)
        return change

    def leave(self, name: MemberName, interest: Interest, now_ms: float) -> Change:
        """A member goes. Raises: as member(). Args: interest: without what it wanted."""
        change = Change()
        self._remove(self.member(name), change)
        self._assign(interest, change, now_ms)
        return change

    def overdue(self, now_ms: float) -> list[Member]:
        """Members that are to be expelled."""
        return [one for one in self.members.values() if one.deadline_ms <= now_ms]

    def expel(self, members: Iterable[Member], interest: Interest, now_ms: float) -> Change:
        """These have not been heard of, or do not release what they were asked for.

        Args:
            interest: without what they wanted.
        """
        change = Change()
        for member in members:
            self._remove(member, change)
        self._assign(interest, change, now_ms)
        return change

    def topics_changed(self, interest: Interest, now_ms: float) -> Change:
        """Topics came or went; when that concerns nobody here, nothing happens."""
        change = Change()
        if self._target_of(interest) != self.target:
            self._assign(interest, change, now_ms)
        for partition in self.owners.keys() - dict.fromkeys(interest.partitions):
            # Of a topic that was deleted: there is nothing to release.
            change.told[self.owners.pop(partition).member_id] = None
        self._reconcile(change, now_ms)
        return change

    def restored(self, interest: Interest, now_ms: float) -> Change:
        """After a restart: members and owners are as they were."""
        self.target = {partition: owner.member_id for partition, owner in self.owners.items()}
        self.forgive(now_ms)
        return self.topics_changed(interest, now_ms)

    def forgive(self, now_ms: float) -> None:
        """Nobody could be heard until now: timeouts start anew."""
        for member in self.members.values():
            member.heard_ms = now_ms
            if member.asked_back_ms is not None:
                member.asked_back_ms = now_ms

    # What it looks like

    def assigned(self, member_id: str) -> dict[PartitionName, int]:
        """What a member owns and keeps, with the generation in which it got each."""
        return {
            partition: owner.generation
            for partition, owner in self.owners.items()
            if owner.member_id == member_id and self.target.get(partition) == member_id
        }

    def asked_back(self, member_id: str) -> list[PartitionName]:
        """What a member owns and is to release."""
        return [
            partition
            for partition, owner in self.owners.items()
            if owner.member_id == member_id and self.target.get(partition) != member_id
        ]

    def coming_count(self, member_id: str) -> int:
        """How many partitions a member gets once others have released them."""
        return sum(
            taker == member_id and self.owners[partition].member_id != member_id
            for partition, taker in self.target.items()
        )

    @property
    def is_rebalancing(self) -> bool:
        return any(self.target.get(one) != owner.member_id for one, owner in self.owners.items())

    @property
    def next_deadline_ms(self) -> float | None:
        """When the next member may be overdue; None without members."""
        return min((one.deadline_ms for one in self.members.values()), default=None)

    # Within a step

    def _by_instance(self, instance_id: str) -> Member | None:
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member
        return None

    def _replace(self, old: Member, new: Member, change: Change) -> None:
        """Same instance, same partitions; a later generation, so that the old one is fenced."""
        self.generation += 1
        self._part_with(old)
        change.gone.append(old.member_id)
        for partition, owner in self.owners.items():
            if owner.member_id == old.member_id:
                taken = Owner(new.member_id, self.generation)
                self.owners[partition] = change.given[partition] = taken
        for partition, taker in self.target.items():
            if taker == old.member_id:
                self.target[partition] = new.member_id

    def _remove(self, member: Member, change: Change) -> None:
        self._part_with(member)
        change.gone.append(member.member_id)
        for partition, owner in list(self.owners.items()):
            if owner.member_id == member.member_id:
                del self.owners[partition]
                change.given[partition] = None

    def _part_with(self, member: Member) -> None:
        del self.members[member.member_id]
        self._past_members[member.member_id] = member
        if len(self._past_members) > PAST_MEMBERS_MAX:
            del self._past_members[next(iter(self._past_members))]

    def _target_of(self, interest: Interest) -> dict[PartitionName, str]:
        owners = {
            # Who is to get it counts as having it: a second change moves as little as the first.
            partition: self.target.get(partition, owner.member_id)
            for partition, owner in self.owners.items()
        }
        return assign(interest.partitions, interest.wanted, owners)

    def _assign(self, interest: Interest, change: Change, now_ms: float) -> None:
        self.target = {one: taker for one, taker in self.target.items() if taker in self.members}
        self.target = self._target_of(interest)
        self.generation += 1
        change.reassigned = True
        self._reconcile(change, now_ms)

    def _reconcile(self, change: Change, now_ms: float) -> None:
        """Give what is free to whom the target names, and ask the others to release."""
        for partition, taker in self.target.items():
            if partition not in self.owners:
                given = Owner(taker, self.generation)
                self.owners[partition] = change.given[partition] = given
                change.told[taker] = None
        asked = {
            owner.member_id: None
            for partition, owner in self.owners.items()
            if self.target.get(partition) != owner.member_id
        }
        change.told.update(asked)
        for member in self.members.values():
            if member.member_id not in asked:
                member.asked_back_ms = None
            elif member.asked_back_ms is None:
                member.asked_back_ms = now_ms
