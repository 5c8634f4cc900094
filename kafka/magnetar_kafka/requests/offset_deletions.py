"""Deletions of offsets and groups: OffsetDelete, DeleteGroups.

Source: docs/design/0029-kafka-groups.md, 0033-kafka-groups-over-brokers.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import PartitionName
from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode, Refused, outcome_of
from magnetar_kafka.group_coordinator import GroupCoordinator, GroupCoordinators
from magnetar_kafka.groups.classic_group import ClassicGroup, State
from magnetar_kafka.groups.subscriptions import subscribed_topics
from magnetar_kafka.offset_owners import OffsetOwners
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.offset_requests import Answering, code_of_commit
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.shards import Shards
from magnetar_kafka.wire import apis


class OffsetDeletions:
    """Handlers of OffsetDelete and DeleteGroups."""

    def __init__(self, shards: Shards, groups: GroupCoordinators, owners: OffsetOwners) -> None:
        self._shards = shards
        self._groups = groups
        self._owners = owners

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.OFFSET_DELETE.key: self._delete_offsets,
            apis.DELETE_GROUPS.key: self._delete_groups,
        }

    async def _deletable(
        self, answer: Answering, caller: Caller, name: str
    ) -> tuple[GroupCoordinator, ClassicGroup]:
        """Return a group of which the caller may delete something, and the group's coordinator.

        Raises:
            Refused: there is no such group, another server coordinates it, or the caller may not.
        """
        caller.check(Operation.DELETE, Kind.GROUP, name)
        coordinator = await self._groups.of(name)
        answer.rest_on(coordinator.shard)
        group = coordinator.find(name)
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
        return coordinator, group

    async def _delete_offsets(self, request: Request) -> Answer:
        body, answer = request.body, Answering(self._shards)
        group, caller = body["group_id"], request.caller
        try:
            _, known = await self._deletable(answer, caller, group)
            used = _used_topics(known)
        except Refused as refusal:
            return answer.made({"error_code": answer.note(refusal.code), "topics": []})
        names: dict[tuple[str, int], PartitionName] = {}
        errors: dict[tuple[str, int], Refused | MagnetarError] = {}
        for topic in body["topics"]:
            for one in topic["partitions"]:
                key = (topic["name"], one["partition_index"])
                try:
                    names[key] = _deleted_name(answer, caller, group, *key, used=used)
                except (Refused, MagnetarError) as error:
                    errors[key] = error
        found = await self._owners.forget(group, names.values())
        answer.take(found)

        def row_of(topic: str, number: int) -> dict[str, Any]:
            name = names.get((topic, number))
            error = errors.get((topic, number)) if name is None else found.errors.get(name)
            code = ErrorCode.NONE if error is None else answer.note(code_of_commit(error))
            caller.note("delete_offsets", f"group:{group} topic:{topic}-{number}", outcome_of(code))
            return {"partition_index": number, "error_code": code}

        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    row_of(topic["name"], one["partition_index"]) for one in topic["partitions"]
                ],
            }
            for topic in body["topics"]
        ]
        return answer.made({"error_code": ErrorCode.NONE, "topics": topics})

    async def _delete_groups(self, request: Request) -> Answer:
        answer = Answering(self._shards)
        rows = [
            {
                "group_id": name,
                "error_code": answer.note(await self._delete_group(answer, request.caller, name)),
            }
            for name in request.body["groups_names"]
        ]
        return answer.made({"results": rows})

    async def _delete_group(self, answer: Answering, caller: Caller, name: str) -> ErrorCode:
        code = ErrorCode.NONE
        try:
            coordinator, known = await self._deletable(answer, caller, name)
            if known.state is not State.EMPTY:
                raise Refused(ErrorCode.NON_EMPTY_GROUP, f"group {name!r} has members")
            with coordinator.deleting(name):
                found = await self._owners.forget_all(name)
                answer.take(found)
                found.check()
                coordinator.delete(name)
        except (Refused, MagnetarError) as error:
            code = code_of_commit(error)
        caller.note("delete_group", f"group:{name}", outcome_of(code))
        return code


def _deleted_name(
    answer: Answering, caller: Caller, group: str, topic: str, number: int, *, used: frozenset[str]
) -> PartitionName:
    """Return the name of a partition whose offset may be deleted.

    Raises:
        Refused: it may not, or the partition does not exist.
        MagnetarError: there is no such topic, or it is not known here yet.
    """
    caller.check(Operation.READ, Kind.TOPIC, topic)
    if topic in used:
        raise Refused(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, f"members of {group!r} read {topic!r}")
    return answer.name_of(topic, number)


def _used_topics(group: ClassicGroup) -> frozenset[str]:
    """Return the topics that members read.

    Raises:
        Refused: the members are not consumers, so that it is not known.
    """
    if group.members and group.protocol_type != "consumer":
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"group {group.name!r} has members")
    names: set[str] = set()
    for member in group.members.values():
        for _, metadata in member.protocols:
            names.update(subscribed_topics(metadata))
    return frozenset(names)
