"""Descriptions of topics, their partitions and subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from magnetar_core.ids import TxnID
from magnetar_core.wire import topic_pb2


@dataclass(frozen=True, slots=True)
class UncommittedMessage:
    """A message of an open transaction. It has no MessageId yet, and may never get one.

    Attributes:
        value_or_none: the value; None for a message without one.
        key: the key; None for a message without one.
        event_time_ms: the producer's time, in milliseconds since the Unix epoch; None: the
            producer gave no time.
    """

    txn_id: TxnID
    value_or_none: bytes | None
    key: bytes | None
    properties: Mapping[str, str]
    event_time_ms: int | None


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in a list of topics.

    Attributes:
        topic: the topic's name.
        topic_id: the topic's id; a topic that is deleted and created again has another id.
        partitions: how many partitions it has.
    """

    topic: str
    topic_id: int
    partitions: int


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A subscription on a partition.

    Attributes:
        mark_delete_offset: all messages below it are acknowledged.
        backlog: how many messages are not acknowledged, including those pending in transactions.
        pending_ack_count: how many messages are acknowledged in open transactions.
        pending_txns: the transactions with pending acks; the first 1,000.
        consumers: the names of the consumers.
        unacked_count: how many delivered messages are not acknowledged.
        pending_txn_count: how many transactions have pending acks.
    """

    subscription: str
    mark_delete_offset: int
    backlog: int
    pending_ack_count: int
    pending_txns: tuple[TxnID, ...]
    consumers: tuple[str, ...]
    unacked_count: int
    pending_txn_count: int = 0


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition.

    Attributes:
        broker_name: the name of the broker that stores it.
        ledger_id: a number that rises when the partition is restored, since a restore changes its
            offsets.
        first_offset: the first stored offset.
        end_offset: the first offset that is not readable yet.
        has_txnlog: whether its sidecar has messages.
        open_txns: the open transactions; the first ones, as many as were asked for.
        open_txn_count: how many transactions are open.
    """

    partition: int
    broker_name: str
    ledger_id: int
    first_offset: int
    end_offset: int
    has_txnlog: bool
    open_txns: tuple[TxnID, ...]
    subscriptions: tuple[SubscriptionDescription, ...]
    open_txn_count: int = 0


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions and subscriptions.

    Attributes:
        topic: the topic's name.
        topic_id: the topic's id; a topic that is deleted and created again has another id.
        retention_ms: how long messages are kept, in milliseconds; 0: for ever.
        retention_bytes: how many bytes are kept in each partition; 0: no limit.
        retain_unconsumed: whether retention keeps messages that are not acknowledged.
        partitions: the partitions.
    """

    topic: str
    topic_id: int
    retention_ms: int
    retention_bytes: int
    retain_unconsumed: bool
    partitions: tuple[PartitionDescription, ...]

    @classmethod
    def from_wire(
        cls,
        wire: topic_pb2.CommandDescribeTopicResponse,
        partitions: Iterable[topic_pb2.PartitionDescription],
    ) -> TopicDescription:
        """Convert the answers of brokers.

        Args:
            wire: the answer of one of them.
            partitions: the partitions in the answers of all.
        """
        return cls(
            wire.topic,
            wire.topic_id,
            wire.retention_ms,
            wire.retention_bytes,
            wire.retain_unconsumed == topic_pb2.YES,
            tuple(_partition(partition) for partition in partitions),
        )


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets at which a partition begins and ends.

    Attributes:
        ledger_id: a number that rises when the partition is restored, since a restore changes its
            offsets.
        first_offset: the first stored offset.
        end_offset: the first offset that is not readable yet.
        time_offset: the offset of the first message stored at the given time or later; end_offset
            if no message is; None if no time was given.
    """

    partition: int
    ledger_id: int
    first_offset: int
    end_offset: int
    time_offset: int | None = None


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Offsets at which the partitions of a topic begin and end.

    Attributes:
        topic_id: the topic's id.
        partitions: the partitions.
    """

    topic_id: int
    partitions: tuple[PartitionOffsets, ...]


def _partition(wire: topic_pb2.PartitionDescription) -> PartitionDescription:
    return PartitionDescription(
        wire.partition,
        wire.broker_name,
        wire.ledger_id,
        wire.first_offset,
        wire.end_offset,
        wire.has_txnlog,
        tuple(TxnID.from_wire(one) for one in wire.open_txns),
        tuple(
            SubscriptionDescription(
                one.subscription,
                one.mark_delete_offset,
                one.backlog,
                one.pending_ack_count,
                tuple(TxnID.from_wire(txn) for txn in one.pending_txns),
                tuple(one.consumers),
                one.unacked_count,
                one.pending_txn_count,
            )
            for one in wire.subscriptions
        ),
        wire.open_txn_count,
    )
