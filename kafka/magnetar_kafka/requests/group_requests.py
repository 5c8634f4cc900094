"""Requests of a group's members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from magnetar_core.access.needs import Kind, Operation
from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.group_coordinator import GroupCoordinator, GroupCoordinators
from magnetar_kafka.groups.classic_group import NO_GENERATION, MemberIdNeeded
from magnetar_kafka.groups.members import Join, Joined
from magnetar_kafka.offset_owners import OffsetOwners
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.shards import Shard
from magnetar_kafka.wire import apis

# The first version of JoinGroup in which a client comes again with the id that it was told.
KNOWN_ID_FROM = 4
SKIP_ASSIGNMENT_FROM = 9
# The first version of LeaveGroup that names several members.
SEVERAL_LEAVE_FROM = 3


class GroupRequests:
    """Handlers of requests of members."""

    def __init__(self, groups: GroupCoordinators, owners: OffsetOwners) -> None:
        self._groups = groups
        self._owners = owners

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.JOIN_GROUP.key: self._join,
            apis.SYNC_GROUP.key: self._sync,
            apis.HEARTBEAT.key: self._heartbeat,
            apis.LEAVE_GROUP.key: self._leave,
        }

    async def _coordinator(self, request: Request) -> GroupCoordinator:
        """Return the coordinator of the group that a request of a member names.

        Raises:
            Refused: the caller may not read the group, or as GroupCoordinators.of.
        """
        group = request.body["group_id"]
        request.caller.check(Operation.READ, Kind.GROUP, group)
        return await self._groups.of(group)

    async def _join(self, request: Request) -> Answer:
        body, shard = request.body, None
        refused: dict[str, Any] = {
            "generation_id": NO_GENERATION,
            "protocol_name": "",
            "leader": "",
            "member_id": body["member_id"],
        }
        try:
            coordinator = await self._coordinator(request)
            shard = coordinator.shard
            await self._refuse_mixed(coordinator, body["group_id"])
            asked = _asked(coordinator, request)
            joined = await coordinator.join(body["group_id"], asked, request.stopping)
        except MemberIdNeeded as needed:
            message = {"error_code": needed.code, **refused, "member_id": needed.member_id}
            return _answer(shard, message, refused)
        except Refused as refusal:
            return _answer(shard, {"error_code": refusal.code, **refused}, refused)
        return _answer(shard, _joined_message(joined), refused)

    async def _refuse_mixed(self, coordinator: GroupCoordinator, group: str) -> None:
        """Check that a group whose first member joins has no members of ours.

        Raises:
            Refused: it has.
        """
        known = coordinator.find(group)
        if known is not None and known.members:
            return
        if await self._owners.has_members_of_ours(group):
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group!r} has members that are not Kafka's clients",
            )

    async def _sync(self, request: Request) -> Answer:
        body, shard = request.body, None
        refused = {"assignment": b""}
        try:
            coordinator = await self._coordinator(request)
            shard = coordinator.shard
            synced = await coordinator.sync(
                body["group_id"],
                body["member_id"],
                body.get("group_instance_id"),
                body["generation_id"],
                {one["member_id"]: bytes(one["assignment"]) for one in body["assignments"]},
                request.stopping,
                protocol_type=body.get("protocol_type"),
                protocol=body.get("protocol_name"),
            )
        except Refused as refusal:
            return _answer(shard, {"error_code": refusal.code, **refused}, refused)
        return _answer(
            shard,
            {
                "error_code": ErrorCode.NONE,
                "protocol_type": synced.protocol_type,
                "protocol_name": synced.protocol,
                "assignment": synced.assignment,
            },
            refused,
        )

    async def _heartbeat(self, request: Request) -> Answer:
        body, shard, code = request.body, None, ErrorCode.NONE
        try:
            coordinator = await self._coordinator(request)
            shard = coordinator.shard
            coordinator.heartbeat(
                body["group_id"],
                body["member_id"],
                body.get("group_instance_id"),
                body["generation_id"],
            )
        except Refused as refusal:
            code = refusal.code
        return _answer(shard, {"error_code": code})

    async def _leave(self, request: Request) -> Answer:
        body = request.body
        try:
            coordinator = await self._coordinator(request)
        except Refused as refusal:
            return _answer(None, {"error_code": refusal.code})
        if request.version < SEVERAL_LEAVE_FROM:
            row = _left(coordinator, body["group_id"], body["member_id"], None)
            return _answer(coordinator.shard, {"error_code": row["error_code"]})
        rows = [
            _left(coordinator, body["group_id"], one["member_id"], one["group_instance_id"])
            for one in body["members"]
        ]
        return _answer(coordinator.shard, {"error_code": ErrorCode.NONE, "members": rows})


def _left(
    coordinator: GroupCoordinator, group: str, member_id: str, instance_id: str | None
) -> dict[str, Any]:
    code = ErrorCode.NONE
    try:
        coordinator.leave(group, member_id, instance_id)
    except Refused as refusal:
        code = refusal.code
    return {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}


def _asked(coordinator: GroupCoordinator, request: Request) -> Join:
    """Return the request of a client that joins.

    Raises:
        Refused: its session timeout is outside of the limits.
    """
    body, access = request.body, coordinator.shard.access
    session_timeout_ms = body["session_timeout"]
    least_ms, most_ms = access.session_timeout_ms_min, access.session_timeout_ms_max
    if not least_ms <= session_timeout_ms <= most_ms:
        raise Refused(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"a session timeout lies between {least_ms} and {most_ms} ms",
        )
    rebalance_timeout_ms = body.get("rebalance_timeout", -1)
    if rebalance_timeout_ms <= 0:
        rebalance_timeout_ms = session_timeout_ms
    instance_id = body.get("group_instance_id")
    return Join(
        member_id=body["member_id"],
        instance_id=instance_id,
        new_member_id=coordinator.new_member_id(instance_id or request.client_id),
        needs_known_id=request.version >= KNOWN_ID_FROM,
        can_skip_assignment=request.version >= SKIP_ASSIGNMENT_FROM,
        client_id=request.client_id,
        client_host=f"/{request.caller.origin}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=min(rebalance_timeout_ms, access.rebalance_timeout_ms_max),
        protocol_type=body["protocol_type"],
        protocols=tuple((one["name"], bytes(one["metadata"])) for one in body["protocols"]),
    )


def _joined_message(joined: Joined) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol,
        "leader": joined.leader_id,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "metadata": one.metadata,
            }
            for one in joined.members
        ],
    }


def _answer(
    shard: Shard | None, message: dict[str, Any], refused: Mapping[str, Any] = MappingProxyType({})
) -> Answer:
    """Return an answer that rests on the coordinator's shard, if there is one.

    Args:
        refused: the fields of an answer that only has an error, besides that.
    """
    return Answer(
        body=lambda: message,
        rests_on=() if shard is None else (shard,),
        if_moved={**refused, "error_code": ErrorCode.NOT_COORDINATOR},
        codes=(message["error_code"],),
    )
