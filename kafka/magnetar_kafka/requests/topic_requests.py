"""Topics and the cluster: Metadata, Create- and DeleteTopics, DescribeConfigs, DescribeCluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from uuid import UUID

from magnetar_broker.local_access import LocalAccess
from magnetar_core.errors import InvalidArgument, MagnetarError, TopicExists, TopicNotFound
from magnetar_core.server.commands import Gate
from magnetar_core.wire import topic_pb2
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.topic_settings import command_of, described, settings_of
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.wire import apis

log = logging.getLogger(__name__)

# Upper half of the UUIDs of topics; the lower half is the topic's id.
_UUID_MARK = 0x4D61676E_65746172
CLUSTER_ID = "magnetar"
NO_NODE = -1
_CLUSTER_ENDPOINTS_OF_BROKERS = 1
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
# So many digits of a random number name a call.
_TOKEN_BITS = 63


def uuid_of(topic_id: int) -> UUID:
    """Return the UUID by which Kafka's clients know a topic."""
    return UUID(int=_UUID_MARK << 64 | topic_id)


def _topic_id_of(uuid: UUID) -> int:
    """Return the id of the topic of a UUID; 0: it is not one of ours."""
    return uuid.int & (1 << 64) - 1 if uuid.int >> 64 == _UUID_MARK else 0


class TopicRequests:
    """Handlers of requests about topics and the cluster.

    Args:
        node_id: the number of this broker for clients.
        gate: access control of commands that change topics; None: there is none.
    """

    def __init__(
        self,
        shards: Shards,
        config: KafkaConfig,
        random: Random,
        *,
        node_id: int,
        gate: Gate | None,
    ) -> None:
        self._shards = shards
        self._config = config
        self._random = random
        self._node_id = node_id
        self._gate = gate

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.METADATA.key: self._metadata,
            apis.CREATE_TOPICS.key: self._create_topics,
            apis.DELETE_TOPICS.key: self._delete_topics,
            apis.DESCRIBE_CONFIGS.key: self._describe_configs,
            apis.DESCRIBE_CLUSTER.key: self._describe_cluster,
        }

    # Metadata

    async def _metadata(self, request: Request) -> Answer:
        body, directory = request.body, self._shards.directory()
        asked = body["topics"]
        is_all = asked is None or (request.version == 0 and not asked)
        if directory is None:
            return self._metadata_answer(request, [], rests_on=())
        access = directory.access
        rows: list[tuple[dict[str, Any], list[Part]]] = []
        if is_all:
            rows = [self._topic_row(topic.record) for topic in access.topics()]
        else:
            may_create = self._config.kafka_auto_create_topics and body.get(
                "allow_auto_topic_creation", True
            )
            for one in asked:
                rows.append(await self._asked_row(access, one, request, may_create=may_create))
        return self._metadata_answer(request, rows, rests_on=(directory,))

    def _metadata_answer(
        self,
        request: Request,
        rows: Sequence[tuple[dict[str, Any], list[Part]]],
        *,
        rests_on: tuple[Shard, ...],
    ) -> Answer:
        parts = [part for _, of_topic in rows for part in of_topic]
        message = {
            "brokers": [{"node_id": self._node_id, **_where(request)}],
            "cluster_id": self._cluster_id(),
            "controller_id": self._node_id,
            "topics": [row for row, _ in rows],
        }
        return Answer(
            body=lambda: message,
            parts=parts,
            withdrawn={
                "error_code": ErrorCode.LEADER_NOT_AVAILABLE,
                "leader_id": NO_NODE,
            },
            rests_on=rests_on,
            codes=[row["error_code"] for row, _ in rows],
        )

    async def _asked_row(
        self, access: LocalAccess, one: Mapping[str, Any], request: Request, *, may_create: bool
    ) -> tuple[dict[str, Any], list[Part]]:
        name, uuid = one["name"], one.get("topic_id")
        if name is None and uuid is not None:
            record = access.topic_of_id(_topic_id_of(uuid))
            if record is None:
                unknown = {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "topic_id": uuid, "name": None}
                return unknown, []
            return self._topic_row(record)
        name = name or ""
        try:
            try:
                record = access.topic(name).record
            except TopicNotFound:
                if not may_create:
                    raise
                record = await self._auto_create(access, name, request.origin)
        except MagnetarError as error:
            code = code_of(error)
            if isinstance(error, InvalidArgument):
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return {"error_code": code, "name": name}, []
        return self._topic_row(record)

    async def _auto_create(
        self, access: LocalAccess, name: str, origin: str
    ) -> topic_pb2.TopicRecord:
        command = topic_pb2.CommandCreateTopic(
            topic=name,
            partitions=self._config.kafka_topic_partitions,
            retain_unconsumed=topic_pb2.NO,
            call_token=self._new_token(),
        )
        try:
            await access.ask("create_topic", command, origin=origin, gate=self._gate)
            log.info("topic %s was created because a Kafka client asked about it", name)
        except TopicExists:
            pass
        return access.topic(name).record

    def _topic_row(self, record: topic_pb2.TopicRecord) -> tuple[dict[str, Any], list[Part]]:
        parts: list[Part] = []
        for number in range(record.partitions):
            shard = self._shards.of(record, number)
            is_here = shard is not None
            parts.append(
                Part(
                    shard=shard,
                    fields={
                        "error_code": ErrorCode.NONE if is_here else ErrorCode.LEADER_NOT_AVAILABLE,
                        "partition_index": number,
                        "leader_id": self._node_id if is_here else NO_NODE,
                        "replica_nodes": [self._node_id],
                        "isr_nodes": [self._node_id],
                    },
                )
            )
        row = {
            "error_code": ErrorCode.NONE,
            "name": record.topic,
            "topic_id": uuid_of(record.topic_id),
            "partitions": [part.fields for part in parts],
        }
        return row, parts

    def _cluster_id(self) -> str:
        directory = self._shards.directory()
        return (directory.access.cluster_id if directory is not None else "") or CLUSTER_ID

    async def _describe_cluster(self, request: Request) -> Answer:
        kind = request.body.get("endpoint_type", _CLUSTER_ENDPOINTS_OF_BROKERS)
        if kind != _CLUSTER_ENDPOINTS_OF_BROKERS:
            refused = {
                "error_code": ErrorCode.INVALID_REQUEST,
                "error_message": "there are no endpoints but those of brokers",
                "endpoint_type": kind,
            }
            return Answer(body=lambda: refused, codes=(ErrorCode.INVALID_REQUEST,))
        message = {
            "cluster_id": self._cluster_id(),
            "controller_id": self._node_id,
            "brokers": [{"broker_id": self._node_id, **_where(request)}],
        }
        return Answer(body=lambda: message)

    # Changes

    async def _create_topics(self, request: Request) -> Answer:
        directory = self._shards.directory()
        rows = [
            await self._created(directory, one, request, is_trial=request.body["validate_only"])
            for one in request.body["topics"]
        ]
        return _answer_about("topics", rows, directory)

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
            access = _access_of(directory)
            command = command_of(
                name,
                _partitions_of(one, self._config.kafka_topic_partitions),
                one["configs"],
                batch_bytes_max=access.batch_bytes_max,
                call_token=self._new_token(),
            )
            if is_trial:
                if any(topic.name == name for topic in access.topics()):
                    raise TopicExists(f"topic {name!r} exists")
                return {"name": name, "error_code": ErrorCode.NONE, "configs": None}
            await access.ask("create_topic", command, origin=request.origin, gate=self._gate)
            record = access.topic(name).record
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
        settings = settings_of(record, access.batch_bytes_max)
        return {
            "name": name,
            "topic_id": uuid_of(record.topic_id),
            "error_code": ErrorCode.NONE,
            "num_partitions": record.partitions,
            "replication_factor": 1,
            "configs": [described(setting) for setting in settings],
        }

    async def _delete_topics(self, request: Request) -> Answer:
        directory, body = self._shards.directory(), request.body
        asked = body.get("topics") or [{"name": name} for name in body.get("topic_names", ())]
        rows = [await self._deleted(directory, one, request) for one in asked]
        return _answer_about("responses", rows, directory)

    async def _deleted(
        self, directory: Shard | None, one: Mapping[str, Any], request: Request
    ) -> dict[str, Any]:
        name, uuid = one["name"], one.get("topic_id")
        try:
            access = _access_of(directory)
            topic_id = 0
            if name is None:
                topic_id = _topic_id_of(uuid) if uuid is not None else 0
                record = access.topic_of_id(topic_id)
                if record is None:
                    raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
                name = record.topic
            command = topic_pb2.CommandDeleteTopic(
                topic=name, topic_id=topic_id, call_token=self._new_token()
            )
            await access.ask("delete_topic", command, origin=request.origin, gate=self._gate)
        except (Refused, MagnetarError) as error:
            return {
                "name": name,
                "topic_id": uuid,
                "error_code": code_of(error),
                "error_message": str(error),
            }
        return {"name": name, "topic_id": uuid, "error_code": ErrorCode.NONE}

    def _new_token(self) -> int:
        return self._random.getrandbits(_TOKEN_BITS) | 1

    # Settings

    async def _describe_configs(self, request: Request) -> Answer:
        directory = self._shards.directory()
        rows = [_described_resource(directory, one) for one in request.body["resources"]]
        return _answer_about("results", rows, directory)


