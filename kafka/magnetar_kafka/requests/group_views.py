"""Questions about groups: ListGroups, DescribeGroups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar_core.access.needs import Kind, Operation
from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.group_coordinator import GroupCoordinators
from magnetar_kafka.groups.classic_group import ClassicGroup
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.shards import Shard
from magnetar_kafka.wire import apis

# What Kafka calls a group that does not exist.
_ABSENT = "Dead"


class GroupViewRequests:
    """Handlers of questions about groups."""

    def __init__(self, groups: GroupCoordinators) -> None:
        self._groups = groups

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.LIST_GROUPS.key: self._list,
            apis.DESCRIBE_GROUPS.key: self._describe,
        }

    async def _list(self, request: Request) -> Answer:
        states = [one.lower() for one in request.body.get("states_filter", ())]
        try:
            coordinators = await self._groups.all()
        except Refused as refusal:
            refused = {"error_code": refusal.code, "groups": []}
            return Answer(body=lambda: refused, codes=(refusal.code,))
        rows = [
            {
                "group_id": group.name,
                "protocol_type": group.protocol_type,
                "group_state": group.state.value,
            }
            for coordinator in coordinators
            for group in coordinator.all()
            if request.caller.may(Operation.DESCRIBE, Kind.GROUP, group.name)
            and (not states or group.state.value.lower() in states)
        ]
        message = {"error_code": ErrorCode.NONE, "groups": rows}
        return Answer(body=lambda: message, rests_on=[one.shard for one in coordinators])

    async def _describe(self, request: Request) -> Answer:
        shards: dict[Shard, None] = {}
        rows = [await self._row(request.caller, name, shards) for name in request.body["groups"]]
        return Answer(
            body=lambda: {"groups": rows},
            rests_on=tuple(shards),
            codes=[row["error_code"] for row in rows],
        )

    async def _row(self, caller: Caller, name: str, shards: dict[Shard, None]) -> dict[str, Any]:
        row: dict[str, Any] = {
            "error_code": ErrorCode.NONE,
            "group_id": name,
            "group_state": _ABSENT,
            "protocol_type": "",
            "protocol_data": "",
        }
        try:
            caller.check(Operation.DESCRIBE, Kind.GROUP, name)
            coordinator = await self._groups.of(name)
        except Refused as refusal:
            return {**row, "error_code": refusal.code, "group_state": ""}
        shards[coordinator.shard] = None
        group = coordinator.find(name)
        return row if group is None else {**row, **_described(group)}


def _described(group: ClassicGroup) -> dict[str, Any]:
    return {
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol),
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }
