"""Sends the batches of a producer to the broker of a partition: numbered, in order, counted.

Sequences count messages from 0 without gaps: for each producer and partition, or for each TxnID,
producer and partition. A batch gets its sequence when it is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from magnetar.link.repeats import Stream
from magnetar.link.runtime import Runtime
from magnetar.link.topic_route import TopicRoute
from magnetar.messaging.sending.backpressure import PendingBudget
from magnetar.messaging.sending.closed_batch import ClosedBatch
from magnetar.messaging.sending.followed_transactions import NOBODY, FollowedTransactions
from magnetar.transactions.begun import Begun
from magnetar_core.errors import MagnetarError, SequenceGap
from magnetar_core.ids import PartitionName, TxnID
from magnetar_core.transport.spliced import Spliced, with_payload
from magnetar_core.wire import broker_pb2

log = logging.getLogger("magnetar")


class BatchDelivery(Stream[ClosedBatch, broker_pb2.CommandSendResponse]):
    """Sends plain batches, or the batches of a transaction."""

    txn_id: TxnID | None = None
    # Messages that the broker has confirmed. Counted by CommandEndTxn.
    confirmed_count = 0
    # What a transaction's sends come after: as of its beginning, and the same in all of them.
    _followed = NOBODY
    _next_sequence = 0
    _lane = 0

    def __init__(
        self,
        runtime: Runtime,
        route: TopicRoute,
        name: PartitionName,
        producer_id: int,
        budget: PendingBudget,
        *,
        in_flight_max: int,
        on_refused: Callable[[list[ClosedBatch], MagnetarError], None],
        plain: BatchDelivery | None = None,
    ) -> None:
        """The delivery of batches that are not closed yet.

        Args:
            on_refused: these batches have failed for good.
            plain: of a transaction's batches: that of the producer's plain ones to the same
                partition. Nothing leaves until begin() is called.
        """
        self.producer_id = producer_id
        self._route = route
        self._budget = budget
        self._on_refused = on_refused
        self._plain = plain
        if plain is None:
            repeats = route.connection(name.partition).repeats
            self.name, self.wire_name = name, name.to_wire()
            # What the producer's plain sends here come after (order, k).
            self._following = FollowedTransactions()
            # What all commands have in common.
            self._head = broker_pb2.CommandSend(partition=self.wire_name)
        else:
            repeats = plain.repeats
            self.name, self.wire_name = plain.name, plain.wire_name
            self._following = plain._following
            self._is_open = False
        super().__init__(runtime, repeats, in_flight_max=in_flight_max)

    @property
    def unconfirmed_count(self) -> int:
        """Messages of complete batches that the broker has not confirmed."""
        return sum(batch.count for batch in self.items if not batch.finished)

    def begin(self, begun: Begun) -> None:
        """Send batches from now on, since the transaction has its id."""
        assert self._plain is not None
        self.txn_id = begun.txn_id
        self._head = broker_pb2.CommandSend()
        self._head.CopyFrom(self._plain._head)
        self._head.txn_id.CopyFrom(begun.wire_id)
        if begun.producer_epoch is not None:
            self._head.producer_epoch = begun.producer_epoch
        if begun.txn_proof:
            self._head.txn_proof = begun.txn_proof
        # Not earlier: transactions that were settled while it began are no longer named.
        self._followed = self._following.now()
        self.open()

    def lead_plain_sends(self) -> None:
        """Put the producer's later sends behind this transaction, which has begun (order, k).

        They name it, in place of those that it follows itself, until the broker has acknowledged
        such a send.
        """
        assert self.txn_id is not None
        if self._followed.txn_ids:
            self._following.forget(self._followed)
        self._following.append(self.txn_id)

    def pass_on(self) -> None:
        """Let sends follow what this aborted transaction followed, if they follow nothing."""
        assert self.txn_id is not None
        if not self._following:
            for txn_id in self._followed.txn_ids or (self.txn_id,):
                self._following.append(txn_id)

    def send(self, batch: ClosedBatch, *, timeout_ms: float) -> None:
        """Number a batch, and send it behind all batches that were sent before."""
        self._number(batch)
        self._submit(batch, timeout_ms)

    def send_again(self, batch: ClosedBatch, *, timeout_ms: float) -> None:
        """Repeat a batch with its numbers, when it is not known whether it arrived."""
        batch.renew()
        batch.lane = self._lane
        self._submit(batch, timeout_ms)

    def _number(self, batch: ClosedBatch) -> None:
        batch.lane = self._lane
        batch.producer_id = self.producer_id
        batch.sequence_id = self._next_sequence
        self._next_sequence += batch.count

    def _submit(self, batch: ClosedBatch, timeout_ms: float) -> None:
        # First, since submit() may find that the batch is refused, which gives it back.
        self._budget.take(batch.size, batch.count)
        self.submit(batch, timeout_ms=timeout_ms)

    def retire(self) -> None:
        """Forget everything, since the transaction has ended; this breaks reference cycles."""
        if not self.items:
            self._is_abandoned = True
            del self._on_refused

    # What the stream asks for, and tells.

    def moved(self) -> None:
        """Look up the broker again, since the partition has moved."""
        self._route.refresh_soon()

    def build(self, batch: ClosedBatch) -> broker_pb2.CommandSend | Spliced:
        """Return the CommandSend of a batch; called at each attempt."""
        batch.followed = self._following.now() if self._plain is None else self._followed
        batch.patient = bool(batch.followed.txn_ids)
        command = broker_pb2.CommandSend()
        command.CopyFrom(self._head)
        command.producer_id = batch.producer_id
        command.sequence_id = batch.sequence_id
        command.num_messages = batch.count
        if batch.patient:
            # A message for each of a hundred names takes twenty times as long.
            command.MergeFromString(batch.followed.wire)
        return with_payload(command, "batch", batch.payload)

    def confirmed(self, batch: ClosedBatch, reply: broker_pb2.CommandSendResponse) -> None:
        """Note that the broker has stored a batch."""
        # The answer comes first: callers must not wait for it if the rest fails.
        self.confirmed_count += batch.count
        if batch.receipt is not None and not batch.receipt.done():
            batch.receipt.set_result(reply.message_id)
        if self._plain is None or reply.all_settled:
            self._following.forget(batch.followed)
        elif reply.settled_txn_ids:
            self._following.forget_settled(batch.followed, reply.settled_txn_ids)
        self._budget.give_back(batch.size, batch.count)

    def refused(self, tail: list[ClosedBatch], error: MagnetarError) -> None:
        """Note that a batch and those behind it have failed."""
        if self._plain is None:
            # From here on another producer id counts from 0: the broker never saw the numbers that
            # are lost, and would wait for them.
            self._lane += 1
            self.producer_id = self._runtime.new_id()
            self._next_sequence = 0
            if isinstance(error, SequenceGap) and tail[0].attempts <= 1 and tail[0].sequence_id:
                # The broker has forgotten this producer, for instance after a long silence. It
                # never had these batches, so sending them under the new id repeats nothing.
                log.warning("%s: the broker forgot a producer; it continues as another", self.name)
                for batch in tail:
                    self._number(batch)
                self.resubmit(tail)
                return
        self._on_refused(tail, error)
        for batch in tail:
            self._budget.give_back(batch.size, batch.count)
