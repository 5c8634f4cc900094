"""What an administrator is told of producers, transactional ids and names."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.enums import TransactionalState
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import broker_pb2, transaction_pb2


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
