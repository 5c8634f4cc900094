"""Descriptions of producers, transactional ids and named sequences."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.enums import TransactionalState
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import broker_pb2, transaction_pb2


@dataclass(frozen=True, slots=True)
class TransactionalIdDescription:
    """A transactional id, as KIP-939 describes it. -1 means none.

    Attributes:
        timeout_ms: the timeout of its transactions, in milliseconds; -1 with two-phase commit.
        txn_id: its latest transaction.
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

    @property
    def current_pair(self) -> tuple[int, int]:
        """The producer id and the epoch of the instance that may act now."""
        if self.next_producer_id == -1:
            return self.producer_id, self.producer_epoch
        return self.next_producer_id, self.next_producer_epoch

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
    """A producer that writes to a partition, or a consumer with open acks on a subscription.

    Attributes:
        subscription: the subscription; empty for a producer.
        producer_id: the producer's id; for acks, the consumer's id.
        producer_epoch: the epoch of the transactional producer; -1 for other producers.
        txn_id: its open transaction; None for sends outside of transactions.
        start_offset: the end of the partition when the transaction began there.
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
        """The partition or subscription where the transaction is open."""
        if not self.subscription:
            return self.partition
        return SubscriptionName(*self.partition, self.subscription)

    def open_ms(self, now_ms: int) -> int:
        """Return for how many milliseconds the transaction has been open.

        Args:
            now_ms: the time now, in milliseconds since the Unix epoch.
        """
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
    """A transaction that is open at a participant but not at its coordinator, and the evidence."""

    producer: ProducerDescription
    reason: str


@dataclass(frozen=True, slots=True)
class NameDescription:
    """A named sequence: the last committed number, and the open transaction.

    Attributes:
        committed_fingerprint: the fingerprint of the committed content; None: none was stored.
    """

    name: str
    committed_sequence: int | None
    open_sequence: int | None
    open_txn_id: TxnID | None
    committed_fingerprint: str | None = None
