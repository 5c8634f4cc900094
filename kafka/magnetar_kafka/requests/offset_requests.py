"""Offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups.

The group's coordinator checks who may commit. The commit carries the generation to the owner of the
partition, which refuses earlier ones: a check may be old when the commit arrives.
Source: docs/design/0029-kafka-groups.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar_broker.dispatch.committed_offset import NO_LEADER_EPOCH, CommittedOffset
from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import (
    IllegalGeneration,
    LogUnavailable,
    MagnetarError,
    ResourceInUse,
)
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of, outcome_of
from magnetar_kafka.group_coordinator import GroupCoordinator, GroupCoordinators
from magnetar_kafka.groups.classic_group import NO_GENERATION, ClassicGroup, State
from magnetar_kafka.groups.subscriptions import subscribed_topics
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.partitions import locate
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.wire import apis

NO_OFFSET = -1
# The first version of OffsetFetch that asks about several groups.
SEVERAL_GROUPS_FROM = 8
# The first version of OffsetFetch whose answer has an error for the group.
GROUP_ERROR_FROM = 2


class OffsetRequests:
    """Handlers of requests about offsets of groups."""

    def __init__(self, shards: Shards, groups: GroupCoordinators, config: KafkaConfig) -> None:
        self._shards = shards
        self._groups = groups
        self._metadata_bytes_max = config.kafka_offset_metadata_bytes_max

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.OFFSET_COMMIT.key: self._commit,
            apis.OFFSET_FETCH.key: self._fetch,
            apis.OFFSET_DELETE.key: self._delete_offsets,
            apis.DELETE_GROUPS.key: self._delete_groups,
        }

    # Commits

    async def _commit(self, request: Request) -> Answer:
        body, answer = request.body, _Answering()
        caller = request.caller
        group, refusal, commit = body["group_id"], None, None
        try:
            caller.check(Operation.READ, Kind.GROUP, group)
            coordinator = await self._groups.of(group)
            answer.rest_on(coordinator.shard)
            member_id, generation = body["member_id"], body["generation_id_or_member_epoch"]
            checked = coordinator.check_commit(
                group, member_id, body.get("group_instance_id"), generation
            )
            is_member = generation != NO_GENERATION
            commit = _Commit(coordinator, group, checked, is_member=is_member)
        except Refused as error:
            refusal = error
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    self._commit_part(answer, caller, topic["name"], one, commit, refusal)
                    for one in topic["partitions"]
                ],
            }
            for topic in body["topics"]
        ]
        return answer.made({"topics": topics})

    def _commit_part(
        self,
        answer: _Answering,
        caller: Caller,
        topic: str,
        one: Mapping[str, Any],
        commit: _Commit | None,
        refusal: Refused | None,
    ) -> dict[str, Any]:
        code = ErrorCode.NONE
        try:
            if commit is None:
                assert refusal is not None
                raise refusal
            caller.check(Operation.READ, Kind.TOPIC, topic)
            offset = offset_of(one, self._metadata_bytes_max)
            part = Part(shard=None, fields={})
            try:
                shard, partition = locate(self._shards, topic, one["partition_index"], part)
            finally:
                answer.rest_on(part.shard)
            commit.apply(shard, partition, offset)
        except (Refused, MagnetarError) as error:
            code = answer.note(_commit_code(error))
        return {"partition_index": one["partition_index"], "error_code": code}

    # Fetches

    async def _fetch(self, request: Request) -> Answer:
        body, caller, answer = request.body, request.caller, _Answering()
        is_stable = body.get("require_stable", False)
        if request.version >= SEVERAL_GROUPS_FROM:
            rows = [
                {
                    "group_id": one["group_id"],
                    **await self._fetched(
                        answer, caller, one["group_id"], one["topics"], is_stable
                    ),
                }
                for one in body["groups"]
            ]
            return answer.made({"groups": rows})
        found = await self._fetched(answer, caller, body["group_id"], body["topics"], is_stable)
        if request.version < GROUP_ERROR_FROM and found["error_code"]:
            for topic in found["topics"]:
                for row in topic["partitions"]:
                    row["error_code"] = found["error_code"]
        return answer.made(found)

    async def _fetched(
        self,
        answer: _Answering,
        caller: Caller,
        group: str,
        topics: list[dict[str, Any]] | None,
        is_stable: bool,
    ) -> dict[str, Any]:
        """Return the topics of an answer for a group, and the code for the group."""
        try:
            caller.check(Operation.DESCRIBE, Kind.GROUP, group)
            coordinator = await self._groups.of(group)
        except Refused as refusal:
            code = answer.note(refusal.code)
            return {"topics": _refused_topics(topics or [], code), "error_code": code}
        answer.rest_on(coordinator.shard)
        if topics is None:
            return {
                "topics": self._all_of(answer, caller, group, is_stable),
                "error_code": ErrorCode.NONE,
            }
        known = coordinator.find(group)
        generation = known.generation if known is not None and known.members else None
        rows = [
            {
                "name": topic["name"],
                "partitions": [
                    self._fetch_part(
                        answer, caller, group, topic["name"], number, generation, is_stable
                    )
                    for number in topic["partition_indexes"]
                ],
            }
            for topic in topics
        ]
        if answer.later_generation:
            coordinator.learn_generation(group, answer.later_generation)
            code = answer.note(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return {"topics": _refused_topics(topics, code), "error_code": code}
        return {"topics": rows, "error_code": ErrorCode.NONE}

    def _fetch_part(
        self,
        answer: _Answering,
        caller: Caller,
        group: str,
        topic: str,
        number: int,
        generation: int | None,
        is_stable: bool,
    ) -> dict[str, Any]:
        part = Part(shard=None, fields={})
        try:
            caller.check(Operation.DESCRIBE, Kind.TOPIC, topic)
            try:
                shard, partition = locate(self._shards, topic, number, part)
            finally:
                answer.rest_on(part.shard)
            if generation is not None:
                # From here on no member of an earlier generation commits there.
                shard.access.note_generation(partition, group, generation)
        except IllegalGeneration as error:
            answer.later_generation = max(answer.later_generation, _generation_of(error))
            return _fetched_row(number, None, ErrorCode.NONE)
        except (Refused, MagnetarError) as error:
            code = code_of(error)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # As Kafka: there is no offset for what does not exist.
                return _fetched_row(number, None, ErrorCode.NONE)
            if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE):
                code = ErrorCode.UNSTABLE_OFFSET_COMMIT
            return _fetched_row(number, None, answer.note(code))
        if is_stable and shard.access.has_pending_acks(partition, group):
            return _fetched_row(number, None, answer.note(ErrorCode.UNSTABLE_OFFSET_COMMIT))
        offset = shard.access.committed_offset(partition, group)
        return _fetched_row(number, offset, ErrorCode.NONE)

    def _all_of(
        self, answer: _Answering, caller: Caller, group: str, is_stable: bool
    ) -> list[dict[str, Any]]:
        """Return the offsets that a group has here on topics that the caller may describe."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for shard in self._shards.all():
            answer.rest_on(shard)
            for partition in shard.access.partitions():
                if not caller.may(Operation.DESCRIBE, Kind.TOPIC, partition.name.topic):
                    continue
                offset = shard.access.committed_offset(partition, group)
                if offset is None:
                    continue
                row = _fetched_row(partition.name.partition, offset, ErrorCode.NONE)
                if is_stable and shard.access.has_pending_acks(partition, group):
                    code = answer.note(ErrorCode.UNSTABLE_OFFSET_COMMIT)
                    row = _fetched_row(partition.name.partition, None, code)
                topics.setdefault(partition.name.topic, []).append(row)
        return [{"name": name, "partitions": rows} for name, rows in topics.items()]

    # Deletions

    async def _deletable(
        self, answer: _Answering, caller: Caller, name: str
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
        body, answer = request.body, _Answering()
        group, caller = body["group_id"], request.caller
        try:
            _, known = await self._deletable(answer, caller, group)
            used = _used_topics(known)
        except Refused as refusal:
            return answer.made({"error_code": answer.note(refusal.code), "topics": []})
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    self._delete_part(
                        answer, caller, group, topic["name"], one["partition_index"], used
                    )
                    for one in topic["partitions"]
                ],
            }
            for topic in body["topics"]
        ]
        return answer.made({"error_code": ErrorCode.NONE, "topics": topics})

    def _delete_part(
        self,
        answer: _Answering,
        caller: Caller,
        group: str,
        topic: str,
        number: int,
        used: frozenset[str],
    ) -> dict[str, Any]:
        code = ErrorCode.NONE
        part = Part(shard=None, fields={})
        try:
            caller.check(Operation.READ, Kind.TOPIC, topic)
            if topic in used:
                raise Refused(
                    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, f"members of {group!r} read {topic!r}"
                )
            try:
                shard, partition = locate(self._shards, topic, number, part)
            finally:
                answer.rest_on(part.shard)
            shard.access.forget_group(partition, group)
        except (Refused, MagnetarError) as error:
            code = answer.note(_commit_code(error))
        resource = f"group:{group} topic:{topic}-{number}"
        caller.note("delete_offsets", resource, outcome_of(code))
        return {"partition_index": number, "error_code": code}

    async def _delete_groups(self, request: Request) -> Answer:
        answer = _Answering()
        rows = [
            {
                "group_id": name,
                "error_code": answer.note(await self._delete_group(answer, request.caller, name)),
            }
            for name in request.body["groups_names"]
        ]
        return answer.made({"results": rows})

    async def _delete_group(self, answer: _Answering, caller: Caller, name: str) -> ErrorCode:
        code = ErrorCode.NONE
        try:
            coordinator, known = await self._deletable(answer, caller, name)
            if known.state is not State.EMPTY:
                raise Refused(ErrorCode.NON_EMPTY_GROUP, f"group {name!r} has members")
            for shard in self._shards.all():
                answer.rest_on(shard)
                for partition in shard.access.partitions():
                    shard.access.forget_group(partition, name)
            coordinator.delete(name)
        except (Refused, MagnetarError) as error:
            code = _commit_code(error)
        caller.note("delete_group", f"group:{name}", outcome_of(code))
        return code


