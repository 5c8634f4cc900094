"""Commands of groups: join, heartbeat, leave; list, describe, delete.

Source: docs/design/0003-groups.md; KIP-848.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar_broker import keys
from magnetar_broker.assignment.group import Group, Member
from magnetar_broker.environment import Environment
from magnetar_broker.groups.group_views import describe_group, summary_of
from magnetar_broker.groups.groups import Groups
from magnetar_broker.replies import Replies
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import MemberName, PartitionName
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.transport.frames import detached
from magnetar_core.wire import group_pb2 as wire
from magnetar_core.wire import record_pb2 as records

MEMBER_NAME_CHARACTERS_MAX = 200
HEARTBEATS_PER_SESSION = 3


class GroupCommands:
    """Handlers of the commands of members and administrators."""

    def __init__(self, environment: Environment, groups: Groups, replies: Replies) -> None:
        self._config = environment.config
        self._store = environment.store
        self._groups = groups
        self._replies = replies
        self.handlers: Mapping[str, Handler] = each_of(
            {
                "join_group": self._join,
                "group_heartbeat": self._heartbeat,
                "leave_group": self._leave,
                "list_groups": self._list,
                "describe_group": self._describe,
                "delete_group": self._delete,
                "describe_group_members": self._describe_members,
            }
        )

    def _join(self, command: wire.CommandJoinGroup, reply: Reply) -> None:
        newcomer = self._newcomer(command)
        if self._groups.may_be_mixed(command.group, newcomer):
            self._replies.answer_later(reply, self._join_unless_mixed(detached(command), reply))
        else:
            self._replies.answer(reply, self._joined(command, newcomer, reply))

    async def _join_unless_mixed(
        self, command: wire.CommandJoinGroup, reply: Reply
    ) -> wire.CommandJoinGroupResponse:
        await self._groups.refuse_mixed(command.group)
        return self._joined(command, self._newcomer(command), reply)

    def _joined(
        self, command: wire.CommandJoinGroup, newcomer: Member, reply: Reply
    ) -> wire.CommandJoinGroupResponse:
        group = self._groups.join(
            command.group,
            newcomer,
            initial_position=command.initial_position,
            allow_two_phase_commit=command.allow_two_phase_commit,
            session=reply.session,
            complaint=reply.complaint,
        )
        return wire.CommandJoinGroupResponse(
            session_timeout_ms=newcomer.session_timeout_ms,
            rebalance_timeout_ms=newcomer.rebalance_timeout_ms,
            state=self._state_of(group, newcomer),
        )

    def _heartbeat(self, command: wire.CommandGroupHeartbeat, reply: Reply) -> None:
        name = MemberName(command.member_id, command.instance_id)
        held = {PartitionName.from_wire(one.partition): one.generation for one in command.held}
        group = self._groups.heartbeat(
            command.group, name, held, command.heartbeat_number, reply.session
        )
        self._replies.answer(reply, self._state_of(group, group.member(name)))

    def _leave(self, command: wire.CommandLeaveGroup, reply: Reply) -> None:
        self._groups.leave(command.group, MemberName(command.member_id, command.instance_id))
        self._replies.answer(reply, wire.CommandLeaveGroupResponse())

    def _list(self, command: wire.CommandListGroups, reply: Reply) -> None:
        cursors = self._groups.all_subscriptions()
        summaries = [summary_of(group, cursors.get(group.name, [])) for group in self._groups.all()]
        self._replies.answer(reply, wire.CommandListGroupsResponse(groups=summaries))

    def _describe_members(self, command: wire.CommandDescribeGroupMembers, reply: Reply) -> None:
        self._replies.answer_later(reply, self._counted_members(command.group))

    async def _counted_members(self, name: str) -> wire.CommandDescribeGroupMembersResponse:
        value = await self._store.get(keys.META, keys.kafka_group(name))
        row = records.KafkaGroupRow.FromString(value or b"")
        ours = next((one for one in self._groups.all() if one.name == name), None)
        return wire.CommandDescribeGroupMembersResponse(
            members=len(ours.members) if ours is not None else 0, kafka_members=len(row.members)
        )

    def _describe(self, command: wire.CommandDescribeGroup, reply: Reply) -> None:
        group = self._groups.get(command.group)
        cursors = list(self._groups.subscriptions(group))
        response = describe_group(group, cursors, self._groups.silent_ms)
        self._replies.answer(reply, response)

    def _delete(self, command: wire.CommandDeleteGroup, reply: Reply) -> None:
        self._groups.delete(command.group)
        self._replies.answer(reply, wire.CommandDeleteGroupResponse())

    def _newcomer(self, command: wire.CommandJoinGroup) -> Member:
        """Build a member from a join.

        Raises:
            InvalidArgument: a field is malformed.
        """
        config = self._config
        for name in (command.member_id, command.instance_id):
            if len(name) > MEMBER_NAME_CHARACTERS_MAX or not name.isprintable():
                raise InvalidArgument(
                    f"a member's id or instance id has {MEMBER_NAME_CHARACTERS_MAX} printable"
                    " characters at most"
                )
        if not command.member_id:
            raise InvalidArgument(
                "member_id is missing: each member chooses a random id of its own"
            )
        if not command.topics and not command.topic_pattern:
            raise InvalidArgument("a member must name topics, or a pattern of topics")
        return Member(
            member_id=command.member_id,
            instance_id=command.instance_id,
            client_name=command.client_name,
            topics=frozenset(command.topics),
            topic_pattern=command.topic_pattern,
            join_epoch=command.join_epoch,
            session_timeout_ms=_timeout(
                "session_timeout_ms",
                command.session_timeout_ms or config.group_session_timeout_ms_default,
                config.constants.group_session_timeout_ms_min,
                config.group_session_timeout_ms_max,
            ),
            rebalance_timeout_ms=_timeout(
                "rebalance_timeout_ms",
                command.rebalance_timeout_ms or config.group_rebalance_timeout_ms_default,
                1,
                config.group_rebalance_timeout_ms_max,
            ),
        )

    def _state_of(self, group: Group, member: Member) -> wire.CommandGroupHeartbeatResponse:
        return wire.CommandGroupHeartbeatResponse(
            generation=group.generation,
            heartbeat_interval_ms=min(
                self._config.constants.group_heartbeat_interval_ms,
                member.session_timeout_ms // HEARTBEATS_PER_SESSION,
            ),
            assigned=[
                wire.AssignedPartition(partition=partition.to_wire(), generation=generation)
                for partition, generation in group.assigned(member.member_id).items()
            ],
            coming=group.coming_count(member.member_id),
        )


def _timeout(name: str, timeout_ms: int, lowest_ms: int, highest_ms: int) -> int:
    if not lowest_ms <= timeout_ms <= highest_ms:
        raise InvalidArgument(
            f"{name} is {timeout_ms}, and must be from {lowest_ms} to {highest_ms}"
        )
    return timeout_ms
