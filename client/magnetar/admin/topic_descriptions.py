"""What an administrator is told of topics, their partitions and subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from magnetar_core.ids import TxnID
from magnetar_core.wire import topic_pb2


@dataclass(frozen=True, slots=True)
class UncommittedMessage:
    """What an open transaction has written. It has no MessageId yet, and may never get one."""

    txn_id: TxnID
    value: bytes
    key: bytes | None
    properties: Mapping[str, str]
    event_time_ms: int | None


@dataclass(frozen=True, slots=True)
class TopicSummary:
    topic: str
    topic_id: int
    partitions: int


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A subscription on one partition.

    Attributes:
        mark_delete_offset: everything below it is acknowledged.
        backlog: messages not acknowledged, those pending in transactions included.
        pending_txns: the first 1,000 of them.
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
        open_txns: the first 1,000 of them.
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
    topic: str
    topic_id: int
    retention_ms: int
    retention_bytes: int
    retain_unconsumed: bool
    partitions: tuple[PartitionDescription, ...]

    @classmethod
    def from_wire(cls, wire: topic_pb2.CommandDescribeTopicResponse) -> TopicDescription:
        return cls(
            wire.topic,
            wire.topic_id,
            wire.retention_ms,
            wire.retention_bytes,
            wire.retain_unconsumed == topic_pb2.YES,
            tuple(_partition(one) for one in wire.partitions),
        )


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Where a partition begins and ends.

    Attributes:
        ledger_id: raised when the partition was restored; its offsets are others then.
        end_offset: the first one that is not readable yet.
        time_offset: of the first message that is not older than the time asked for; end_offset
            when there is none; None when none was asked for.
    """

    partition: int
    ledger_id: int
    first_offset: int
    end_offset: int
    time_offset: int | None = None


@dataclass(frozen=True, slots=True)
class TopicOffsets:
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
