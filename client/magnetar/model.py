"""What the public API speaks of: choices, and descriptions of topics and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from magnetar.identity import ProducerIdentity
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2, transaction_pb2


class SubscriptionType(IntEnum):
    """How the consumers of one subscription share a partition."""

    EXCLUSIVE = broker_pb2.EXCLUSIVE
    SHARED = broker_pb2.SHARED
    FAILOVER = broker_pb2.FAILOVER
    KEY_SHARED = broker_pb2.KEY_SHARED


class InitialPosition(IntEnum):
    """Where a new subscription begins."""

    LATEST = broker_pb2.LATEST
    EARLIEST = broker_pb2.EARLIEST

    @classmethod
    def of(cls, choice: InitialPosition | str) -> InitialPosition:
        """Read "earliest" or "latest".

        Raises:
            InvalidArgument: neither.
        """
        if isinstance(choice, InitialPosition):
            return choice
        try:
            return cls[choice.upper()]
        except KeyError:
            raise InvalidArgument(f'{choice!r} is neither "earliest" nor "latest"') from None


class TransactionStatus(IntEnum):
    """Source: PIP-31, Concepts, TxnStatus."""

    OPEN = common_pb2.OPEN
    COMMITTING = common_pb2.COMMITTING
    COMMITTED = common_pb2.COMMITTED
    ABORTING = common_pb2.ABORTING
    ABORTED = common_pb2.ABORTED


class TransactionAction(IntEnum):
    """How a transaction ends."""

    COMMIT = common_pb2.COMMIT
    ABORT = common_pb2.ABORT


@dataclass(frozen=True, slots=True)
class TxnSend:
    """A transactional send that its broker holds durably.

    It has no MessageId yet: ledger and entry are the commit marker's (PIP-31, Message ID).

    Attributes:
        index: place among the producer's messages in this transaction and partition, from 0.
    """

    txn_id: TxnID
    partition: int
    index: int


@dataclass(frozen=True, slots=True)
class UncommittedMessage:
    """What an open transaction has written. It has no MessageId yet, and may never get one."""

    txn_id: TxnID
    value: bytes
    key: bytes | None
    properties: Mapping[str, str]
    event_time_ms: int | None


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """A transaction with messages in a partition's sidecar.

    Attributes:
        is_open: otherwise it has ended there, and its commit marker is in the partition's log.
        start_offset, start_time_ms, producer_epoch: of an open one, as in ProducerDescription.
    """

    txn_id: TxnID
    is_open: bool
    start_offset: int
    start_time_ms: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class StoredTransactions:
    """A page of them, in the order of their TxnIDs.

    Attributes:
        next_txn_id: with which to ask for the next page; None: this is the last one. A page may be
            empty, and not the last.
        end_offset: the log's end: the markers of those that are not open lie before it.
    """

    partition: PartitionName
    transactions: tuple[StoredTransaction, ...]
    next_txn_id: TxnID | None
    end_offset: int

    @classmethod
    def from_wire(
        cls, partition: PartitionName, wire: broker_pb2.CommandListStoredTxnsResponse
    ) -> StoredTransactions:
        return cls(
            partition,
            tuple(
                StoredTransaction(
                    TxnID.from_wire(one.txn_id),
                    one.open,
                    one.start_offset,
                    one.start_time_ms,
                    one.producer_epoch,
                )
                for one in wire.transactions
            ),
            TxnID.from_wire(wire.next_txn_id) if wire.HasField("next_txn_id") else None,
            wire.end_offset,
        )


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


@dataclass(frozen=True, slots=True)
class UnfinishedParticipant:
    """A participant that has not answered the end yet; `last_error` says why it refuses, if so."""

    partition: PartitionName
    subscription: str | None
    last_error: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction as its coordinator sees it.

    Attributes:
        timeout_ms: 0: it never expires.
        identity: of the transactional producer that began it, with the pair of then.
        age_ms: run time of the coordinator since the transaction was opened, or since it had ended
            everywhere, if it has; downtime excluded.
        opened_at_ms, ended_at_ms: milliseconds since the Unix epoch; 0: unknown, or not yet.
    """

    txn_id: TxnID
    status: TransactionStatus
    timeout_ms: int
    age_ms: int
    opened_at_ms: int
    partitions: tuple[PartitionName, ...]
    subscriptions: tuple[SubscriptionName, ...]
    unfinished: tuple[UnfinishedParticipant, ...]
    identity: ProducerIdentity | None = None
    two_phase_commit: bool = False
    ended_at_ms: int = 0

    @classmethod
    def from_wire(cls, wire: transaction_pb2.TransactionDescription) -> TransactionDescription:
        return cls(
            TxnID.from_wire(wire.txn_id),
            TransactionStatus(wire.status),
            wire.txn_timeout_ms,
            wire.age_ms,
            wire.opened_at_ms,
            tuple(PartitionName.from_wire(one) for one in wire.partitions),
            tuple(SubscriptionName.from_wire(one) for one in wire.subscriptions),
            tuple(
                UnfinishedParticipant(
                    PartitionName.from_wire(one.partition), one.subscription or None, one.last_error
                )
                for one in wire.unfinished
            ),
            ProducerIdentity.from_wire(wire.identity) if wire.HasField("identity") else None,
            wire.two_phase_commit,
            wire.ended_at_ms,
        )


