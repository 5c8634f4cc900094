"""Views for people: topics described, everything summed up, batches opened into messages."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from magnetar_broker.groups.groups import Groups
from magnetar_broker.log.offset_set import Range
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_broker.metrics import Overview
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topic, Topics
from magnetar_broker.transactions.producers import id_and_epoch
from magnetar_core import batch as columnar
from magnetar_core.errors import InvalidArgument
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

TXNS_SHOWN_MAX = 1_000
PRODUCERS_SHOWN_MAX = 10_000
# How many bytes a Peek shows; its last message may exceed them.
PEEK_BYTES_MAX = 4 << 20
# Marks a peeked message as a part of a message that was sent in parts.
PART_PROPERTY = "magnetar-part"


def describe_topic(
    topic: Topic, broker_name: str, txns_max: int = 0
) -> topic_wire.CommandDescribeTopicResponse:
    """Describe a topic with the partitions that this broker keeps, and their subscriptions.

    Args:
        txns_max: how many transactions each of these names at most; 0: TXNS_SHOWN_MAX.
    """
    record = topic.record
    most = min(txns_max or TXNS_SHOWN_MAX, TXNS_SHOWN_MAX)
    return topic_wire.CommandDescribeTopicResponse(
        topic=record.topic,
        topic_id=record.topic_id,
        retention_ms=record.retention_ms,
        retention_bytes=record.retention_bytes,
        retain_unconsumed=record.retain_unconsumed,
        partitions=[
            topic_wire.PartitionDescription(
                partition=partition.name.partition,
                broker_name=broker_name,
                ledger_id=partition.ledger_id,
                first_offset=partition.log.first_offset,
                end_offset=partition.log.durable_end,
                has_txnlog=partition.has_txnlog,
                open_txn_count=len(partition.index.open),
                open_txns=[one.to_wire() for one in islice(partition.index.open, most)],
                subscriptions=[
                    topic_wire.SubscriptionDescription(
                        subscription=subscription.name.subscription,
                        mark_delete_offset=subscription.cursor.floor,
                        backlog=subscription.backlog,
                        pending_txn_count=len(subscription.index.open),
                        pending_ack_count=len(subscription.cursor.pending),
                        pending_txns=[
                            one.to_wire() for one in islice(subscription.index.open, most)
                        ],
                        consumers=subscription.delivery.consumer_names,
                        unacked_count=subscription.dispatcher.held_count,
                        is_of_group=subscription.group_ownership is not None,
                    )
                    for subscription in sorted(
                        partition.subscriptions, key=lambda one: one.name.subscription
                    )
                ],
            )
            for partition in topic.partitions
        ],
        partition_count=record.partitions,
        growing_to=record.growing_to,
    )


def describe_producers(
    partition: Partition, producers_max: int = 0
) -> wire.CommandDescribeProducersResponse:
    """Describe writers here, transactional and plain, and consumers with pending acks.

    A search for hanging transactions needs those with a TxnID, so they come first: an answer that
    is cut lacks plain producers before it lacks them.

    Args:
        producers_max: how many the answer has at most; 0: PRODUCERS_SHOWN_MAX.
    """
    most = min(producers_max or PRODUCERS_SHOWN_MAX, PRODUCERS_SHOWN_MAX)
    response = wire.CommandDescribeProducersResponse()
    for described in chain(_open_writers(partition), _plain_producers(partition)):
        if len(response.producers) == most:
            response.truncated = True
            break
        response.producers.append(described)
    return response


def _open_writers(partition: Partition) -> Iterator[wire.ProducerDescription]:
    indexes = [("", partition.index)]
    indexes += [(one.name.subscription, one.index) for one in partition.subscriptions]
    for subscription, index in indexes:
        for transaction in index.open.values():
            for writer in transaction.writers.values():
                yield wire.ProducerDescription(
                    producer_id=writer.writer_id,
                    producer_epoch=transaction.producer_epoch,
                    last_sequence=writer.next_index - 1,
                    last_time_ms=transaction.start_time_ms,
                    txn_id=transaction.txn_id.to_wire(),
                    start_offset=transaction.start_offset,
                    start_time_ms=transaction.start_time_ms,
                    subscription=subscription,
                )


def _plain_producers(partition: Partition) -> Iterator[wire.ProducerDescription]:
    for known, producer in partition.producers.all():
        producer_id, epoch = id_and_epoch(known, producer)
        yield wire.ProducerDescription(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_sequence=producer.next_sequence_id - 1,
            last_time_ms=producer.last_time_ms,
        )


def overview(
    topics: Topics,
    groups: Groups,
    age_of: Callable[[int], int],
    *,
    late_ms: int,
    partitions_shown_max: int,
    lags_shown_max: int,
) -> Overview:
    """Sum everything up; the cost depends on how many partitions and groups there are.

    Args:
        age_of: returns the age of a stamp; an earlier stamp is at least as old.
        late_ms: a partition whose oldest open transaction is older counts as late.
        partitions_shown_max: how many partitions show their oldest open transaction.
        lags_shown_max: how many lags of groups are shown.
    """
    partitions = topics.partitions()
    subscriptions = [one for partition in partitions for one in partition.subscriptions]
    indexes = [partition.index for partition in partitions] + [
        subscription.index for subscription in subscriptions
    ]
    started_ms = [one.start_time_ms for index in indexes for one in index.open.values()]
    return Overview(
        topics=len(topics.all()),
        partitions=len(partitions),
        subscriptions=len(subscriptions),
        consumers=sum(len(subscription.dispatcher.consumers) for subscription in subscriptions),
        groups=len(groups.all()),
        group_members=sum(len(one.members) for one in groups.all()),
        group_waiting_partitions=sum(
            subscription.delivery.waiting for subscription in subscriptions
        ),
        group_lags=_greatest_lags(subscriptions, count_max=lags_shown_max),
        open_txns=len(started_ms),
        oldest_open_txn_ms=max(0, age_of(min(started_ms))) if started_ms else 0,
        partition_open_txn_ms=_longest_open_ms(partitions, age_of, count_max=partitions_shown_max),
        txnlog_open_bytes=sum(
            writer.stored_bytes
            for partition in partitions
            for transaction in partition.index.open.values()
            for writer in transaction.writers.values()
        ),
        late_partitions=sum(
            age_of(min(one.start_time_ms for one in partition.index.open.values())) > late_ms
            for partition in partitions
            if partition.index.open
        ),
        pending_acks=sum(len(subscription.cursor.pending) for subscription in subscriptions),
        backlog=sum(subscription.backlog for subscription in subscriptions),
        retained_bytes=sum(max(0, partition.log.retained_bytes) for partition in partitions),
    )


def _greatest_lags(
    subscriptions: list[Subscription], *, count_max: int
) -> dict[tuple[str, str, int], int]:
    """Return the counts of messages that groups have not acknowledged, by group and partition."""
    lags = (
        (
            (subscription.name.subscription, subscription.name.topic, subscription.name.partition),
            subscription.backlog,
        )
        for subscription in subscriptions
        if subscription.group_ownership is not None
    )
    return dict(heapq.nlargest(count_max, lags, key=lambda item: item[1]))


def _longest_open_ms(
    partitions: list[Partition], age_of: Callable[[int], int], *, count_max: int
) -> dict[tuple[str, int], int]:
    """Return the age of each partition's oldest open transaction, subscriptions included."""
    open_ms = {}
    for partition in partitions:
        indexes = [partition.index, *(one.index for one in partition.subscriptions)]
        started_ms = [one.start_time_ms for index in indexes for one in index.open.values()]
        if started_ms:
            place = (partition.name.topic, partition.name.partition)
            open_ms[place] = max(0, age_of(min(started_ms)))
    return dict(heapq.nlargest(count_max, open_ms.items(), key=lambda item: item[1]))


