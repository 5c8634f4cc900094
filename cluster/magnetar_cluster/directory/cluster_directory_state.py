"""State of a directory, and the effect of each request on it. Pure.

It is a directory in memory, for tests and for the simulation. Its users put delays and losses
around it. Time is an argument; leases end when a request or a timer finds that they have.
Source: docs/design/0009-owners.md, The directory.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

from magnetar_cluster.directory.cluster_directory import LeaseExpired, LeaseId
from magnetar_cluster.directory.view import Format, Member, MemberName, ShardName, ShardOwner, View
from magnetar_storage.durable_mark import DurableMark

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Grant:
    duration_ms: int
    ends_at_ms: float


class ClusterDirectoryState:
    """The rows of a directory.

    Attributes:
        view: the present rows. Each change makes a new one.
        marks: how far the stores of shards are durable. They are in no view.
    """

    def __init__(self) -> None:
        self.fixed: Format | None = None
        self.view = View()
        self._leases: dict[LeaseId, _Grant] = {}
        self._last_lease = 0
        self._members: dict[MemberName, tuple[LeaseId, Member]] = {}
        self._owners: dict[ShardName, tuple[LeaseId, ShardOwner]] = {}
        self._draining: set[MemberName] = set()
        self._pins: dict[ShardName, str] = {}
        self.marks: dict[ShardName, DurableMark] = {}

    def apply(self, now_ms: float, request: Request[Answer]) -> Answer:
        """Carry out a request, and return its answer.

        Raises:
            LeaseExpired: the request's lease has ended. No effect.
        """
        self.expire(now_ms)
        return request.effect(self, now_ms)

    def expire(self, now_ms: float) -> None:
        """End the leases whose time has come."""
        for lease in [one for one, grant in self._leases.items() if grant.ends_at_ms <= now_ms]:
            self._end(lease)

    def next_end_ms(self) -> float | None:
        """Return when the next lease ends if it is not renewed; None: there are no leases."""
        return min((lease.ends_at_ms for lease in self._leases.values()), default=None)

    def leases(self) -> frozenset[LeaseId]:
        """Return the leases that have not ended."""
        return frozenset(self._leases)

    # What requests are made of.

    def grant(self, duration_ms: int, now_ms: float) -> LeaseId:
        """Begin a lease."""
        self._last_lease += 1
        self._leases[self._last_lease] = _Grant(duration_ms, now_ms + duration_ms)
        return self._last_lease

    def renew(self, lease: LeaseId, now_ms: float) -> None:
        """Begin a lease's duration anew. Raises: LeaseExpired."""
        self.require(lease)
        grant = self._leases[lease]
        grant.ends_at_ms = now_ms + grant.duration_ms

    def revoke(self, lease: LeaseId) -> None:
        """End a lease, if it has not ended."""
        if lease in self._leases:
            self._end(lease)

    def require(self, lease: LeaseId) -> None:
        """Raises: LeaseExpired: the lease has ended."""
        if lease not in self._leases:
            raise LeaseExpired(f"lease {lease} has ended: begin another one")

    def join(self, lease: LeaseId, name: MemberName, member: Member) -> bool:
        """Write a member's row, unless another lease holds its name."""
        self.require(lease)
        holder, present = self._members.get(name, (lease, None))
        if holder != lease:
            return False
        if present != member:
            self._members[name] = lease, member
            self._changed()
        return True

    def claim(self, lease: LeaseId, shard: ShardName, member: str) -> int | None:
        """Write a shard's owner, unless another lease holds the shard."""
        self.require(lease)
        if shard in self._owners:
            holder, owner = self._owners[shard]
            return owner.epoch if holder == lease else None
        epoch = self.view.revision + 1
        self._owners[shard] = lease, ShardOwner(member, epoch)
        self._changed()
        return epoch

    def release(self, shard: ShardName, epoch: int) -> None:
        """Delete a shard's owner, if it is this epoch's."""
        if shard in self._owners and self._owners[shard][1].epoch == epoch:
            del self._owners[shard]
            self._changed()

    def drain(self, name: MemberName, *, draining: bool) -> None:
        """Write or delete the row that asks a member to give up its shards."""
        (self._draining.add if draining else self._draining.discard)(name)
        self._changed()

    def pin(self, shard: ShardName, member: str) -> None:
        """Write the member to which a shard is pinned; an empty name deletes the row."""
        if member:
            self._pins[shard] = member
        else:
            self._pins.pop(shard, None)
        self._changed()

    def note_durable(self, shard: ShardName, epoch: int, mark: DurableMark) -> bool:
        """Write a shard's mark, if it has an owner of this epoch; 0: if it has none."""
        owner = self.view.shard_owners.get(shard)
        if epoch != (owner.epoch if owner is not None else 0):
            return False
        self.marks[shard] = mark
        return True

    def _end(self, lease: LeaseId) -> None:
        """Delete a lease, and at the same moment everything that is bound to it."""
        del self._leases[lease]
        members = {name: row for name, row in self._members.items() if row[0] != lease}
        owners = {shard: row for shard, row in self._owners.items() if row[0] != lease}
        if len(members) + len(owners) < len(self._members) + len(self._owners):
            self._members = members
            self._owners = owners
            self._changed()

    def _changed(self) -> None:
        self.view = View(
            revision=self.view.revision + 1,
            members={name: row[1] for name, row in self._members.items()},
            shard_owners={shard: row[1] for shard, row in self._owners.items()},
            draining=frozenset(self._draining),
            pins=dict(self._pins),
        )


