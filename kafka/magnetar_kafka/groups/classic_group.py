"""Classic group: its members make their assignments by themselves. Pure.

    EMPTY --join--> PREPARING --all have joined, or the time is over--> COMPLETING
                        ^                                                   |
                        |  a member joins, leaves, is silent               | the leader has assigned
                        +------------------ STABLE <------------------------+

A request that has to wait leaves a ticket; told() returns the answers to tickets. The group is
EMPTY when its last member has gone. Each generation has a higher number than all before.
Source: Kafka's consumer rebalance protocol; KIP-345 static members, KIP-394, KIP-814.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.groups.members import (
    Join,
    Joined,
    ListedMember,
    Member,
    Synced,
    favourite,
    member_of,
)

NO_GENERATION = -1


class State(Enum):
    """State of a group, with the name that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class MemberIdNeeded(Refused):
    """The client comes again with the id that it is told."""

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED, f"join again as {member_id!r}")
        self.member_id = member_id


@dataclass(slots=True)
class _Deadlines:
    """Times of the present state; None: it has none.

    Attributes:
        first_join_ms: an empty group waits until then for others that start together.
        joins_end_ms: who has not joined by then is removed.
        syncs_end_ms: who has not asked for its assignment by then is removed.
    """

    first_join_ms: float = 0.0
    joins_end_ms: float | None = None
    syncs_end_ms: float | None = None


