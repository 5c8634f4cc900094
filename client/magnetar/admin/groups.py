"""Administration of groups: list, describe and delete groups, reset their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from magnetar.admin.group_descriptions import (
    GroupDescription,
    GroupState,
    GroupSummary,
    OffsetReset,
)
from magnetar.admin.merged_groups import merge_descriptions, merge_lists
from magnetar.arguments import checked
from magnetar.enums import InitialPosition
from magnetar.link.cluster import Cluster
from magnetar.link.members import Member
from magnetar.link.session import ResponseT
from magnetar.link.whole_topics import all_of
from magnetar.messaging.consuming.seeking import seek_command
from magnetar_core.errors import (
    GroupNotFound,
    InvalidArgument,
    LogUnavailable,
    MagnetarError,
    ResourceInUse,
)
from magnetar_core.requests import Request
from magnetar_core.wire import group_pb2

# `list` is a method of the class below.
GroupSummaries: TypeAlias = list[GroupSummary]
OffsetResets: TypeAlias = list[OffsetReset]


async def ask_all_brokers(
    cluster: Cluster, command: Callable[[], Request[ResponseT]]
) -> list[ResponseT]:
    """Ask all brokers about a group, at the same time.

    Args:
        command: returns the command for one broker.
    Returns:
        The answers of those that have the group.
    Raises:
        GroupNotFound: none of them has it.
        LogUnavailable: a broker does not answer in time. Others may have done what they were asked.
        MagnetarError: a broker refuses. Others may have done what they were asked.
    """

    async def ask(broker: Member) -> ResponseT | GroupNotFound:
        try:
            return await cluster.broker(broker).request(command())
        except GroupNotFound as error:
            return error
        except MagnetarError as error:
            if not error.kind.may_pass:
                raise
            title = cluster.broker_title(broker.address)
            raise LogUnavailable(f"{title} does not answer: {error}") from error

    await cluster.info()
    answers = await all_of(cluster.runtime, ask, cluster.brokers)
    found = [answer for answer in answers if not isinstance(answer, GroupNotFound)]
    if not found:
        for one in answers:
            if isinstance(one, GroupNotFound):
                raise one
    return found


class GroupAdmin:
    """Administers groups: `client.admin.groups`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list(self) -> GroupSummaries:
        """List all groups, with their states and their numbers of members.

        Raises:
            LogUnavailable: a broker does not answer in time.
        """
        replies = await ask_all_brokers(self._cluster, group_pb2.CommandListGroups)
        return merge_lists(
            [GroupSummary.from_wire(group) for group in reply.groups] for reply in replies
        )

    @checked
    async def describe(self, group: str) -> GroupDescription:
        """Describe a group's members and partitions.

        Raises:
            GroupNotFound: no group has this name.
            LogUnavailable: a broker does not answer in time.
        """
        replies = await ask_all_brokers(
            self._cluster, lambda: group_pb2.CommandDescribeGroup(group=group)
        )
        return merge_descriptions([GroupDescription.from_wire(reply) for reply in replies])

    @checked
    async def delete(self, group: str) -> None:
        """Delete a group and its cursors.

        With several brokers, some may have deleted theirs when this fails. Repeat it then.

        Raises:
            GroupNotFound: no group has this name.
            ResourceInUse: the group has members or pending acks.
            LogUnavailable: a broker does not answer in time.
        """
        # A broker that refuses must do so before another one has deleted anything.
        found = await self.describe(group)
        if found.summary.members:
            raise ResourceInUse(
                f"group {group!r} has {found.summary.members} members: stop them first",
                members=found.summary.members,
            )
        pending = [one for one in found.partitions if one.pending_ack_count]
        if pending:
            raise ResourceInUse(
                f"acks of group {group!r} are pending in {len(pending)} partitions, as in"
                f" {pending[0].topic}-partition-{pending[0].partition}: end their transactions"
                " first"
            )
        while not found.summary.members:
            await ask_all_brokers(self._cluster, lambda: group_pb2.CommandDeleteGroup(group=group))
            try:
                # A topic that got partitions meanwhile has given the group cursors there.
                found = await self.describe(group)
            except GroupNotFound:
                break

    @checked
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
        """Move the cursors of a group without members.

        Name exactly one of offset, append_time_ms and position.

        Args:
            group: the group's name.
            offset: the offset of the next message that the group gets.
            append_time_ms: move to the first message that was stored at this time or later, in
                milliseconds since the Unix epoch.
            position: "earliest" or "latest".
            topic: move the cursors of this topic only; None: of all topics of the group.
            partition: move the cursors of this partition only; None: of all partitions.
            dry_run: return what would be moved, and move nothing.
        Returns:
            The old and the new offset of each partition.
        Raises:
            GroupNotFound: no group has this name.
            InvalidArgument: the group does not read this topic or partition. No effect.
            ResourceInUse: the group has members (no effect), or a partition has pending acks; the
                partitions before it have been moved.
            OutOfRange: a partition's log does not have the offset; the partitions before it have
                been moved.
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
