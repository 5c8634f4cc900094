"""Administration of the members of a cluster whose shards change their owner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from magnetar.arguments import checked
from magnetar.link.cluster import Cluster
from magnetar_core.wire import topic_pb2


@dataclass(frozen=True, slots=True)
class ShardMove:
    """A shard that moves.

    Attributes:
        shard: its name, as "broker-3".
        before: the member that has it; empty: no member has it.
        after: the member that gets it.
    """

    shard: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class MemberLease:
    """The lease of a member, as the member tells it.

    Attributes:
        duration_ms: the directory ends the lease when it was not renewed for so long.
        age_ms: how long ago the last renewal was sent that was answered.
        silent_age_ms: the member is silent when its lease is so old, before others have its shards.
    """

    duration_ms: int
    age_ms: int
    silent_age_ms: int


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A member: a server process, or one that was asked to drain.

    Attributes:
        address: empty: it is not alive.
        server_version: empty: not known.
        is_draining: whether it was asked to give up its shards.
        is_leaving: whether it is about to stop.
        refused: the numbers of shards that it could not open, and leaves to others.
    """

    kind: str
    name: str
    address: str
    server_version: str
    is_draining: bool
    is_leaving: bool
    refused: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberShard:
    """A shard, and the member that has it.

    Attributes:
        name: as "broker-3".
        member: the name of the member; empty: no member has it.
        epoch: of the ownership; 0: no member has it.
        moves_to: the member that it moves to; empty: it stays.
        pinned_to: the member that an administrator has pinned it to; empty: none.
    """

    kind: str
    name: str
    member: str
    epoch: int
    moves_to: str
    pinned_to: str


@dataclass(frozen=True, slots=True)
class ClusterMembers:
    """The members of a cluster, as one of them sees it.

    Attributes:
        kind, name: of the member that tells this.
        view_age_ms: for how long it may have been out of date; 0: it is up to date.
        lease: of the member that tells this; None: it has none.
        phases: phases of the shards that this member has, or is about to have or to give up, by
            their names; see docs/protocol/states.md.
    """

    kind: str
    name: str
    view_age_ms: int
    lease: MemberLease | None
    members: tuple[ClusterMember, ...]
    shards: tuple[MemberShard, ...]
    phases: dict[str, str]

    @classmethod
    def from_wire(cls, wire: topic_pb2.CommandDescribeMembersResponse) -> ClusterMembers:
        """Read an answer."""
        lease = wire.lease
        return cls(
            wire.name.kind,
            wire.name.name,
            wire.view_age_ms,
            MemberLease(lease.duration_ms, lease.age_ms, lease.silent_age_ms)
            if wire.HasField("lease")
            else None,
            tuple(_member(one) for one in wire.members),
            tuple(_shard(one) for one in wire.shards),
            {f"{wire.name.kind}-{one.number}": one.phase for one in wire.held},
        )


class MemberAdmin:
    """Administers the members of a cluster whose shards change their owner: `client.admin.members`.

    Where servers keep their shards, all methods raise Unimplemented.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(self) -> ClusterMembers:
        """Return the members and shards, as one of the members sees them.

        Raises:
            LogUnavailable: no server answers in time.
        """
        command = topic_pb2.CommandDescribeMembers()
        return ClusterMembers.from_wire(await self._cluster.any_broker.request(command))

    @checked
    async def drain(
        self, kind: str, name: str, *, undo: bool = False, dry_run: bool = False
    ) -> tuple[ShardMove, ...]:
        """Ask a member to give up its shards, as before its machine goes down.

        It gets no shards until that is undone, also when it is started anew. Returns when this is
        noted, before any shard has moved.

        Args:
            kind: "broker" or "coordinator".
            undo: let the member have shards again.
            dry_run: change nothing.
        Returns:
            All shards that are to move then.
        Raises:
            InvalidArgument: there is no such member, or no other one could take its shards.
            LogUnavailable: the directory of members does not answer.
        """
        command = topic_pb2.CommandDrainMember(
            name=topic_pb2.MemberName(kind=kind, name=name), undo=undo, dry_run=dry_run
        )
        reply = await self._cluster.any_broker.request(command)
        return _moves(reply.moves)

    @checked
    async def rebalance(self, *, dry_run: bool = False) -> tuple[ShardMove, ...]:
        """Take back all pins of shards to members, so that each shard moves to where it belongs.

        Returns when this is noted, before any shard has moved.

        Args:
            dry_run: change nothing.
        Returns:
            All shards that are to move then.
        Raises:
            LogUnavailable: the directory of members does not answer. Some pins may be taken back.
        """
        command = topic_pb2.CommandRebalance(dry_run=dry_run)
        reply = await self._cluster.any_broker.request(command)
        return _moves(reply.moves)


def _moves(moves: Iterable[topic_pb2.ShardMove]) -> tuple[ShardMove, ...]:
    return tuple(ShardMove(f"{one.kind}-{one.number}", one.before, one.after) for one in moves)


def _member(wire: topic_pb2.DescribedMember) -> ClusterMember:
    return ClusterMember(
        wire.name.kind,
        wire.name.name,
        wire.address,
        wire.server_version,
        wire.draining,
        wire.leaving,
        tuple(wire.refused),
    )


def _shard(wire: topic_pb2.DescribedShard) -> MemberShard:
    name = f"{wire.kind}-{wire.number}"
    return MemberShard(wire.kind, name, wire.owner, wire.epoch, wire.moves_to, wire.pinned_to)
