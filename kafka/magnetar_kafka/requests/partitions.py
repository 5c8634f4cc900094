"""Finds the partitions that a request names, and the shards in whose names it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from magnetar_broker.topics.partition import Partition
from magnetar_core.ids import PartitionName
from magnetar_core.wire import topic_pb2
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.request import Request
from magnetar_kafka.shards import Shard, Shards


async def answered_by_partition(
    request: Request,
    part_of: Callable[[str, Any], Awaitable[Part]],
    withdrawn: dict[str, Any],
    *,
    field: str = "partitions",
) -> Answer:
    """Return the answer to a request about partitions, with a part for each of them.

    Args:
        part_of: makes the part of a partition, from its topic and what the request has of it.
        withdrawn: the fields of a part that may not leave; see Answer.
        field: of a topic in the request, which has the partitions.
    """
    parts: list[Part] = []
    topics: list[dict[str, Any]] = []
    for topic in request.body["topics"]:
        of_topic = [await part_of(topic["name"], asked) for asked in topic[field]]
        parts += of_topic
        topics.append({"name": topic["name"], "partitions": [part.fields for part in of_topic]})
    return Answer(body=lambda: {"topics": topics}, parts=parts, withdrawn=withdrawn)


def name_of(shards: Shards, topic: str, number: int) -> PartitionName:
    """Return the name of a partition, whichever server has it.

    Raises:
        Refused: the partition does not exist, or this server has no shard.
        MagnetarError: there is no such topic, or it is not known here yet.
    """
    record = _record(shards.directory(), topic, number)
    return PartitionName(topic, number, record.topic_id)


def locate(shards: Shards, topic: str, number: int, part: Part) -> tuple[Shard, Partition]:
    """Return the shard that has a partition, and the partition.

    Args:
        part: is told on which shard its answer, or its refusal, rests.
    Raises:
        Refused: the partition does not exist, or another server has it.
        MagnetarError: there is no such topic, or it is not known here yet.
    """
    # A refusal because of the topics rests on the shard that knows them.
    part.shard = directory = shards.directory()
    shard = shards.of(_record(directory, topic, number), number)
    if shard is None:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another server has the partition")
    part.shard = shard
    return shard, shard.access.partition(topic, number)


def _record(directory: Shard | None, topic: str, number: int) -> topic_pb2.TopicRecord:
    """Return the record of a topic that has a partition of this number."""
    if directory is None:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this server has no shard: ask again")
    record = directory.access.topic(topic).record
    if not 0 <= number < record.partitions:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic!r} has partitions 0 to {record.partitions - 1}, not {number}",
        )
    return record