def _described_resource(directory: Shard | None, one: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "resource_type": one["resource_type"],
        "resource_name": one["resource_name"],
        "error_code": ErrorCode.NONE,
        "configs": [],
    }
    try:
        access = _access_of(directory)
        if one["resource_type"] == BROKER_RESOURCE:
            return row
        if one["resource_type"] != TOPIC_RESOURCE:
            raise Refused(ErrorCode.INVALID_REQUEST, "only topics have settings here")
        record = access.topic(one["resource_name"]).record
    except (Refused, MagnetarError) as error:
        row["error_code"], row["error_message"] = code_of(error), str(error)
        return row
    wanted = one["configuration_keys"]
    row["configs"] = [
        described(setting)
        for setting in settings_of(record, access.batch_bytes_max)
        if wanted is None or setting.name in wanted
    ]
    return row


def _answer_about(name: str, rows: Sequence[dict[str, Any]], directory: Shard | None) -> Answer:
    """Return an answer with a row for each topic, which rests on who knows the topics."""
    return Answer(
        body=lambda: {name: rows},
        rests_on=() if directory is None else (directory,),
        codes=[row["error_code"] for row in rows],
    )


def _access_of(directory: Shard | None) -> LocalAccess:
    if directory is None:
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, "this server has no shard: ask again")
    return directory.access


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


def _where(request: Request) -> dict[str, Any]:
    host, port = request.address
    return {"host": host, "port": port}