class _Commit:
    """A commit that the coordinator has checked.

    Args:
        generation: the one that it carries.
        is_member: a member commits; otherwise a client, while there are no members.
    """

    def __init__(
        self, coordinator: GroupCoordinator, group: str, generation: int, *, is_member: bool
    ) -> None:
        self._coordinator = coordinator
        self._group = group
        self._generation = generation
        self._is_member = is_member

    def apply(self, shard: Shard, partition: Any, offset: CommittedOffset) -> None:
        """Commit an offset on a partition.

        Raises:
            MagnetarError: as LocalAccess.commit_offset.
        """
        access, group = shard.access, self._group
        try:
            access.commit_offset(partition, group, self._generation, offset)
        except IllegalGeneration as error:
            # The owner has seen a generation that the coordinator's rows no longer have.
            later = _generation_of(error)
            self._coordinator.learn_generation(group, later)
            if self._is_member:
                raise
            self._generation = later
            access.commit_offset(partition, group, later, offset)


class _Answering:
    """An answer while it is made.

    Attributes:
        later_generation: one that an owner knows, and the coordinator does not; 0: none.
    """

    def __init__(self) -> None:
        self._shards: dict[Shard, None] = {}
        self._codes: list[ErrorCode] = []
        self.later_generation = 0

    def rest_on(self, shard: Shard | None) -> None:
        """Note a shard without which the answer may not leave."""
        if shard is not None:
            self._shards[shard] = None

    def note(self, code: ErrorCode) -> ErrorCode:
        """Note a code of the answer; return it."""
        self._codes.append(code)
        return code

    def made(self, message: dict[str, Any]) -> Answer:
        """Return the answer."""
        return Answer(body=lambda: message, rests_on=tuple(self._shards), codes=self._codes)


