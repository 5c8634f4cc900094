"""Membership of a server: who takes part in the cluster, its lease, and changes by administrators.

A change is written to the directory, and outlives this server. Members see it there and act.
Source: docs/design/0009-owners.md, Placement of shards.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from magnetar_cluster.directory.cluster_directory import (
    ClusterDirectory,
    ClusterDirectoryUnavailable,
)
from magnetar_cluster.directory.view import KINDS, Format, MemberName, ShardName, View
from magnetar_cluster.directory.wish import wishes
from magnetar_cluster.hosting.host import ShardStatus
from magnetar_cluster.hosting.lease import Lease
from magnetar_core.errors import InvalidArgument, LogUnavailable
from magnetar_core.wire import topic_pb2 as wire

log = logging.getLogger(__name__)


class OwnShards(Protocol):
    """A member's lease and shards, and what it has seen: Host."""

    @property
    def view(self) -> View:
        """The latest view; none yet has revision 0."""
        ...

    @property
    def lease(self) -> Lease | None:
        """The member's lease; None: it has none."""
        ...

    @property
    def shards(self) -> Mapping[ShardName, ShardStatus]:
        """The shards that this member has, asks for, or could not have."""
        ...

    def view_age_ms(self) -> float:
        """Return for how long the view may have been out of date."""
        ...


class Membership:
    """A member, and the directory of its cluster."""

    def __init__(
        self, host: OwnShards, directory: ClusterDirectory, fixed: Format, name: MemberName
    ) -> None:
        self._host = host
        self._directory = directory
        self._fixed = fixed
        self._name = name

    def describe(self) -> wire.CommandDescribeMembersResponse:
        """Return who takes part, as far as this member has seen, and its own lease and shards."""
        host = self._host
        answer = wire.CommandDescribeMembersResponse(
            name=_named(self._name), view_age_ms=int(host.view_age_ms())
        )
        if host.lease is not None and (age_ms := host.lease.age_ms) is not None:
            answer.lease.duration_ms = int(host.lease.duration_ms)
            answer.lease.age_ms = max(0, int(age_ms))
            answer.lease.silent_age_ms = int(host.lease.speaking_ms)
        _put_members(answer, host.view)
        _put_shards(answer, host.view, self._fixed)
        for shard, status in host.shards.items():
            answer.held.add(
                number=shard.number, epoch=status.epoch, phase=status.phase.name.lower()
            )
        return answer

    async def drain(self, command: wire.CommandDrainMember) -> wire.CommandDrainMemberResponse:
        """Ask a member to give up its shards, or let it have shards again.

        Raises:
            InvalidArgument: there is no such member, or no other one could take its shards.
            LogUnavailable: the directory does not answer.
        """
        view = self._known_view()
        name = MemberName(command.name.kind, command.name.name)
        if name not in view.members and name not in view.draining:
            raise InvalidArgument(f"the cluster has no {name.kind!r} with the name {name.name!r}")
        if command.undo:
            after = replace(view, draining=view.draining - {name})
        else:
            after = replace(view, draining=view.draining | {name})
            if not after.takers(name.kind):
                raise InvalidArgument(
                    f"no other {name.kind} could take the shards of {name.name}: start one first"
                )
        if not command.dry_run:
            await self._write(self._directory.drain(name, draining=not command.undo))
            log.warning(
                "%s %s", name.name, "may have shards again" if command.undo else "is draining"
            )
        return wire.CommandDrainMemberResponse(moves=_moves(after, self._fixed))

    async def rebalance(self, command: wire.CommandRebalance) -> wire.CommandRebalanceResponse:
        """Take all pins back.

        Raises:
            LogUnavailable: the directory does not answer. Some pins may be taken back.
        """
        view = self._known_view()
        if not command.dry_run:
            for shard in sorted(view.pins):
                await self._write(self._directory.pin(shard, ""))
            log.warning("%d pins of shards are taken back", len(view.pins))
        after = replace(view, pins={})
        return wire.CommandRebalanceResponse(moves=_moves(after, self._fixed), pins=len(view.pins))

    def _known_view(self) -> View:
        view = self._host.view
        if not view.revision or self._host.view_age_ms():
            raise LogUnavailable(
                "this server has no contact to the directory of members; ask later"
            )
        return view

    async def _write(self, change: Awaitable[None]) -> None:
        try:
            await change
        except ClusterDirectoryUnavailable as error:
            raise LogUnavailable(f"the directory of members does not answer: {error}") from error


def _moves(view: View, fixed: Format) -> Iterable[wire.ShardMove]:
    """Return the shards that are elsewhere than in a view's placement, in order."""
    wished = wishes(view, fixed)
    for kind in KINDS:
        for shard in fixed.shards(kind):
            owner = view.shard_owners.get(shard)
            has = owner.member if owner is not None else ""
            to = wished.get(shard, "")
            if to and to != has:
                yield wire.ShardMove(kind=kind, number=shard.number, before=has, after=to)


def _put_members(answer: wire.CommandDescribeMembersResponse, view: View) -> None:
    for name in sorted({*view.members, *view.draining}):
        alive = view.members.get(name)
        told = answer.members.add(name=_named(name), draining=name in view.draining)
        if alive is not None:
            told.address = alive.address
            told.server_version = alive.version
            told.leaving = alive.leaving
            told.refused.extend(alive.refused)


def _put_shards(answer: wire.CommandDescribeMembersResponse, view: View, fixed: Format) -> None:
    wished = wishes(view, fixed)
    for shard in (one for kind in KINDS for one in fixed.shards(kind)):
        told = answer.shards.add(
            kind=shard.kind, number=shard.number, pinned_to=view.pins.get(shard, "")
        )
        owner = view.shard_owners.get(shard)
        if owner is not None:
            told.owner, told.epoch = owner.member, owner.epoch
        if (to := wished.get(shard, "")) != told.owner:
            told.moves_to = to


def _named(name: MemberName) -> wire.MemberName:
    return wire.MemberName(kind=name.kind, name=name.name)
