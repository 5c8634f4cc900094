"""Finds the partition that a request names, and the shard in whose name it is answered."""

from __future__ import annotations

from magnetar_broker.topics.partition import Partition
from magnetar_core.ids import PartitionName
from magnetar_kafka.answer import Part
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.shards import Shard, Shards


def name_of(shards: Shards, topic: str, number: int) -> PartitionName:
    """Return the name of a partition, whichever server has it.

    Raises:
        Refused: the partition does not exist, or this server has no shard.
        MagnetarError: there is no such topic, or it is not known here yet.
    """
    directory = shards.directory()
    if directory is None:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this server has no shard: ask again")
    record = directory.access.topic(topic).record
    if not 0 <= number < record.partitions:
        raise _no_partition(topic, number, record.partitions)
    return PartitionName(topic, number, record.topic_id)


def locate(shards: Shards, topic: str, number: int, part: Part) -> tuple[Shard, Partition]:
    """Return the shard that has a partition, and the partition.

    Args:
        part: is told on which shard its answer, or its refusal, rests.
    Raises:
        Refused: the partition does not exist, or another server has it.
        MagnetarError: there is no such topic, or it is not known here yet.
    """
    # A refusal because of the topics rests on who knows them.
    part.shard = directory = shards.directory()
    if directory is None:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this server has no shard: ask again")
    record = directory.access.topic(topic).record
    if not 0 <= number < record.partitions:
        raise _no_partition(topic, number, record.partitions)
    shard = shards.of(record, number)
    if shard is None:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another server has the partition")
    part.shard = shard
    return shard, shard.access.partition(topic, number)


def _no_partition(topic: str, number: int, partitions: int) -> Refused:
    return Refused(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic!r} has partitions 0 to {partitions - 1}, not {number}",
    )