class ClassicGroup:
    """A group and its members.

    Args:
        first_join_delay_ms: how long an empty group waits for others after a member has joined.
    """

    def __init__(self, name: str, *, first_join_delay_ms: int, generation: int = 0) -> None:
        self.name = name
        self.generation = generation
        self.state = State.EMPTY
        self.protocol_type = ""
        self.protocol = ""
        self.leader_id = ""
        self.members: dict[str, Member] = {}
        # Ids that were given out, and have not come back, with the time when they are forgotten.
        self.promised: dict[str, float] = {}
        # Whether what is stored of the group has changed.
        self.is_changed = False
        self._first_join_delay_ms = first_join_delay_ms
        self._deadlines = _Deadlines()
        self._told: list[tuple[object, Joined | Synced | Refused]] = []

    def check(self) -> None:
        """Check the invariants."""
        assert (self.state is State.EMPTY) == (not self.members)
        for member in self.members.values():
            assert member.joining is None or self.state is State.PREPARING
            assert member.syncing is None or self.state is State.COMPLETING
        if self.state in (State.COMPLETING, State.STABLE):
            assert all(_has(member, self.protocol) for member in self.members.values())
        instances = [one.instance_id for one in self.members.values() if one.instance_id]
        assert len(instances) == len(set(instances))
        assert not self.promised.keys() & self.members.keys()

    @property
    def size_bytes(self) -> int:
        """Bytes of what the members have left here."""
        return sum(member.size_bytes for member in self.members.values())

    def told(self) -> list[tuple[object, Joined | Synced | Refused]]:
        """Return the answers to tickets since the last call."""
        told, self._told = self._told, []
        return told

    # Requests

    def join(self, asked: Join, ticket: object, now_ms: float) -> Joined | None:
        """Let a client join; None: the ticket gets the answer.

        Raises:
            MemberIdNeeded: the client has to come again with an id.
            Refused: it cannot be a member.
        """
        self._check_protocols(asked)
        if not asked.member_id:
            return self._join_first(asked, ticket, now_ms)
        if self.promised.pop(asked.member_id, None) is not None:
            self._add(asked, asked.member_id, ticket, now_ms)
            return None
        member = self._member(asked.member_id, asked.instance_id)
        has_changed = member.protocols != asked.protocols
        member.heard_ms = now_ms
        member.renew(asked)
        is_leader = member.member_id == self.leader_id
        if not has_changed and (
            self.state is State.COMPLETING or (self.state is State.STABLE and not is_leader)
        ):
            return self._joined(member)
        self._wait(member, ticket, now_ms)
        return None

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        ticket: object,
        now_ms: float,
        *,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Synced | None:
        """Return the assignment of a member; None: the ticket gets it.

        Args:
            assignments: of all members, if the member is the leader.
        Raises:
            Refused: it is not a member of this generation, or has to join again.
        """
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.name!r} has the protocol {self.protocol_type} {self.protocol}",
            )
        member.heard_ms = now_ms
        if self.state is State.PREPARING:
            raise _rebalancing()
        member.has_synced = True
        if self.state is State.COMPLETING:
            self._tell(member.syncing, _rebalancing())
            member.syncing = ticket
            if member_id != self.leader_id:
                return None
            self._assign(assignments, now_ms)
            return None
        self._note_syncs()
        return self._synced(member)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: float
    ) -> None:
        """Take a sign of life.

        Raises:
            Refused: it is not a member of this generation, or has to join again.
        """
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        member.heard_ms = now_ms
        if self.state is State.PREPARING:
            raise _rebalancing()

    def leave(self, member_id: str, instance_id: str | None, now_ms: float) -> None:
        """Remove a member; a static one may be named by its instance alone.

        Raises:
            Refused: there is no such member.
        """
        if self.promised.pop(member_id, None) is not None:
            self._complete_if_all_joined(now_ms)
            return
        if not member_id and instance_id is not None:
            member_id = self._of_instance(instance_id).member_id
        self._remove([self._member(member_id, instance_id)], now_ms)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: float,
        *,
        in_transaction: bool = False,
    ) -> int:
        """Check that a client may commit offsets; return the generation that the commit carries.

        Clients without a member commit while the group is empty, and in transactions always.

        Raises:
            Refused: it may not.
        """
        if not member_id and generation == NO_GENERATION:
            if self.members and not in_transaction:
                raise Refused(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"group {self.name!r} has members: only they commit offsets",
                )
            return self.generation
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        member.heard_ms = now_ms
        if self.state is State.COMPLETING and not in_transaction:
            raise _rebalancing()
        return generation

    def abandon(self, ticket: object, now_ms: float) -> None:
        """Take back a ticket: its client is gone, and has still joined."""
        for member in self.members.values():
            if member.joining is ticket:
                member.joining, member.heard_ms = None, now_ms
            if member.syncing is ticket:
                member.syncing, member.heard_ms = None, now_ms

    def learn_generation(self, generation: int, now_ms: float) -> None:
        """Go on above a generation that a partition's owner knows, and this group does not."""
        if generation <= self.generation:
            return
        self.generation = generation
        self.is_changed = True
        if self.state in (State.COMPLETING, State.STABLE):
            self._prepare(now_ms)

    # Time

    @property
    def next_deadline_ms(self) -> float | None:
        """When tick() has something to do at the latest; None: never."""
        times = [one.session_end_ms for one in self.members.values() if not one.waits]
        times += self.promised.values()
        deadlines = self._deadlines
        times += [one for one in (deadlines.joins_end_ms, deadlines.syncs_end_ms) if one]
        if self.state is State.PREPARING and self._have_all_joined():
            times.append(deadlines.first_join_ms)
        return min(times, default=None)

    def tick(self, now_ms: float) -> None:
        """Let time pass."""
        self.promised = {name: end for name, end in self.promised.items() if end > now_ms}
        silent = [
            member
            for member in self.members.values()
            if not member.waits and member.session_end_ms <= now_ms
        ]
        if silent:
            self._remove(silent, now_ms)
        deadlines = self._deadlines
        if deadlines.syncs_end_ms is not None and deadlines.syncs_end_ms <= now_ms:
            deadlines.syncs_end_ms = None
            self._remove([one for one in self.members.values() if not one.has_synced], now_ms)
        if deadlines.joins_end_ms is not None and deadlines.joins_end_ms <= now_ms:
            self._complete(now_ms)
        else:
            self._complete_if_all_joined(now_ms)

    def forgive(self, now_ms: float) -> None:
        """Start all times anew, because nothing could be heard until now."""
        for member in self.members.values():
            member.heard_ms = now_ms
        deadlines = self._deadlines
        if deadlines.joins_end_ms is not None:
            deadlines.joins_end_ms = now_ms + self._rebalance_timeout_ms
        if deadlines.syncs_end_ms is not None:
            deadlines.syncs_end_ms = now_ms + self._rebalance_timeout_ms
        self.promised = dict.fromkeys(self.promised, now_ms + self._rebalance_timeout_ms)

    def restore(self, members: list[Member], *, is_stable: bool, now_ms: float) -> None:
        """Take the members that are stored.

        Args:
            is_stable: their assignments are those of the present generation.
        """
        self.members = {member.member_id: member for member in members}
        for member in members:
            member.heard_ms, member.has_synced = now_ms, True
        if members:
            self.state = State.STABLE
            if not is_stable:
                self._prepare(now_ms)

    # Within a step

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            known = self._of_instance(instance_id)
            if known.member_id != member_id:
                raise _fenced(instance_id)
        found = self.members.get(member_id)
        if found is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.name!r} has no member {member_id!r}"
            )
        return found

    def _of_instance(self, instance_id: str) -> Member:
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member
        raise Refused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.name!r} has no instance {instance_id!r}"
        )

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise Refused(
                ErrorCode.ILLEGAL_GENERATION,
                f"group {self.name!r} has generation {self.generation}, and not {generation}",
            )

    def _check_protocols(self, asked: Join) -> None:
        """Check that all members could have one assignor.

        Raises:
            Refused: they could not.
        """
        others = [
            member
            for member in self.members.values()
            if member.member_id != asked.member_id
            and (asked.instance_id is None or member.instance_id != asked.instance_id)
        ]
        names = [name for name, _ in asked.protocols]
        has_common = any(all(_has(other, name) for other in others) for name in names)
        if (
            not asked.protocol_type
            or not has_common
            or (others and asked.protocol_type != self.protocol_type)
        ):
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.name!r} has members with other protocols than {names}",
            )

    def _join_first(self, asked: Join, ticket: object, now_ms: float) -> Joined | None:
        new_id = asked.new_member_id
        if asked.instance_id is not None:
            for member in self.members.values():
                if member.instance_id == asked.instance_id:
                    return self._replace(member, asked, ticket, now_ms)
        elif asked.needs_known_id:
            self.promised[new_id] = now_ms + asked.session_timeout_ms
            raise MemberIdNeeded(new_id)
        self._add(asked, new_id, ticket, now_ms)
        return None

    def _add(self, asked: Join, member_id: str, ticket: object, now_ms: float) -> None:
        if asked.instance_id is not None and any(
            member.instance_id == asked.instance_id for member in self.members.values()
        ):
            raise _fenced(asked.instance_id)
        member = member_of(asked, member_id)
        member.heard_ms = now_ms
        if not self.members:
            self.protocol_type = asked.protocol_type
        delay_ms = self._first_join_delay_ms if not self.members else 0
        self.members[member_id] = member
        if self.state is not State.PREPARING:
            self._prepare(now_ms)
            self._deadlines.first_join_ms = now_ms + delay_ms
        elif self._deadlines.first_join_ms > now_ms:
            self._deadlines.first_join_ms = now_ms + self._first_join_delay_ms
        self._wait(member, ticket, now_ms)

    def _replace(self, old: Member, asked: Join, ticket: object, now_ms: float) -> Joined | None:
        """Let a static member take the place of the earlier member with its instance id."""
        assert old.instance_id is not None
        for waiting in (old.joining, old.syncing):
            self._tell(waiting, _fenced(old.instance_id))
        member = member_of(asked, asked.new_member_id)
        member.assignment, member.heard_ms = old.assignment, now_ms
        member.has_synced = old.has_synced
        # The members keep their order.
        self.members = {
            one.member_id: one
            for one in (member if each is old else each for each in self.members.values())
        }
        leader_before = self.leader_id
        if old.member_id == self.leader_id:
            self.leader_id = member.member_id
        self.is_changed = True
        if self.state is not State.STABLE or favourite(self._listed()) != self.protocol:
            self._wait(member, ticket, now_ms)
            return None
        joined = self._joined(member)
        if asked.can_skip_assignment:
            return joined._replace(skip_assignment=bool(joined.members))
        # An older leader would assign anew without an effect: it is told that it follows.
        return joined._replace(leader_id=leader_before, members=())

    def _wait(self, member: Member, ticket: object, now_ms: float) -> None:
        if self.state is not State.PREPARING:
            self._prepare(now_ms)
        self._tell(member.joining, _rebalancing())
        member.joining, member.has_joined = ticket, True
        self._complete_if_all_joined(now_ms)

    def _prepare(self, now_ms: float) -> None:
        for member in self.members.values():
            self._tell(member.syncing, _rebalancing())
            member.syncing, member.has_joined, member.has_synced = None, False, False
        self.state = State.PREPARING
        self._deadlines = _Deadlines(now_ms, now_ms + self._rebalance_timeout_ms, None)

    def _have_all_joined(self) -> bool:
        return not self.promised and all(member.has_joined for member in self.members.values())

    def _complete_if_all_joined(self, now_ms: float) -> None:
        is_due = self._deadlines.first_join_ms <= now_ms
        if self.state is State.PREPARING and is_due and self._have_all_joined():
            self._complete(now_ms)

    def _complete(self, now_ms: float) -> None:
        """Begin a generation with those who have joined, and with all static members."""
        self.members = {
            name: member
            for name, member in self.members.items()
            if member.has_joined or member.instance_id is not None
        }
        self.is_changed = True
        if not self.members:
            self._empty()
            return
        joined = [member for member in self.members.values() if member.has_joined]
        if not joined:
            # Static members that are away have their sessions.
            self._deadlines.joins_end_ms = now_ms + self._rebalance_timeout_ms
            return
        if self.leader_id not in [member.member_id for member in joined]:
            self.leader_id = joined[0].member_id
        self.generation += 1
        self.protocol = favourite(self._listed())
        self.state = State.COMPLETING
        self._deadlines = _Deadlines(syncs_end_ms=now_ms + self._rebalance_timeout_ms)
        for member in joined:
            self._tell(member.joining, self._joined(member))
            member.joining, member.has_joined, member.heard_ms = None, False, now_ms
        for member in self.members.values():
            # Static members that are away do not ask.
            member.has_synced = member not in joined

    def _assign(self, assignments: Mapping[str, bytes], now_ms: float) -> None:
        self.state = State.STABLE
        self.is_changed = True
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.syncing is not None:
                self._tell(member.syncing, self._synced(member))
                member.syncing, member.heard_ms = None, now_ms
        self._note_syncs()

    def _note_syncs(self) -> None:
        if all(member.has_synced for member in self.members.values()):
            self._deadlines.syncs_end_ms = None

    def _remove(self, members: list[Member], now_ms: float) -> None:
        if not members:
            return
        for member in members:
            del self.members[member.member_id]
            for waiting in (member.joining, member.syncing):
                self._tell(waiting, Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the member was removed"))
        self.is_changed = True
        if not self.members:
            self._empty()
            return
        if self.state is not State.PREPARING:
            self._prepare(now_ms)
        self._complete_if_all_joined(now_ms)

    def _empty(self) -> None:
        self.state, self.generation = State.EMPTY, self.generation + 1
        self.protocol = self.leader_id = ""
        self._deadlines = _Deadlines()
        self.is_changed = True

    def _listed(self) -> list[Member]:
        return list(self.members.values())

    @property
    def _rebalance_timeout_ms(self) -> int:
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    def _joined(self, member: Member) -> Joined:
        is_leader = member.member_id == self.leader_id
        members = tuple(
            ListedMember(one.member_id, one.instance_id, one.metadata(self.protocol))
            for one in (self.members.values() if is_leader else ())
        )
        return Joined(
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader_id,
            member.member_id,
            members,
        )

    def _synced(self, member: Member) -> Synced:
        return Synced(self.protocol_type, self.protocol, member.assignment)

    def _tell(self, ticket: object | None, answer: Joined | Synced | Refused) -> None:
        if ticket is not None:
            self._told.append((ticket, answer))


def _has(member: Member, protocol: str) -> bool:
    return any(name == protocol for name, _ in member.protocols)


def _rebalancing() -> Refused:
    return Refused(ErrorCode.REBALANCE_IN_PROGRESS, "the group is forming its next generation")


def _fenced(instance_id: str) -> Refused:
    return Refused(
        ErrorCode.FENCED_INSTANCE_ID, f"another member has the instance id {instance_id!r}"
    )