def offset_of(one: Mapping[str, Any], metadata_bytes_max: int) -> CommittedOffset:
    """Return the offset that a request commits on a partition.

    Raises:
        Refused: it may not.
    """
    metadata = one["committed_metadata"] or ""
    if len(metadata.encode()) > metadata_bytes_max:
        raise Refused(
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            f"metadata exceeds kafka_offset_metadata_bytes_max, {metadata_bytes_max}",
        )
    if one["committed_offset"] < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, "an offset cannot be negative")
    epoch = one.get("committed_leader_epoch", NO_LEADER_EPOCH)
    return CommittedOffset(one["committed_offset"], metadata, max(epoch, NO_LEADER_EPOCH))


def _commit_code(error: Refused | MagnetarError) -> ErrorCode:
    """Return the code with which clients of a commit do what they should."""
    if isinstance(error, (ResourceInUse, LogUnavailable)):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    code = code_of(error)
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _generation_of(error: IllegalGeneration) -> int:
    return int(error.details.get("generation", 0))


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


def _fetched_row(number: int, offset: CommittedOffset | None, code: ErrorCode) -> dict[str, Any]:
    found = offset if offset is not None else CommittedOffset(NO_OFFSET)
    return {
        "partition_index": number,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": code,
    }


def _refused_topics(topics: list[dict[str, Any]], code: ErrorCode) -> list[dict[str, Any]]:
    return [
        {
            "name": topic["name"],
            "partitions": [
                _fetched_row(number, None, code) for number in topic["partition_indexes"]
            ],
        }
        for topic in topics
    ]
