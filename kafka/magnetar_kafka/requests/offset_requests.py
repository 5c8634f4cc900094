"""Offsets of groups: OffsetCommit, OffsetFetch.

The group's coordinator checks who may commit. The commit carries the generation to the owner of the
partition, which refuses earlier ones: a check may be old when the commit arrives.
Source: docs/design/0029-kafka-groups.md, 0033-kafka-groups-over-brokers.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar_broker.dispatch.committed_offset import NO_LEADER_EPOCH, CommittedOffset
from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import IllegalGeneration, LogUnavailable, MagnetarError, ResourceInUse
from magnetar_core.ids import PartitionName
from magnetar_core.wire import group_pb2
from magnetar_kafka.answer import Answer
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of
from magnetar_kafka.group_coordinator import GroupCoordinator, GroupCoordinators
from magnetar_kafka.groups.classic_group import NO_GENERATION
from magnetar_kafka.offset_owners import Found, OffsetOwners
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.partitions import name_of
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.wire import apis

NO_OFFSET = -1
# The first version of OffsetFetch that asks about several groups.
SEVERAL_GROUPS_FROM = 8
# The first version of OffsetFetch whose answer has an error for the group.
GROUP_ERROR_FROM = 2


class OffsetRequests:
    """Handlers of OffsetCommit and OffsetFetch."""

    def __init__(
        self, shards: Shards, groups: GroupCoordinators, owners: OffsetOwners, config: KafkaConfig
    ) -> None:
        self._shards = shards
        self._groups = groups
        self._owners = owners
        self._metadata_bytes_max = config.kafka_offset_metadata_bytes_max

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {apis.OFFSET_COMMIT.key: self._commit, apis.OFFSET_FETCH.key: self._fetch}

    # Commits

    async def _commit(self, request: Request) -> Answer:
        body, answer = request.body, Answering(self._shards)
        group, caller = body["group_id"], request.caller
        refusal: Refused | None = None
        coordinator: GroupCoordinator | None = None
        try:
            caller.check(Operation.READ, Kind.GROUP, group)
            coordinator = await self._groups.of(group)
            answer.rest_on(coordinator.shard)
            _checked(coordinator, body)
        except Refused as error:
            refusal = error
        rows: list[tuple[dict[str, Any], PartitionName]] = []
        offsets: dict[PartitionName, CommittedOffset] = {}
        topics: list[dict[str, Any]] = []
        for topic in body["topics"]:
            of_topic: list[dict[str, Any]] = []
            for one in topic["partitions"]:
                number = one["partition_index"]
                row = {"partition_index": number, "error_code": ErrorCode.NONE}
                of_topic.append(row)
                try:
                    if refusal is not None:
                        raise refusal
                    caller.check(Operation.READ, Kind.TOPIC, topic["name"])
                    offset = offset_of(one, self._metadata_bytes_max)
                    name = answer.name_of(topic["name"], number)
                    offsets[name] = offset
                    rows.append((row, name))
                except (Refused, MagnetarError) as error:
                    row["error_code"] = answer.note(code_of_commit(error))
            topics.append({"name": topic["name"], "partitions": of_topic})
        if coordinator is not None and offsets:
            errors = await self._commit_all(answer, coordinator, body, offsets)
            for row, name in rows:
                if name in errors:
                    row["error_code"] = answer.note(code_of_commit(errors[name]))
        return answer.made({"topics": topics}, {"topics": _moved_topics(topics)})

    async def _commit_all(
        self,
        answer: Answering,
        coordinator: GroupCoordinator,
        body: Mapping[str, Any],
        offsets: Mapping[PartitionName, CommittedOffset],
    ) -> dict[PartitionName, Refused | MagnetarError]:
        """Commit offsets; return the errors."""
        group = body["group_id"]
        errors: dict[PartitionName, Refused | MagnetarError] = {}
        left = dict(offsets)
        for _ in range(2):
            try:
                generation = _checked(coordinator, body)
            except Refused as refusal:
                return {**errors, **dict.fromkeys(left, refusal)}
            found = await self._owners.commit(group, generation, left)
            answer.take(found)
            errors.update(found.errors)
            later = _later_generation(found)
            if not later:
                break
            # The owner has seen a generation that the coordinator's rows no longer have.
            coordinator.learn_generation(group, later)
            if body["generation_id_or_member_epoch"] != NO_GENERATION:
                break
            # A client that commits while there are no members has no generation of its own.
            left = {
                name: offset
                for name, offset in left.items()
                if isinstance(errors.get(name), IllegalGeneration)
            }
            for name in left:
                del errors[name]
        return errors

    # Fetches

    async def _fetch(self, request: Request) -> Answer:
        body, caller, answer = request.body, request.caller, Answering(self._shards)
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
            moved = [{**row, "error_code": ErrorCode.NOT_COORDINATOR, "topics": []} for row in rows]
            return answer.made({"groups": rows}, {"groups": moved})
        found = await self._fetched(answer, caller, body["group_id"], body["topics"], is_stable)
        if request.version < GROUP_ERROR_FROM and found["error_code"]:
            for topic in found["topics"]:
                for row in topic["partitions"]:
                    row["error_code"] = found["error_code"]
        moved_topics = _refused_topics(body["topics"] or [], ErrorCode.NOT_COORDINATOR)
        return answer.made(found, {"topics": moved_topics, "error_code": ErrorCode.NOT_COORDINATOR})

    async def _fetched(
        self,
        answer: Answering,
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
            return await self._all_of(answer, caller, group, is_stable)
        names: dict[tuple[str, int], PartitionName] = {}
        errors: dict[tuple[str, int], Refused | MagnetarError] = {}
        for topic in topics:
            for number in topic["partition_indexes"]:
                key = (topic["name"], number)
                try:
                    caller.check(Operation.DESCRIBE, Kind.TOPIC, topic["name"])
                    names[key] = answer.name_of(*key)
                except (Refused, MagnetarError) as error:
                    errors[key] = error
        known = coordinator.find(group)
        # From here on no member of an earlier generation commits there.
        generation = known.generation if known is not None and known.members else 0
        found = await self._owners.fetch(group, generation, names.values())
        answer.take(found)
        later = _later_generation(found)
        if later:
            coordinator.learn_generation(group, later)
            code = answer.note(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return {"topics": _refused_topics(topics, code), "error_code": code}

        def row_of(topic: str, number: int) -> dict[str, Any]:
            name = names.get((topic, number))
            error = errors.get((topic, number)) if name is None else found.errors.get(name)
            if error is not None or name is None:
                assert error is not None
                return _fetched_row(number, None, answer.note(_code_of_fetch(error)))
            return _told_row(answer, number, found.outcomes[name], is_stable)

        rows = [
            {
                "name": topic["name"],
                "partitions": [
                    row_of(topic["name"], number) for number in topic["partition_indexes"]
                ],
            }
            for topic in topics
        ]
        return {"topics": rows, "error_code": ErrorCode.NONE}

    async def _all_of(
        self, answer: Answering, caller: Caller, group: str, is_stable: bool
    ) -> dict[str, Any]:
        """Return the offsets that a group has on topics that the caller may describe."""
        found = await self._owners.fetch_all(group)
        answer.take(found)
        if found.away:
            code = answer.note(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return {"topics": [], "error_code": code}
        topics: dict[str, list[dict[str, Any]]] = {}
        for name, told in sorted(found.outcomes.items()):
            if caller.may(Operation.DESCRIBE, Kind.TOPIC, name.topic):
                row = _told_row(answer, name.partition, told, is_stable)
                topics.setdefault(name.topic, []).append(row)
        rows = [{"name": name, "partitions": some} for name, some in topics.items()]
        return {"topics": rows, "error_code": ErrorCode.NONE}


class Answering:
    """An answer about offsets while it is made."""

    def __init__(self, shards: Shards) -> None:
        self._of_process = shards
        self._shards: dict[Shard, None] = {}
        self._codes: list[ErrorCode] = []

    def rest_on(self, shard: Shard | None) -> None:
        """Note a shard without which the answer may not leave."""
        if shard is not None:
            self._shards[shard] = None

    def take(self, found: Found) -> None:
        """Note the shards of this process that have told something."""
        for shard in found.shards:
            self.rest_on(shard)

    def name_of(self, topic: str, number: int) -> PartitionName:
        """Return the name of a partition. Raises: Refused, MagnetarError: as partitions.name_of."""
        try:
            return name_of(self._of_process, topic, number)
        except (Refused, MagnetarError):
            # A refusal because of the topics rests on the shard that knows them.
            self.rest_on(self._of_process.directory())
            raise

    def note(self, code: ErrorCode) -> ErrorCode:
        """Note a code of the answer; return it."""
        self._codes.append(code)
        return code

    def made(self, message: dict[str, Any], if_moved: dict[str, Any] | None = None) -> Answer:
        """Return the answer.

        Args:
            if_moved: as of Answer.
        """
        return Answer(
            body=lambda: message,
            rests_on=tuple(self._shards),
            if_moved=if_moved,
            codes=self._codes,
        )


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


def code_of_commit(error: Refused | MagnetarError) -> ErrorCode:
    """Return the code with which clients of a commit do what they should."""
    if isinstance(error, (ResourceInUse, LogUnavailable)):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    code = code_of(error)
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _checked(coordinator: GroupCoordinator, body: Mapping[str, Any]) -> int:
    """Check that a client may commit; return the generation that its commit carries.

    Raises:
        Refused: as GroupCoordinator.check_commit.
    """
    return coordinator.check_commit(
        body["group_id"],
        body["member_id"],
        body.get("group_instance_id"),
        body["generation_id_or_member_epoch"],
    )


def _later_generation(found: Found) -> int:
    """Return the highest generation that owners know, and the coordinator does not; 0: none."""
    return max(
        (
            int(error.details.get("generation", 0))
            for error in found.errors.values()
            if isinstance(error, IllegalGeneration)
        ),
        default=0,
    )


def _code_of_fetch(error: Refused | MagnetarError) -> ErrorCode:
    code = code_of(error)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        # As Kafka: there is no offset for what does not exist.
        return ErrorCode.NONE
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE):
        return ErrorCode.UNSTABLE_OFFSET_COMMIT
    return code


def _told_row(
    answer: Answering, number: int, told: group_pb2.OffsetOutcome, is_stable: bool
) -> dict[str, Any]:
    if is_stable and told.pending:
        return _fetched_row(number, None, answer.note(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    offset = CommittedOffset.of_row(told.offset) if told.HasField("offset") else None
    return _fetched_row(number, offset, ErrorCode.NONE)


def _fetched_row(number: int, offset: CommittedOffset | None, code: ErrorCode) -> dict[str, Any]:
    found = offset if offset is not None else CommittedOffset(NO_OFFSET)
    return {
        "partition_index": number,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": code,
    }


def _moved_topics(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the topics of an answer to a commit whose coordinator is elsewhere now."""
    return [
        {
            "name": topic["name"],
            "partitions": [
                {**row, "error_code": ErrorCode.NOT_COORDINATOR} for row in topic["partitions"]
            ],
        }
        for topic in topics
    ]


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
