"""Sends a producer's messages to a partition outside of transactions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from magnetar.errors import ClientClosed
from magnetar.messaging.sending.batching import OpenBatch
from magnetar.messaging.sending.closed_batch import ClosedBatch, Receipt, of_all_copies
from magnetar.messaging.sending.followed_transactions import Followed, FollowedTransactions
from magnetar.messaging.sending.partition_sender import PartitionSender
from magnetar_core.errors import MagnetarError, MessageTooLarge, OutcomeUnknown, SequenceGap
from magnetar_core.transport.columns.sends import Sent

if TYPE_CHECKING:
    from magnetar.link.topic_route import TopicRoute
    from magnetar.messaging.sending.batch_delivery import SendingProducer

log = logging.getLogger("magnetar")


class PlainSender(PartitionSender):
    """The sender of a producer and a partition, which its transactions follow.

    Attributes:
        following: what the producer's plain sends here come after (order, k).
    """

    def __init__(self, producer: SendingProducer, route: TopicRoute, partition: int) -> None:
        """A sender that has sent nothing yet."""
        name = route.partition_name(partition)
        unanswered = route.connection(partition).unanswered
        super().__init__(producer, unanswered, route, name, is_open=True)
        self.following = FollowedTransactions()

    @property
    def unconfirmed_count(self) -> int:
        """Messages that the broker has not confirmed."""
        complete = sum(batch.count for batch in self.items if not batch.finished)
        return self._open.count + complete

    def send_alone(self, open_batch: OpenBatch, *, timeout_ms: float) -> ClosedBatch:
        """Send these messages as a batch, behind all messages that were added before.

        Raises:
            MagnetarError: the messages cannot be encoded. No effect.
        """
        self.send_collected()
        payload = self._encode(open_batch)
        count = open_batch.count
        batch = ClosedBatch(payload, count, open_batch.size, self._whole_receipt(count))
        self.send(batch, timeout_ms=timeout_ms)
        return batch

    def send_again(self, batch: ClosedBatch, *, timeout_ms: float) -> None:
        """Repeat the batch of send_alone() with its numbers: it is not known whether it arrived.

        Raises:
            OutcomeUnknown: the producer is closed, and the batch may be stored. No effect.
            ClientClosed: the producer is closed, and the batch is not stored. No effect.
        """
        if self.failure is not None:
            if batch.in_doubt:
                raise OutcomeUnknown(
                    "it may be stored, and cannot be sent again to know: the producer is closed"
                )
            raise ClientClosed("the producer is closed")
        batch.receipt = self._whole_receipt(batch.count)
        batch.renew()
        batch.lane = self._lane
        self._budget.take(batch.size, batch.count)
        self.submit(batch, timeout_ms=timeout_ms)

    def refused(self, tail: list[ClosedBatch], error: MagnetarError) -> None:
        """Note that a batch and those behind it have failed."""
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
        super().refused(tail, error)

    def _add_parts(
        self,
        value: bytes | None,
        key: bytes | None,
        properties: bytes,
        event_time_ms: int | None,
        *,
        receipt: Receipt | None,
    ) -> int:
        size = len(value or b"") + len(key or b"") + len(properties)
        raise MessageTooLarge(
            f"a message of {size} bytes has to be sent in parts, which takes a"
            " transaction: use send() or enqueue()"
        )

    # What the common part asks for, and tells.

    def _follows(self) -> Followed:
        return self.following.now()

    def _settled(self, batch: ClosedBatch, reply: Sent) -> None:
        # The broker stores a plain batch behind all that it follows.
        self.following.forget(batch.followed)

    def _error_of(self, batch: ClosedBatch, error: MagnetarError) -> MagnetarError:
        return of_all_copies(batch, error)

    def _failed(self, error: MagnetarError, unawaited_count: int) -> None:
        self._owner.sending_failed(error, unawaited_count)
