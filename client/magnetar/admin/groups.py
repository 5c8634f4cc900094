"""What an administrator does with groups: list, describe, delete them, reset their offsets."""

from __future__ import annotations

from typing import TypeAlias

from magnetar.admin.group_descriptions import (
    GroupDescription,
    GroupState,
    GroupSummary,
    OffsetReset,
)
from magnetar.enums import InitialPosition
from magnetar.link.cluster import Cluster
from magnetar.messaging.seeking import seek_command
from magnetar_core.errors import InvalidArgument, ResourceInUse
from magnetar_core.wire import group_pb2

# `list` is a method of the class below.
GroupSummaries: TypeAlias = list[GroupSummary]
OffsetResets: TypeAlias = list[OffsetReset]


class GroupAdmin:
    """Administers groups: `client.admin.groups`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list(self) -> GroupSummaries:
        """List all groups, with their states and their numbers of members."""
        reply = await self._cluster.bootstrap.request(group_pb2.CommandListGroups())
        return [GroupSummary.from_wire(one) for one in reply.groups]

    async def describe(self, group: str) -> GroupDescription:
        """Describe a group's members and partitions.

        Raises:
            GroupNotFound: there is none of this name.
        """
        return GroupDescription.from_wire(
            await self._cluster.bootstrap.request(group_pb2.CommandDescribeGroup(group=group))
        )

    async def delete(self, group: str) -> None:
        """Forget a group and its cursors.

        Raises:
            GroupNotFound: there is none of this name.
            ResourceInUse: it has members, or acks pend. No effect.
        """
        await self._cluster.bootstrap.request(group_pb2.CommandDeleteGroup(group=group))

    async def reset_offsets(
        self,
        group: str,
        *,
        offset: int | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> OffsetResets:
        """Move the cursors of a group without members. Name exactly one target.

        Args:
            append_time_ms: milliseconds since the Unix epoch; the first message not older.
            position: "earliest" or "latest".
            topic, partition: only there; all that the group reads otherwise.
            dry_run: only say what would be moved where.
        Raises:
            GroupNotFound: there is none of this name.
            InvalidArgument: it reads no such topic or partition. No effect.
            ResourceInUse: it has members, or acks pend. Partitions before that one are moved.
            OutOfRange: the offset is not in the log. Likewise.
        """
        found = await self.describe(group)
        if found.summary.state is not GroupState.EMPTY:
            raise ResourceInUse(
                f"group {group!r} has {found.summary.members} members: stop them, then reset"
            )
        chosen = [
            one
            for one in found.partitions
            if topic in (None, one.topic) and partition in (None, one.partition)
        ]
        if not chosen:
            raise InvalidArgument(f"group {group!r} reads no such topic or partition")
        resets = []
        for one in chosen:
            route = await self._cluster.route(one.topic)
            command = seek_command(
                route.subscription_name(one.partition, group),
                offset,
                None,
                append_time_ms,
                position,
            )
            command.dry_run = dry_run
            reply = await route.connection(one.partition).request(command)
            resets.append(
                OffsetReset(one.topic, one.partition, one.mark_delete_offset, reply.offset)
            )
        return resets
