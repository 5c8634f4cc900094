"""Metadata and DescribeCluster: topics, the owners of their partitions, and where these are.

Owners are those that this process knows when it answers. A request that reaches a former owner is
refused there, and its client asks again. Leader epochs are -1: docs/design/0030-kafka-clusters.md
says why.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from magnetar_broker.local_access import LocalAccess
from magnetar_core.access.needs import ADMINISTRATION, Kind, Operation
from magnetar_core.errors import (
    InvalidArgument,
    LogUnavailable,
    MagnetarError,
    TopicExists,
    TopicNotFound,
)
from magnetar_core.membership.placement import shard_of
from magnetar_core.wire import topic_pb2
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of
from magnetar_kafka.nodes import Node, Nodes
from magnetar_kafka.request import Handle, Request, new_token
from magnetar_kafka.requests.topic_ids import topic_id_of, uuid_of
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.wire import apis

log = logging.getLogger(__name__)

CLUSTER_ID = "magnetar"
NO_NODE = -1
_CLUSTER_ENDPOINTS_OF_BROKERS = 1

_Row = tuple[dict[str, Any], list[Part]]


class MetadataRequests:
    """Handlers of questions about topics, their partitions, and the brokers of the cluster."""

    def __init__(self, shards: Shards, nodes: Nodes, config: KafkaConfig, random: Random) -> None:
        self._shards = shards
        self._nodes = nodes
        self._config = config
        self._random = random

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.METADATA.key: self._metadata,
            apis.DESCRIBE_CLUSTER.key: self._describe_cluster,
        }

    async def _metadata(self, request: Request) -> Answer:
        body, directory = request.body, self._shards.directory()
        asked = body["topics"]
        is_all = asked is None or (request.version == 0 and not asked)
        nodes = self._nodes.by_shard(is_external=request.is_external)
        rows: list[_Row] = []
        if is_all:
            topics = () if directory is None else directory.access.topics()
            rows = [
                self._topic_row(topic.record, request, nodes)
                for topic in topics
                if _may_describe(request, topic.name)
            ]
        else:
            for one in asked:
                rows.append(await self._asked_row(directory, one, request, nodes))
        message: dict[str, Any] = {
            **self._cluster(request, nodes, "node_id"),
            "topics": [row for row, _ in rows],
        }
        if body.get("include_cluster_authorized_operations"):
            message["cluster_authorized_operations"] = _cluster_operations(request)
        return Answer(
            body=lambda: message,
            parts=[part for _, parts in rows for part in parts],
            withdrawn={"error_code": ErrorCode.LEADER_NOT_AVAILABLE, "leader_id": NO_NODE},
            rests_on=() if directory is None else (directory,),
            codes=[row["error_code"] for row, _ in rows],
        )

    async def _asked_row(
        self,
        directory: Shard | None,
        one: Mapping[str, Any],
        request: Request,
        nodes: Sequence[Node | None],
    ) -> _Row:
        name, uuid = one["name"], one.get("topic_id")
        if name is None and uuid is not None:
            record = None
            if directory is not None:
                record = directory.access.topic_of_id(topic_id_of(uuid))
            if record is None or not _may_describe(request, record.topic):
                unknown = {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "topic_id": uuid, "name": None}
                return unknown, []
            return self._topic_row(record, request, nodes)
        name = name or ""
        try:
            request.caller.check(Operation.DESCRIBE, Kind.TOPIC, name)
            if directory is None:
                raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, "this server has no shard")
            record = await self._found_or_created(directory.access, name, request)
        except (Refused, MagnetarError) as error:
            code = code_of(error)
            if isinstance(error, InvalidArgument):
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return {"error_code": code, "name": name}, []
        return self._topic_row(record, request, nodes)

    async def _found_or_created(
        self, access: LocalAccess, name: str, request: Request
    ) -> topic_pb2.TopicRecord:
        try:
            return await _found(access, name, request)
        except TopicNotFound:
            may_create = request.body.get("allow_auto_topic_creation", True)
            if not self._config.kafka_auto_create_topics or not may_create:
                raise
        command = topic_pb2.CommandCreateTopic(
            topic=name,
            partitions=self._config.kafka_topic_partitions,
            retain_unconsumed=topic_pb2.NO,
            call_token=new_token(self._random),
        )
        try:
            await request.ask(access, "create_topic", command)
            log.info("topic %s was created because a Kafka client asked about it", name)
        except TopicExists:
            pass
        return await _found(access, name, request)

    def _topic_row(
        self, record: topic_pb2.TopicRecord, request: Request, nodes: Sequence[Node | None]
    ) -> _Row:
        own = self._nodes.own_number
        parts = [self._part(record, number, nodes, own) for number in range(record.partitions)]
        row = {
            "error_code": ErrorCode.NONE,
            "name": record.topic,
            "topic_id": uuid_of(record.topic_id),
            "partitions": [part.fields for part in parts],
        }
        if request.body.get("include_topic_authorized_operations"):
            row["topic_authorized_operations"] = request.caller.operations_on(
                Kind.TOPIC, record.topic
            )
        return row, parts

    def _part(
        self, record: topic_pb2.TopicRecord, number: int, nodes: Sequence[Node | None], own: int
    ) -> Part:
        place = shard_of(record.topic_id, number)
        node = nodes[place] if place < len(nodes) else None
        shard = None
        if node is not None and node.number == own:
            shard = self._shards.of(record, number)
            if shard is None:
                # It is being opened, or has just been lost.
                node = None
        known = [] if node is None else [node.number]
        return Part(
            shard=shard,
            fields={
                "error_code": ErrorCode.NONE if known else ErrorCode.LEADER_NOT_AVAILABLE,
                "partition_index": number,
                "leader_id": known[0] if known else NO_NODE,
                "replica_nodes": known,
                "isr_nodes": known,
            },
        )

    def _cluster(
        self, request: Request, nodes: Sequence[Node | None], id_field: str
    ) -> dict[str, Any]:
        directory = self._shards.directory()
        known = list(dict.fromkeys(node for node in nodes if node is not None))
        own_host, own_port = request.address
        return {
            "brokers": [
                {
                    id_field: node.number,
                    "host": node.host or own_host,
                    "port": node.port or own_port,
                }
                for node in known
            ],
            "cluster_id": (directory.access.cluster_id if directory else "") or CLUSTER_ID,
            # The first broker makes and changes topics.
            "controller_id": known[0].number if nodes and nodes[0] is not None else NO_NODE,
        }

    async def _describe_cluster(self, request: Request) -> Answer:
        kind = request.body.get("endpoint_type", _CLUSTER_ENDPOINTS_OF_BROKERS)
        if kind != _CLUSTER_ENDPOINTS_OF_BROKERS:
            refused = {
                "error_code": ErrorCode.INVALID_REQUEST,
                "error_message": "there are no endpoints but those of brokers",
                "endpoint_type": kind,
            }
            return Answer(body=lambda: refused, codes=(ErrorCode.INVALID_REQUEST,))
        nodes = self._nodes.by_shard(is_external=request.is_external)
        message = self._cluster(request, nodes, "broker_id")
        if request.body["include_cluster_authorized_operations"]:
            message["cluster_authorized_operations"] = _cluster_operations(request)
        return Answer(body=lambda: message)


async def _found(access: LocalAccess, name: str, request: Request) -> topic_pb2.TopicRecord:
    """Return a topic's record; ask the first broker about one that may be too new to be known.

    Raises:
        TopicNotFound: there is none.
        LogUnavailable: the first broker does not answer.
    """
    try:
        return access.topic(name).record
    except LogUnavailable:
        await request.ask(access, "lookup", topic_pb2.CommandLookup(topic=name))
        return access.topic(name).record


def _may_describe(request: Request, topic: str) -> bool:
    return request.caller.may(Operation.DESCRIBE, Kind.TOPIC, topic)


def _cluster_operations(request: Request) -> int:
    return request.caller.operations_on(Kind.CLUSTER, ADMINISTRATION)
