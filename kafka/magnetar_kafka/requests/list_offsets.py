"""ListOffsets: the first offset, the end, and the first message at or after a time.

A message of a Kafka client counts by its own timestamp, one of our clients by its append time.
Timestamps need not rise, so a search cannot bisect them. It bisects append times, and begins as far
before as a timestamp was ever ahead of its append time on the partition; from there on it looks at
the head of each batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_broker.topics.partition import Partition
from magnetar_core import batch as columnar
from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import MagnetarError
from magnetar_core.kafka_records.reading import read_records
from magnetar_core.record_batch import read_head
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.partitions import answered_by_partition, locate
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.wire import apis

LATEST, EARLIEST, WITH_HIGHEST_TIME = -1, -2, -3
NONE_FOUND = -1
SEARCHED_BYTES_AT_ONCE = 1 << 20
# How much of a log is looked at for a time: batches whose timestamps lie far behind their append
# times make a search long.
SEARCHED_BYTES_MAX = 256 << 20


class ListOffsetsRequests:
    """Handler of ListOffsets."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {apis.LIST_OFFSETS.key: self._list_offsets}

    async def _list_offsets(self, request: Request) -> Answer:
        return await answered_by_partition(
            request,
            partial(self._part, request.caller),
            {
                "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "timestamp": NONE_FOUND,
                "offset": NONE_FOUND,
            },
        )

    async def _part(self, caller: Caller, topic: str, one: Mapping[str, Any]) -> Part:
        fields: dict[str, Any] = {
            "partition_index": one["partition_index"],
            "error_code": ErrorCode.NONE,
            "timestamp": NONE_FOUND,
            "offset": NONE_FOUND,
        }
        part = Part(shard=None, fields=fields)
        try:
            caller.check(Operation.DESCRIBE, Kind.TOPIC, topic)
            shard, partition = locate(self._shards, topic, one["partition_index"], part)
            fields["offset"], fields["timestamp"] = await _found(shard, partition, one["timestamp"])
        except (Refused, MagnetarError) as error:
            fields["error_code"] = code_of(error)
        return part


async def _found(shard: Shard, partition: Partition, timestamp_ms: int) -> tuple[int, int]:
    """Return the offset for a time, and the timestamp of its message.

    Raises:
        Refused: the time has no meaning here, or the search takes too long.
        MagnetarError: the log cannot be read.
    """
    log = partition.log
    if timestamp_ms == LATEST:
        return log.durable_end, NONE_FOUND
    if timestamp_ms == EARLIEST:
        return log.first_offset, NONE_FOUND
    if timestamp_ms < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no offset for the time {timestamp_ms}")
    offset = await partition.reader.first_offset_at_time(timestamp_ms - log.timestamp_lead_ms)
    searched = 0
    while offset < log.durable_end:
        stored = await partition.reader.read(
            max(offset, log.first_offset), bytes_max=SEARCHED_BYTES_AT_ONCE
        )
        if not stored:
            break
        for one in stored:
            found = _in_batch(
                one, timestamp_ms, shard.access.batch_body_bytes_max, log.first_offset
            )
            if found is not None:
                return found
            searched += len(one.batch)
        offset = stored[-1].end
        if searched > SEARCHED_BYTES_MAX:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the search for a time takes too long")
        await asyncio.sleep(0)
    return NONE_FOUND, NONE_FOUND


def _in_batch(
    stored: StoredBatch, timestamp_ms: int, body_bytes_max: int, first_offset: int
) -> tuple[int, int] | None:
    """Return offset and timestamp of the first message at or after a time; None without one.

    Args:
        first_offset: where the log begins, which may be inside of the batch.
    """
    if not columnar.is_of_kafka(stored.batch):
        if stored.append_time_ms < timestamp_ms:
            return None
        return max(stored.first_offset, first_offset), stored.append_time_ms
    records = columnar.stored_records(stored.batch)
    if read_head(records).max_timestamp_ms < timestamp_ms:
        return None
    opened = read_records(bytes(records), bytes_max=body_bytes_max)
    for place, found_ms in enumerate(opened.timestamps_ms):
        offset = stored.first_offset + place
        if found_ms >= timestamp_ms and offset >= first_offset:
            return offset, found_ms
    return None