class TransactionalState(IntEnum):
    """Of a transactional id, with Kafka's names."""

    EMPTY = transaction_pb2.EMPTY
    ONGOING = transaction_pb2.ONGOING
    PREPARE_COMMIT = transaction_pb2.PREPARE_COMMIT
    PREPARE_ABORT = transaction_pb2.PREPARE_ABORT
    COMPLETE_COMMIT = transaction_pb2.COMPLETE_COMMIT
    COMPLETE_ABORT = transaction_pb2.COMPLETE_ABORT


@dataclass(frozen=True, slots=True)
class TransactionalIdDescription:
    """A transactional id as KIP-939 has it; -1 is none.

    Attributes:
        timeout_ms: -1 with two-phase commit.
        txn_id: the latest transaction.
    """

    transactional_id: str
    state: TransactionalState
    producer_id: int
    producer_epoch: int
    prev_producer_id: int
    next_producer_id: int
    next_producer_epoch: int
    timeout_ms: int
    two_phase_commit: bool
    txn_id: TxnID | None

    @classmethod
    def from_wire(
        cls, wire: transaction_pb2.TransactionalIdDescription
    ) -> TransactionalIdDescription:
        return cls(
            wire.transactional_id,
            TransactionalState(wire.state),
            wire.producer_id,
            wire.producer_epoch,
            wire.prev_producer_id,
            wire.next_producer_id,
            wire.next_producer_epoch,
            wire.txn_timeout_ms,
            wire.two_phase_commit,
            TxnID.from_wire(wire.txn_id) if wire.HasField("txn_id") else None,
        )


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """Who writes to a partition, or acknowledges at one of its subscriptions.

    Attributes:
        subscription: empty for the partition itself.
        producer_id: of acknowledgements, the consumer's.
        producer_epoch: of the transactional producer; -1 without one.
        txn_id: what is open; None for plain messages.
        start_offset: the partition's end when that began there.
    """

    partition: PartitionName
    subscription: str
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_time_ms: int
    txn_id: TxnID | None
    start_offset: int
    start_time_ms: int

    @property
    def participant(self) -> PartitionName | SubscriptionName:
        if not self.subscription:
            return self.partition
        return SubscriptionName(*self.partition, self.subscription)

    def open_ms(self, now_ms: int) -> int:
        """For how long it has been open."""
        return max(0, now_ms - self.start_time_ms)

    @classmethod
    def from_wire(
        cls, partition: PartitionName, wire: broker_pb2.ProducerDescription
    ) -> ProducerDescription:
        return cls(
            partition,
            wire.subscription,
            wire.producer_id,
            wire.producer_epoch,
            wire.last_sequence,
            wire.last_time_ms,
            TxnID.from_wire(wire.txn_id) if wire.HasField("txn_id") else None,
            wire.start_offset,
            wire.start_time_ms,
        )


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """What is open at a participant only, and why it is taken for that."""

    producer: ProducerDescription
    reason: str


@dataclass(frozen=True, slots=True)
class NameDescription:
    """A name of sequences: the last committed one, and what is open.

    Attributes:
        committed_fingerprint: of the content that was committed; None: none was kept.
    """

    name: str
    committed_sequence: int | None
    open_sequence: int | None
    open_txn_id: TxnID | None
    committed_fingerprint: str | None = None


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