class Request(Generic[Answer]):
    """A question to a directory; see Directory for what each means."""

    @abstractmethod
    def effect(self, state: ClusterDirectoryState, now_ms: float) -> Answer:
        """Change the state, and return the answer."""


@dataclass(frozen=True, slots=True)
class FixFormat(Request[Format | None]):
    """Request of Directory.format."""

    wanted: Format | None

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> Format | None:
        """Fix the format, if there is none."""
        if state.fixed is None:
            state.fixed = self.wanted
        return state.fixed


@dataclass(frozen=True, slots=True)
class Grant(Request[LeaseId]):
    """Request of Directory.grant."""

    duration_ms: int

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> LeaseId:
        """Begin a lease."""
        return state.grant(self.duration_ms, now_ms)


@dataclass(frozen=True, slots=True)
class Renew(Request[None]):
    """Request of Directory.renew."""

    lease: LeaseId

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> None:
        """Begin the lease's duration anew."""
        state.renew(self.lease, now_ms)


@dataclass(frozen=True, slots=True)
class Revoke(Request[None]):
    """Request of Directory.revoke."""

    lease: LeaseId

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> None:
        """End the lease."""
        state.revoke(self.lease)


@dataclass(frozen=True, slots=True)
class Join(Request[bool]):
    """Request of Directory.join."""

    lease: LeaseId
    name: MemberName
    member: Member

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> bool:
        """Write the member's row."""
        return state.join(self.lease, self.name, self.member)


@dataclass(frozen=True, slots=True)
class Claim(Request[int | None]):
    """Request of Directory.claim."""

    lease: LeaseId
    shard: ShardName
    member: str

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> int | None:
        """Write the shard's owner."""
        return state.claim(self.lease, self.shard, self.member)


@dataclass(frozen=True, slots=True)
class Release(Request[None]):
    """Request of Directory.release."""

    shard: ShardName
    epoch: int

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> None:
        """Delete the shard's owner."""
        state.release(self.shard, self.epoch)


@dataclass(frozen=True, slots=True)
class Drain(Request[None]):
    """Request of Directory.drain."""

    name: MemberName
    draining: bool

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> None:
        """Write or delete the row that asks for the member's shards."""
        state.drain(self.name, draining=self.draining)


@dataclass(frozen=True, slots=True)
class Pin(Request[None]):
    """Request of Directory.pin."""

    shard: ShardName
    member: str

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> None:
        """Write or delete the shard's pin."""
        state.pin(self.shard, self.member)


@dataclass(frozen=True, slots=True)
class NoteDurable(Request[bool]):
    """Request of Directory.note_durable."""

    shard: ShardName
    epoch: int
    mark: DurableMark

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> bool:
        """Write the shard's mark."""
        return state.note_durable(self.shard, self.epoch, self.mark)


@dataclass(frozen=True, slots=True)
class ReadMark(Request[DurableMark | None]):
    """Request of Directory.durable_mark."""

    shard: ShardName

    def effect(self, state: ClusterDirectoryState, now_ms: float) -> DurableMark | None:
        """Return the shard's mark."""
        return state.marks.get(self.shard)