class Peeked:
    """Messages for a Peek, limited in count and size. A first message always fits."""

    def __init__(self, messages_max: int) -> None:
        self.messages: list[wire.Message] = []
        self._messages_max = messages_max
        self._byte_count = 0

    @property
    def is_full(self) -> bool:
        """Whether another message would not fit."""
        return len(self.messages) >= self._messages_max or self._byte_count >= PEEK_BYTES_MAX

    def add(self, message: wire.Message) -> None:
        """Add a message."""
        self.messages.append(message)
        self._byte_count += len(message.value) + len(message.key)
        self._byte_count += sum(len(name) + len(text) for name, text in message.properties.items())

    def response(self, *, next_offset: int, end_offset: int) -> wire.CommandPeekResponse:
        """Build the response; messages are copied once."""
        response = wire.CommandPeekResponse(next_offset=next_offset, end_offset=end_offset)
        for message in self.messages:
            response.messages.add().CopyFrom(message)
        return response


class Found(NamedTuple):
    """Result of a read.

    Attributes:
        ledger_id: of the partition.
        batches: each with the ranges of its offsets that are outside of the request.
        next_offset: where to read on.
        end_offset: of the durable log.
    """

    ledger_id: int
    batches: Sequence[tuple[StoredBatch, Sequence[Range]]]
    next_offset: int
    end_offset: int


def messages_of(found: Found) -> Iterator[wire.Message]:
    """Yield the messages that a read has found, without excluded messages.

    A batch is opened when its first message is requested.
    """
    for stored, excluded in found.batches:
        for place, message in messages_of_batch(stored.batch):
            offset = stored.first_offset + place
            if any(first <= offset <= last for first, last in excluded):
                continue
            message.message_id.CopyFrom(
                common.MessageIdData(
                    ledger_id=found.ledger_id,
                    entry_id=stored.entry_id,
                    index=stored.first_index + place,
                )
            )
            message.append_time_ms = stored.append_time_ms
            if stored.txn_id is not None:
                message.txn_id.most_bits, message.txn_id.least_bits = stored.txn_id
                message.stamp = stored.stamp
            yield message


def messages_of_batch(batch: bytes, start: int = 0) -> Iterator[tuple[int, wire.Message]]:
    """Yield the messages of a batch with their indexes, beginning with index start.

    The messages do not have their offsets. A part of a message is shown as it is stored: other
    parts hold the rest.

    Raises:
        InvalidArgument: the batch cannot be opened.
        ChecksumMismatch: the batch is damaged.
        MessageTooLarge: the batch is too large.
    """
    part = columnar.part_of(batch)
    if part:
        piece = bytes(columnar.piece_of(batch))
        yield 0, wire.Message(value=piece, properties={PART_PROPERTY: part.name.lower()})
        return
    columns = columnar.decode(batch)
    for place in range(start, columns.count):
        row = columns.row(place)
        try:
            yield (
                place,
                wire.Message(
                    key=row.key,
                    value=row.value or b"",
                    null_value=row.value is None,
                    event_time_ms=row.event_time_ms,
                    properties=row.properties,
                ),
            )
        except (TypeError, ValueError) as error:
            raise InvalidArgument("a message's properties are not texts") from error
