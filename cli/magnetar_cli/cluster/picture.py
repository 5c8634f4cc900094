"""Picture of members and shards for `magnetar cluster`, from etcd or from a broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from magnetar.link.members import ClusterInfo
from magnetar.link.members import Member as ListedMember
from magnetar_cluster.directory.view import (
    BROKER,
    COORDINATOR,
    KINDS,
    Format,
    Member,
    MemberName,
    ShardName,
    ShardOwner,
    View,
)
from magnetar_cluster.directory.wish import wishes
from magnetar_core.membership.shard_address import ShardAddress, server_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPicture:
    """A server.

    Attributes:
        address: empty: the server is not alive.
        version: empty: not known.
        shards: their names, in order.
        draining: whether it is asked to give up its shards.
        leaving: whether it is about to stop, and gives up its shards.
        refused: the names of shards that it could not open, and leaves to others, in order.
    """

    kind: str
    name: str
    address: str
    external_address: str = ""
    version: str = ""
    shards: tuple[str, ...] = ()
    draining: bool = False
    leaving: bool = False
    refused: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """State of the member, in a word or two."""
        if not self.address:
            return "away, draining"
        if self.leaving:
            return "leaving"
        does = "draining" if self.draining else "alive"
        return f"{does}, could not open {_numbers(self.refused)}" if self.refused else does

    @property
    def numbers(self) -> str:
        """The numbers of its shards, for tables that name the kind already."""
        return _numbers(self.shards)


def _numbers(shards: Iterable[str]) -> str:
    return " ".join(shard.rpartition("-")[2] for shard in shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPicture:
    """A shard.

    Attributes:
        owner: the name of the member that has it; empty: no member has it.
        address: of the owner.
        epoch: of the ownership; None: without owner, or without epochs.
        wished: the member that it moves to; empty: it stays, or no member may take it. pinned: the
            member to which an administrator has pinned it.
        lag: how many messages its subscriptions have not acknowledged; None: not known.
    """

    kind: str
    number: int
    name: str
    owner: str
    address: str
    epoch: int | None = None
    wished: str = ""
    pinned: str = ""
    lag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Members and shards at one moment."""

    members: tuple[MemberPicture, ...]
    shards: tuple[ShardPicture, ...]


def of_view(view: View, fixed: Format) -> Picture:
    """Return the picture of a view of the directory."""
    wished = wishes(view, fixed)
    members = []
    for name in sorted({*view.members, *view.draining}):
        alive = view.members.get(name)
        has = shards_of(view, name)
        members.append(
            MemberPicture(
                kind=name.kind,
                name=name.name,
                address=alive.address if alive else "",
                external_address=alive.external_address if alive else "",
                version=alive.version if alive else "",
                shards=tuple(map(str, has)),
                draining=name in view.draining,
                leaving=alive.leaving if alive else False,
                refused=tuple(str(ShardName(name.kind, one)) for one in alive.refused)
                if alive
                else (),
            )
        )
    shards = [
        _shard(view, shard, wished.get(shard, "")) for kind in KINDS for shard in fixed.shards(kind)
    ]
    return Picture(members=tuple(members), shards=tuple(shards))


def shards_of(view: View, name: MemberName) -> list[ShardName]:
    """Return the shards that a member has, in order."""
    return sorted(
        shard
        for shard, owner in view.shard_owners.items()
        if (shard.kind, owner.member) == (name.kind, name.name)
    )


def _shard(view: View, shard: ShardName, wished: str) -> ShardPicture:
    owner: ShardOwner | None = view.shard_owners.get(shard)
    has = owner.member if owner else ""
    member: Member | None = view.members.get(MemberName(shard.kind, has))
    return ShardPicture(
        kind=shard.kind,
        number=shard.number,
        name=str(shard),
        owner=has,
        address=member.address if member else "",
        epoch=owner.epoch if owner else None,
        wished=wished if wished != has else "",
        pinned=view.pins.get(shard, ""),
    )


def of_info(info: ClusterInfo) -> Picture:
    """Return the picture that a broker gives: without drains, pins and desired members.

    With a list of members, each has a shard of its own for good. Where owners change, a broker
    tells where each shard is, and not what the members are called.
    """
    listed = [
        *((BROKER, number, one) for number, one in enumerate(info.brokers)),
        *((COORDINATOR, one.tcid or 0, one) for one in info.coordinators),
    ]
    shards = [_listed_shard(*one) for one in listed]
    return Picture(members=tuple(_members_of(shards)), shards=tuple(shards))


def _listed_shard(kind: str, number: int, member: ListedMember) -> ShardPicture:
    server = server_of(member.address)
    found = ShardAddress.parse(member.address)
    return ShardPicture(
        kind=kind,
        number=number,
        name=str(ShardName(kind, number)),
        owner=member.name if found is None else server,
        address=server,
        epoch=found.place.epoch if found is not None and server else None,
    )


def _members_of(shards: Iterable[ShardPicture]) -> list[MemberPicture]:
    by_member: dict[tuple[str, str, str], list[str]] = {}
    for shard in shards:
        if shard.owner:
            by_member.setdefault((shard.kind, shard.owner, shard.address), []).append(shard.name)
    return [
        MemberPicture(kind=kind, name=name, address=address, shards=tuple(has))
        for (kind, name, address), has in by_member.items()
    ]
