"""DeleteRecords: deletes the first messages of partitions, up to offsets that a client names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import MagnetarError, OutOfRange
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of, outcome_of
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.partitions import answered_by_partition, locate
from magnetar_kafka.shards import Shards
from magnetar_kafka.wire import apis

# In place of an offset: all messages that there are.
TO_THE_END = -1
_NO_OFFSET = -1
_TIMEOUT_MS_MAX = 60_000
_ACTION = "delete_records"


class DeleteRecordsRequests:
    """Handler of DeleteRecords."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {apis.DELETE_RECORDS.key: self._delete_records}

    async def _delete_records(self, request: Request) -> Answer:
        return await answered_by_partition(
            request,
            partial(self._part, request),
            {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER, "low_watermark": _NO_OFFSET},
        )

    async def _part(self, request: Request, topic: str, one: Mapping[str, Any]) -> Part:
        number = one["partition_index"]
        part = Part(
            shard=None,
            fields={
                "partition_index": number,
                "error_code": ErrorCode.NONE,
                "low_watermark": _NO_OFFSET,
            },
        )
        try:
            request.caller.check(Operation.DELETE, Kind.TOPIC, topic)
            part.fields["low_watermark"] = await self._deleted(request, topic, one, part)
        except (Refused, MagnetarError) as error:
            part.fields["error_code"] = code_of(error)
        outcome = outcome_of(part.fields["error_code"])
        request.caller.note(_ACTION, f"topic:{topic}-{number}", outcome)
        return part

    async def _deleted(
        self, request: Request, topic: str, one: Mapping[str, Any], part: Part
    ) -> int:
        """Delete the messages of a partition before an offset; return where the log begins now.

        Raises:
            Refused: the partition is not here, or it takes too long.
            MagnetarError: the offset is beyond the end, or messages cannot be read.
        """
        shard, partition = locate(self._shards, topic, one["partition_index"], part)
        offset = one["offset"]
        if offset == TO_THE_END:
            offset = partition.log.durable_end
        elif offset < 0:
            raise OutOfRange(f"{offset} is not an offset")
        timeout_ms = min(max(0, request.body["timeout"]), _TIMEOUT_MS_MAX)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await shard.access.delete_before(partition, offset)
        except TimeoutError:
            raise Refused(
                ErrorCode.REQUEST_TIMED_OUT, "clients still read what is to be deleted"
            ) from None
        if partition.deleted:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        return partition.log.first_offset
