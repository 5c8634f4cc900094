"""CreateTopics, DeleteTopics, CreatePartitions: each topic by a command of ours.

The command passes access control and the audit log as it does on the gRPC port, and any broker
passes it on to the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import InvalidArgument, MagnetarError, TopicExists
from magnetar_core.wire import topic_pb2
from magnetar_kafka.answer import Answer
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of
from magnetar_kafka.request import Handle, Request, new_token
from magnetar_kafka.requests.about_topics import access_of, answer_about
from magnetar_kafka.requests.topic_ids import topic_id_of, uuid_of
from magnetar_kafka.requests.topic_settings import command_of, described, settings_of
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.wire import apis


class TopicRequests:
    """Handlers of requests that make, change and delete topics."""

    def __init__(self, shards: Shards, config: KafkaConfig, random: Random) -> None:
        self._shards = shards
        self._config = config
        self._random = random

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.CREATE_TOPICS.key: self._create_topics,
            apis.DELETE_TOPICS.key: self._delete_topics,
            apis.CREATE_PARTITIONS.key: self._create_partitions,
        }

    async def _create_topics(self, request: Request) -> Answer:
        directory = self._shards.directory()
        rows = [
            await self._created(directory, one, request, is_trial=request.body["validate_only"])
            for one in request.body["topics"]
        ]
        return answer_about("topics", rows, directory)

    async def _created(
        self,
        directory: Shard | None,
        one: Mapping[str, Any],
        request: Request,
        *,
        is_trial: bool,
    ) -> dict[str, Any]:
        name = one["name"]
        try:
            request.caller.check(Operation.CREATE, Kind.TOPIC, name)
            access = access_of(directory)
            command = command_of(
                name,
                _partitions_of(one, self._config.kafka_topic_partitions),
                one["configs"],
                batch_bytes_max=access.batch_bytes_max,
                call_token=new_token(self._random),
            )
            if is_trial:
                if any(topic.name == name for topic in access.topics()):
                    raise TopicExists(f"topic {name!r} exists")
                return {"name": name, "error_code": ErrorCode.NONE, "configs": None}
            answer = await request.ask(access, "create_topic", command)
        except (Refused, MagnetarError) as error:
            code = code_of(error)
            if isinstance(error, InvalidArgument):
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
                if "partitions" in str(error):
                    code = ErrorCode.INVALID_PARTITIONS
            return {
                "name": name,
                "error_code": code,
                "error_message": str(error),
                "configs": None,
            }
        record = topic_pb2.TopicRecord(
            retention_ms=command.retention_ms,
            retention_bytes=command.retention_bytes,
            retain_unconsumed=command.retain_unconsumed,
        )
        settings = settings_of(record, access.batch_bytes_max)
        return {
            "name": name,
            "topic_id": uuid_of(answer.topic_id),
            "error_code": ErrorCode.NONE,
            "num_partitions": command.partitions,
            "replication_factor": 1,
            "configs": [described(setting) for setting in settings],
        }

    async def _delete_topics(self, request: Request) -> Answer:
        directory, body = self._shards.directory(), request.body
        asked = body.get("topics") or [{"name": name} for name in body.get("topic_names", ())]
        rows = [await self._deleted(directory, one, request) for one in asked]
        return answer_about("responses", rows, directory)

    async def _deleted(
        self, directory: Shard | None, one: Mapping[str, Any], request: Request
    ) -> dict[str, Any]:
        name, uuid = one["name"], one.get("topic_id")
        try:
            access = access_of(directory)
            topic_id = 0
            if name is None:
                topic_id = topic_id_of(uuid) if uuid is not None else 0
                record = access.topic_of_id(topic_id)
                if record is None or not request.caller.may(
                    Operation.DESCRIBE, Kind.TOPIC, record.topic
                ):
                    raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
                name = record.topic
            command = topic_pb2.CommandDeleteTopic(
                topic=name, topic_id=topic_id, call_token=new_token(self._random)
            )
            await request.ask(access, "delete_topic", command)
        except (Refused, MagnetarError) as error:
            return {
                "name": name,
                "topic_id": uuid,
                "error_code": code_of(error),
                "error_message": str(error),
            }
        return {"name": name, "topic_id": uuid, "error_code": ErrorCode.NONE}

    async def _create_partitions(self, request: Request) -> Answer:
        directory = self._shards.directory()
        names = [one["name"] for one in request.body["topics"]]
        rows = [
            await self._grown(directory, one, request, is_twice=names.count(one["name"]) > 1)
            for one in request.body["topics"]
        ]
        return answer_about("results", rows, directory)

    async def _grown(
        self, directory: Shard | None, one: Mapping[str, Any], request: Request, *, is_twice: bool
    ) -> dict[str, Any]:
        name, count = one["name"], one["count"]
        row: dict[str, Any] = {"name": name, "error_code": ErrorCode.NONE, "error_message": None}
        try:
            request.caller.check(Operation.ALTER, Kind.TOPIC, name)
            access = access_of(directory)
            if is_twice:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{name!r} is named twice")
            if count < 1:
                raise Refused(ErrorCode.INVALID_PARTITIONS, f"there cannot be {count} partitions")
            described_now = await request.ask(
                access, "describe_topic", topic_pb2.CommandDescribeTopic(topic=name)
            )
            there_are = described_now.partition_count
            if count <= there_are:
                raise Refused(
                    ErrorCode.INVALID_PARTITIONS,
                    f"topic {name!r} has {there_are} partitions already: ask for more",
                )
            assigned = one["assignments"]
            if assigned is not None and len(assigned) != count - there_are:
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{len(assigned)} assignments are not one for each new partition",
                )
            command = topic_pb2.CommandAlterTopic(
                topic=name,
                topic_id=described_now.topic_id,
                partitions=count,
                # Clients of Kafka have no word for it, and know that it is so.
                keys_move=True,
                dry_run=request.body["validate_only"],
                call_token=new_token(self._random),
            )
            await request.ask(access, "alter_topic", command)
        except (Refused, MagnetarError) as error:
            code = code_of(error)
            if isinstance(error, InvalidArgument):
                code = ErrorCode.INVALID_PARTITIONS
            row["error_code"], row["error_message"] = code, str(error)
        return row


def _partitions_of(one: Mapping[str, Any], default: int) -> int:
    """Return how many partitions a topic is asked for.

    Args:
        default: for a topic of which no number is given.
    Raises:
        Refused: the number is impossible.
    """
    assigned, count, factor = one["assignments"], one["num_partitions"], one["replication_factor"]
    if assigned:
        if sorted(row["partition_index"] for row in assigned) != list(range(len(assigned))):
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0, without gaps"
            )
        return len(assigned)
    if count == 0 or count < -1:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"a topic cannot have {count} partitions")
    if factor == 0 or factor < -1:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"a replication factor cannot be {factor}"
        )
    return default if count == -1 else int(count)
