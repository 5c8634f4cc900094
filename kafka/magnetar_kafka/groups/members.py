"""Members of a group, and what they ask for and are told. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

# What a member takes besides the texts of its client.
MEMBER_BYTES = 512

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A request to join a group, or to join it again.

    Attributes:
        member_id: empty: the client has none yet.
        instance_id: of a static member; None for others.
        new_member_id: for a client that has none.
        needs_known_id: a client without an id is told one, and comes again with it (KIP-394).
        can_skip_assignment: a leader can be told that its group keeps its assignment (KIP-814).
        protocols: the names of its assignors, the favourite first, each with its metadata.
    """

    member_id: str
    instance_id: str | None
    new_member_id: str
    needs_known_id: bool = False
    can_skip_assignment: bool = False
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols


class ListedMember(NamedTuple):
    """A member, as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """A generation, as a member is told of it.

    Attributes:
        members: for the leader, which assigns; empty for others.
        skip_assignment: the leader has nothing to assign.
    """

    generation: int
    protocol_type: str
    protocol: str
    leader_id: str
    member_id: str
    members: tuple[ListedMember, ...] = ()
    skip_assignment: bool = False


class Synced(NamedTuple):
    """The assignment of a member."""

    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group.

    Attributes:
        heard_ms: time of its last sign of life.
        joining: ticket of its request to join, which waits.
        has_joined: it has joined the generation that is being prepared.
        syncing: ticket of its request for its assignment, which waits.
        has_synced: it has asked for the assignment of the present generation.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    heard_ms: float = 0.0
    joining: object | None = field(default=None, repr=False)
    has_joined: bool = False
    syncing: object | None = field(default=None, repr=False)
    has_synced: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of what the client has left here, and of the member itself."""
        names = len(self.member_id) + len(self.instance_id or "") + len(self.client_id)
        return MEMBER_BYTES + names + protocol_bytes(self.protocols) + len(self.assignment)

    @property
    def waits(self) -> bool:
        """Whether an answer to it is due, so that it cannot send heartbeats."""
        return self.joining is not None or self.syncing is not None

    @property
    def session_end_ms(self) -> float:
        """The time when it is removed, unless it gives a sign of life before."""
        return self.heard_ms + self.session_timeout_ms

    def metadata(self, protocol: str) -> bytes:
        """Return its metadata for an assignor; empty if it does not have it."""
        return next((found for name, found in self.protocols if name == protocol), b"")

    def renew(self, asked: Join) -> None:
        """Take the content of a request to join."""
        self.client_id, self.client_host = asked.client_id, asked.client_host
        self.session_timeout_ms = asked.session_timeout_ms
        self.rebalance_timeout_ms = asked.rebalance_timeout_ms
        self.protocols = asked.protocols


def member_of(asked: Join, member_id: str) -> Member:
    """Return a new member that has asked to join."""
    return Member(
        member_id=member_id,
        instance_id=asked.instance_id,
        client_id=asked.client_id,
        client_host=asked.client_host,
        session_timeout_ms=asked.session_timeout_ms,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        protocols=asked.protocols,
    )


def protocol_bytes(protocols: Protocols) -> int:
    """Return the bytes of assignors' names and metadata."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def favourite(members: list[Member]) -> str:
    """Return the assignor that all members have, and most of them prefer; empty: there is none."""
    names = [[name for name, _ in member.protocols] for member in members]
    if not names:
        return ""
    common = [name for name in names[0] if all(name in others for others in names[1:])]
    votes = dict.fromkeys(common, 0)
    for others in names:
        first = next((name for name in others if name in votes), None)
        if first is not None:
            votes[first] += 1
    return max(common, key=lambda name: votes[name], default="")
