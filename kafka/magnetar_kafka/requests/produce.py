"""Produce: appends batches as they came, each when its head and its checksum are right.

Sequences are per (producer id, epoch) and partition; a repeat is recognised after a restart as
well. A batch without a producer id is appended again whenever it is sent again, and leaves no row
of a producer. acks=1 is treated as acks=all; acks=0 is not answered, and an error ends the
connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar_broker.local_access import LocalAccess
from magnetar_broker.topics.partition import Partition
from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import ChecksumMismatch, InvalidArgument, MagnetarError, SequenceGap
from magnetar_core.history.events import Event
from magnetar_core.record_batch import (
    CONTROL,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    ZSTD,
    Head,
    check_checksum,
    read_head,
)
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.partitions import locate
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.wire import apis

ACKS = (-1, 0, 1)
NO_PRODUCER_ID = -1
NO_OFFSET = -1
# Ids of producers have so many bits: behind them is room for the epoch.
PRODUCER_ID_BITS = 47
# What a batch has in the store besides itself.
WRAPPING_BYTES = 24


class ProduceRequests:
    """Handler of Produce."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {apis.PRODUCE.key: self._produce}

    async def _produce(self, request: Request) -> Answer:
        body = request.body
        refusal: Refused | None = None
        if body["acks"] not in ACKS:
            refusal = Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks cannot be {body['acks']}")
        elif body["transactional_id"] is not None:
            refusal = Refused(
                ErrorCode.INVALID_TXN_STATE, "there are no transactions on this port yet"
            )
        parts: list[Part] = []
        topics: list[dict[str, Any]] = []
        for topic in body["topic_data"]:
            refused = refusal or _refusal_of(request.caller, topic["name"])
            of_topic = [self._part(topic["name"], one, refused) for one in topic["partition_data"]]
            parts += of_topic
            topics.append(
                {
                    "name": topic["name"],
                    "partition_responses": [part.fields for part in of_topic],
                }
            )
        return Answer(
            body=lambda: {"responses": topics},
            parts=parts,
            withdrawn={
                "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "base_offset": NO_OFFSET,
                "log_start_offset": NO_OFFSET,
            },
            is_silent=body["acks"] == 0,
        )

    def _part(self, topic: str, one: Mapping[str, Any], refusal: Refused | None) -> Part:
        fields: dict[str, Any] = {
            "index": one["index"],
            "error_code": ErrorCode.NONE,
            "base_offset": NO_OFFSET,
            "log_start_offset": NO_OFFSET,
        }
        part = Part(shard=None, fields=fields)
        try:
            if refusal is not None:
                raise refusal
            shard, partition = locate(self._shards, topic, one["index"], part)
            fields["log_start_offset"] = partition.log.first_offset
            offset, part.confirms = _append(shard, partition, one["records"])
            part.is_late = True
            fields["base_offset"] = offset
        except (Refused, MagnetarError) as error:
            fields["error_code"], fields["error_message"] = code_of(error), str(error)
        return part


def _refusal_of(caller: Caller, topic: str) -> Refused | None:
    try:
        caller.check(Operation.WRITE, Kind.TOPIC, topic)
    except Refused as refusal:
        return refusal
    return None


def _append(shard: Shard, partition: Partition, records: bytes | None) -> tuple[int, Event | None]:
    """Append a batch; return its offset, and the event of the answer if there is one.

    Raises:
        Refused: the batch cannot be accepted.
        MagnetarError: as LocalAccess.append_records and append_in_sequence.
    """
    access = shard.access
    head = _checked(access, records)
    assert records is not None
    if head.producer_id == NO_PRODUCER_ID:
        return access.append_records(partition, records, head.count, head.max_timestamp_ms), None
    is_known = partition.producers.newest_epoch(head.producer_id) is not None
    try:
        offset, confirmed = access.append_in_sequence(
            partition,
            records,
            head.count,
            head.max_timestamp_ms,
            producer_id=head.producer_id,
            producer_epoch=head.producer_epoch,
            sequence=head.base_sequence,
        )
    except SequenceGap as error:
        if is_known:
            raise
        # Clients begin again with a new epoch.
        text = f"producer {head.producer_id} is not known, or no longer: {error}"
        raise Refused(ErrorCode.UNKNOWN_PRODUCER_ID, text) from None
    except InvalidArgument as error:
        raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from None
    if offset is None:
        raise Refused(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            "the batch was appended before; its offset is forgotten",
        )
    return offset, confirmed


def _checked(access: LocalAccess, records: bytes | None) -> Head:
    """Return the head of a batch that may be appended.

    Raises:
        Refused: it may not.
    """
    if records is None or len(records) <= MAGIC_AT:
        raise Refused(ErrorCode.INVALID_RECORD, "a partition comes without a RecordBatch")
    if records[MAGIC_AT] != MAGIC:
        raise Refused(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"messages have format {records[MAGIC_AT]}, and not {MAGIC}",
        )
    if len(records) + WRAPPING_BYTES > access.batch_bytes_max:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(records)} bytes exceeds batch_bytes_max, {access.batch_bytes_max}",
        )
    try:
        head = read_head(records)
        check_checksum(records, head)
    except ChecksumMismatch:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, "the batch's checksum is wrong") from None
    except InvalidArgument as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    _check_kind(head)
    if head.count > access.batch_messages_max:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {head.count} messages exceeds {access.batch_messages_max}",
        )
    return head


def _check_kind(head: Head) -> None:
    if head.attributes & CONTROL:
        raise Refused(ErrorCode.INVALID_RECORD, "clients cannot write control batches")
    if head.attributes & TRANSACTIONAL:
        raise Refused(ErrorCode.INVALID_TXN_STATE, "there are no transactions on this port yet")
    if head.attributes & LOG_APPEND_TIME:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "a batch cannot claim to have append times")
    if head.compression > ZSTD:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression {head.compression} is not known"
        )
    if head.producer_id == NO_PRODUCER_ID:
        return
    if not 0 <= head.producer_id < 1 << PRODUCER_ID_BITS:
        raise Refused(
            ErrorCode.INVALID_RECORD, f"{head.producer_id} cannot be the id of a producer"
        )
    if head.producer_epoch < 0 or head.base_sequence < 0:
        raise Refused(ErrorCode.INVALID_RECORD, "a producer's batch needs an epoch and a sequence")
