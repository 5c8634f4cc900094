"""Sends a producer's messages of a transaction to a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.messaging.sending.batching import NO_MESSAGES, OpenBatch
from magnetar.messaging.sending.closed_batch import ClosedBatch, Receipt
from magnetar.messaging.sending.followed_transactions import NOBODY, Followed
from magnetar.messaging.sending.partition_sender import PART_BYTES_MAX, PartitionSender
from magnetar.transactions.failed_call import FailedCall
from magnetar_core.batch import split
from magnetar_core.errors import MagnetarError
from magnetar_core.transport.columns.sends import Sent

if TYPE_CHECKING:
    from magnetar.messaging.sending.batch_delivery import SendingProducer
    from magnetar.messaging.sending.plain_sender import PlainSender
    from magnetar.transactions.begun import Begun
    from magnetar.transactions.transaction_work import TransactionWork


class TransactionSender(PartitionSender):
    """The sender of a transaction. It sends nothing until begin() is called.

    Attributes:
        txn: the transaction to which all messages belong.
        writer_id: the id of the producer.
        plain: the producer's sender for the same partition outside of transactions.
    """

    def __init__(
        self,
        producer: SendingProducer,
        txn: TransactionWork,
        plain: PlainSender,
        forget: Callable[[TransactionSender], None],
    ) -> None:
        """A sender that has sent nothing yet.

        Args:
            forget: called when the transaction has ended.
        """
        super().__init__(producer, plain.unanswered, plain.route, plain.name, is_open=False)
        self.writer_id = producer.producer_id
        # What its sends come after: as of its beginning, and the same in all of them.
        self._followed = NOBODY
        self._forget = forget
        self.txn = txn
        self.plain = plain

    def begin(self, begun: Begun) -> None:
        """Send batches from now on, since the transaction has its id."""
        self._txn_id = begun.txn_id
        self._producer_epoch = begun.producer_epoch
        self._txn_proof = begun.txn_proof
        # Not earlier: transactions that were settled while it began are no longer named.
        self._followed = self.plain.following.now()
        self.open()

    def send_soon(self) -> None:
        """Send the collected messages when the producer's linger time is over."""
        if self._open.count and self._linger is None:
            self._linger_later()

    def take_open_batch(self) -> OpenBatch:
        """Take the collected messages away, to send them in another way."""
        taken, self._open = self._open, NO_MESSAGES
        # Of several keys it had to begin, and has no way but the usual one.
        (batch,) = (one for one in taken.batches if one.count)
        return batch

    def lead_plain_sends(self) -> None:
        """Put the producer's later sends behind this transaction, which has begun (order, k).

        They name it, in place of those that it follows itself, until the broker has acknowledged
        such a send.
        """
        assert self._txn_id is not None
        following = self.plain.following
        if self._followed.txn_ids:
            following.forget(self._followed)
        following.append(self._txn_id)

    def pass_on(self) -> None:
        """Let sends follow what this aborted transaction followed, if they follow nothing."""
        assert self._txn_id is not None
        following = self.plain.following
        if not following:
            for txn_id in self._followed.txn_ids or (self._txn_id,):
                following.append(txn_id)

    def abandon(self, error: MagnetarError) -> None:
        """Fail and drop buffered messages; answers that are under way still count."""
        if self.failure is None:
            self.failure = error
        self.send_collected()
        super().abandon(error)

    def on_ended(self, committed: bool) -> None:
        """Forget everything, since the transaction has ended."""
        self._forget(self)
        if not self.items:
            self._is_abandoned = True

    # What the common part asks for, and tells.

    def _follows(self) -> Followed:
        return self._followed

    def _settled(self, batch: ClosedBatch, reply: Sent) -> None:
        if reply.all_settled:
            self.plain.following.forget(batch.followed)
        elif reply.settled:
            self.plain.following.forget_settled(batch.followed, reply.settled)

    def _fail(self, tail: list[ClosedBatch], error: MagnetarError) -> None:
        if self.failure is None:
            self.failure = error
        super()._fail(tail, error)
        self.send_collected()

    def _error_of(self, batch: ClosedBatch, error: MagnetarError) -> MagnetarError:
        # What fails in a transaction does not count, wherever its copies are.
        return error

    def _failed(self, error: MagnetarError, unawaited_count: int) -> None:
        self.txn.doom(error, FailedCall.send_to(self.name))

    def _closed(self) -> None:
        super()._closed()
        if self._txn_id is None:
            # A lazy transaction has more than a batch now.
            self.txn.begin_soon()

    def _linger_later(self) -> None:
        if self._txn_id is not None:
            super()._linger_later()
        elif len(self._open.batches) > 1:
            self._closed()
        # Otherwise it may turn out that all of the transaction fits this batch.

    def _add_parts(
        self,
        value: bytes | None,
        key: bytes | None,
        properties: bytes,
        event_time_ms: int | None,
        *,
        receipt: Receipt | None,
    ) -> int:
        self._require_sound()
        message = OpenBatch()
        message.add(value, key, properties, event_time_ms)
        parts = split(self._encode(message), min(PART_BYTES_MAX, self._whole_bytes_max))
        self.send_collected()
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            batch = ClosedBatch(part, 1, len(part), receipt if is_last else None)
            self.send(batch, timeout_ms=self._runtime.config.send_timeout_ms)
        self._closed()
        return len(parts)
