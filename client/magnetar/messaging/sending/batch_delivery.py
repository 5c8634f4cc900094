"""Sends the batches of a producer to the broker of a partition: numbered, in order, counted.

Sequences count messages from 0 without gaps: for each producer and partition, or for each TxnID,
producer and partition. A batch gets its sequence when it is complete.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from magnetar.config import ProducerConfig
from magnetar.link.runtime import Runtime
from magnetar.link.topic_route import TopicRoute
from magnetar.link.unanswered import Stream, Unanswered
from magnetar.messaging.sending.backpressure import PendingBudget
from magnetar.messaging.sending.closed_batch import ClosedBatch
from magnetar.messaging.sending.followed_transactions import Followed
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import NO_EPOCH, PartitionName, TxnID
from magnetar_core.transport.columns.sends import Send, Sent


class SendingProducer(Protocol):
    """The producer of senders: magnetar.messaging.sending.producer_work.ProducerWork."""

    runtime: Runtime
    config: ProducerConfig
    budget: PendingBudget
    producer_id: int

    def sending_failed(self, error: MagnetarError, unawaited_count: int) -> None:
        """Note that a batch has failed, with so many messages for which no caller waits."""
        ...

    def batch_closed(self, partition: int) -> None:
        """Note that a batch is complete; the next may go to another partition."""
        ...


class BatchDelivery(Stream[ClosedBatch, Sent]):
    """Sends batches. Subclasses say which transactions these follow, and what refusals mean.

    Attributes:
        name: the name of the partition.
        route: finds the broker of the partition.
        producer_id: the id under which batches leave now.
        confirmed_count: messages that the broker has confirmed. Counted by CommandEndTxn.
    """

    def __init__(
        self,
        producer: SendingProducer,
        unanswered: Unanswered,
        route: TopicRoute,
        name: PartitionName,
        *,
        is_open: bool,
    ) -> None:
        """The delivery of batches that are not closed yet.

        Args:
            is_open: whether batches may leave.
        """
        config = producer.config
        super().__init__(producer.runtime, unanswered, config.in_flight_batches_max, is_open)
        self.name = name
        self.route = route
        self.producer_id = producer.producer_id
        self.confirmed_count = 0
        self._owner = producer
        self._config = config
        self._budget = producer.budget
        # What all sends say of their transaction.
        self._txn_id: TxnID | None = None
        self._producer_epoch = NO_EPOCH
        self._txn_proof = b""
        self._next_sequence = 0
        self._lane = 0

    @abstractmethod
    def _follows(self) -> Followed:
        """Return the transactions that a batch which leaves now comes after (order, k)."""

    @abstractmethod
    def _settled(self, batch: ClosedBatch, reply: Sent) -> None:
        """Note which of the transactions that a batch named need no longer be named."""

    def send(self, batch: ClosedBatch, *, timeout_ms: float) -> None:
        """Number a batch, and send it behind all batches that were sent before."""
        self._number(batch)
        # First, since submit() may find that the batch is refused, which gives it back.
        self._budget.take(batch.size, batch.count)
        self.submit(batch, timeout_ms=timeout_ms)

    def _number(self, batch: ClosedBatch) -> None:
        batch.lane = self._lane
        batch.producer_id = self.producer_id
        batch.sequence_id = self._next_sequence
        self._next_sequence += batch.count

    # What the stream asks for, and tells.

    def moved(self) -> None:
        """Look up the broker again, since the partition has moved."""
        self.route.refresh_soon()

    def build(self, batch: ClosedBatch) -> Send:
        """Return the CommandSend of a batch; called at each attempt."""
        followed = batch.followed = self._follows()
        batch.patient = bool(followed.txn_ids)
        return Send(
            self.name,
            batch.producer_id,
            batch.sequence_id,
            batch.count,
            batch.payload,
            self._txn_id,
            followed.txn_ids,
            self._producer_epoch,
            self._txn_proof,
        )

    def confirmed(self, batch: ClosedBatch, reply: Sent) -> None:
        """Note that the broker has stored a batch."""
        # The answer comes first: callers must not wait for it if the rest fails.
        self.confirmed_count += batch.count
        if batch.receipt is not None and not batch.receipt.done():
            batch.receipt.set_result(reply.message_id)
        if batch.followed.txn_ids:
            self._settled(batch, reply)
        self._budget.give_back(batch.size, batch.count)
