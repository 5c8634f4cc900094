"""Produce: appends batches as they came, each when its head and its checksum are right.

Sequences are per (producer id, epoch) and partition; a repeat is recognised after a restart as
well. A batch without a producer id is appended again whenever it is sent again, and leaves no row
of a producer. acks=1 is treated as acks=all; acks=0 is not answered, and an error ends the
connection. Batches of transactions: transactional_produce.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar_broker.topics.partition import Partition
from magnetar_broker.transactions.sender import Sender
from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import InvalidArgument, SequenceGap
from magnetar_core.record_batch import Head
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.batches import NO_PRODUCER_ID, Batch, checked_head, refusing
from magnetar_kafka.requests.partitions import locate
from magnetar_kafka.requests.transactional_produce import TransactionalProduce
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.transactions.transactions import Transactions
from magnetar_kafka.wire import apis

ACKS = (-1, 0, 1)
NO_OFFSET = -1


class ProduceRequests:
    """Handler of Produce."""

    def __init__(self, shards: Shards, transactions: Transactions) -> None:
        self._shards = shards
        self._in_transactions = TransactionalProduce(shards, transactions)

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {apis.PRODUCE.key: self._produce}

    async def _produce(self, request: Request) -> Answer:
        body = request.body
        refusal: Refused | None = None
        if body["acks"] not in ACKS:
            refusal = Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks cannot be {body['acks']}")
        transactional_id: str | None = body["transactional_id"]
        if transactional_id is not None and refusal is None:
            refusal = _refusal_of(request.caller, Kind.TRANSACTIONAL_ID, transactional_id)
        parts: list[Part] = []
        batches: list[Batch] = []
        topics: list[dict[str, Any]] = []
        for topic in body["topic_data"]:
            refused = refusal or _refusal_of(request.caller, Kind.TOPIC, topic["name"])
            of_topic: list[Part] = []
            for one in topic["partition_data"]:
                part = _part(one["index"])
                of_topic.append(part)
                with refusing(part, code_of):
                    if refused is not None:
                        raise refused
                    shard, partition = locate(self._shards, topic["name"], one["index"], part)
                    is_in_transaction = transactional_id is not None
                    head = checked_head(
                        shard.access, one["records"], is_in_transaction=is_in_transaction
                    )
                    if is_in_transaction:
                        batches.append(Batch(partition.name, part, one["records"], head))
                    else:
                        _append(shard, partition, one["records"], head, part)
            parts += of_topic
            topics.append(
                {
                    "name": topic["name"],
                    "partition_responses": [part.fields for part in of_topic],
                }
            )
        if transactional_id is not None and batches:
            caller = request.caller
            sender = Sender(caller.origin, caller.rights)
            await self._in_transactions.append(
                transactional_id, batches, version=request.version, sender=sender
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


def _part(number: int) -> Part:
    fields: dict[str, Any] = {
        "index": number,
        "error_code": ErrorCode.NONE,
        "base_offset": NO_OFFSET,
        "log_start_offset": NO_OFFSET,
    }
    return Part(shard=None, fields=fields)


def _refusal_of(caller: Caller, kind: Kind, name: str) -> Refused | None:
    """Return the refusal of a caller that may not write to a resource; None: it may."""
    try:
        caller.check(Operation.WRITE, kind, name)
    except Refused as refusal:
        return refusal
    return None


def _append(shard: Shard, partition: Partition, records: bytes, head: Head, part: Part) -> None:
    """Append a batch outside of transactions, and fill in its part of the answer.

    Raises:
        Refused: the batch cannot be accepted.
        MagnetarError: as LocalAccess.append_records and append_in_sequence.
    """
    access, fields = shard.access, part.fields
    fields["log_start_offset"] = partition.log.first_offset
    part.is_late = True
    if head.producer_id == NO_PRODUCER_ID:
        fields["base_offset"] = access.append_records(
            partition, records, head.count, head.max_timestamp_ms
        )
        return
    is_known = partition.producers.newest_epoch(head.producer_id) is not None
    try:
        offset, part.confirms = access.append_in_sequence(
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
    fields["base_offset"] = offset
