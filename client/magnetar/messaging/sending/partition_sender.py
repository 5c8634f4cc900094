"""Sends the batches of a producer to a partition, outside of transactions or in a transaction.

Sequences count messages from 0 without gaps: for each producer and partition, or for each TxnID,
producer and partition. A batch gets its sequence when it is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from magnetar.config import Batching, ProducerConfig
from magnetar.errors import ClientClosed, failure_of
from magnetar.link.repeats import copy_error
from magnetar.link.runtime import Runtime, Scheduled
from magnetar.link.topic_route import TopicRoute
from magnetar.messaging.sending.backpressure import PendingBudget
from magnetar.messaging.sending.batch_delivery import BatchDelivery
from magnetar.messaging.sending.batching import (
    MESSAGE_OVERHEAD_BYTES,
    OpenBatch,
    OpenBatchesByKey,
    cut,
)
from magnetar.messaging.sending.closed_batch import ClosedBatch, Receipt, new_receipt, of_all_copies
from magnetar.messaging.sending.message_arguments import check_size
from magnetar.transactions.begun import Begun
from magnetar_core.batch import split
from magnetar_core.errors import (
    MagnetarError,
    MessageTooLarge,
    OutcomeUnknown,
)
from magnetar_core.ids import PartitionName
from magnetar_core.wire import common_pb2

if TYPE_CHECKING:
    from magnetar.transactions.transaction_work import TransactionWork

# What header, offsets and checksum may add to a batch of one message.
BATCH_OVERHEAD_BYTES = 1024
# Larger pieces are stored slower, smaller ones cost more commands.
PART_BYTES_MAX = 1 << 20


class SendingProducer(Protocol):
    """The producer of senders: magnetar.messaging.sending.producer_work.ProducerWork."""

    runtime: Runtime
    config: ProducerConfig
    budget: PendingBudget
    producer_id: int

    def sending_failed(
        self, sender: PartitionSender, error: MagnetarError, unawaited_count: int
    ) -> None:
        """Note that a batch has failed, with so many messages for which no caller waits."""
        ...

    def batch_closed(self, sender: PartitionSender) -> None:
        """Note that a batch is complete; the next may go to another partition."""
        ...

    def forget(self, sender: PartitionSender) -> None:
        """Note that the transaction of a sender has ended."""
        ...


class PartitionSender:
    """Collects messages in batches and sends them to the broker in order.

    Attributes:
        txn: the transaction to which all messages belong; None: they belong to none.
        plain: for a transaction's sender, the producer's sender for the same partition outside of
            transactions. A transaction's sender sends nothing until begin() is called.
    """

    failure: MagnetarError | None = None
    _linger: Scheduled | asyncio.TimerHandle | None = None

    def __init__(
        self,
        owner: SendingProducer,
        route: TopicRoute,
        partition: int,
        *,
        txn: TransactionWork | None = None,
        plain: PartitionSender | None = None,
    ) -> None:
        """A sender that has sent nothing yet."""
        self.name: PartitionName = route.partition_name(partition) if plain is None else plain.name
        self.txn = txn
        self.plain = plain
        self._owner = owner
        self._runtime = owner.runtime
        self._config = owner.config
        self._open = self._new_open()
        self._delivery: BatchDelivery = BatchDelivery(
            owner.runtime,
            route,
            self.name,
            owner.producer_id,
            owner.budget,
            in_flight_max=owner.config.in_flight_batches_max,
            on_refused=self._fail,
            plain=None if plain is None else plain._delivery,
        )

    @property
    def wire_name(self) -> common_pb2.Partition:
        """The partition's name on the wire."""
        return self._delivery.wire_name

    @property
    def producer_id(self) -> int:
        """The id under which batches leave now."""
        return self._delivery.producer_id

    @property
    def confirmed_count(self) -> int:
        """Messages that the broker has confirmed."""
        return self._delivery.confirmed_count

    @property
    def unconfirmed_count(self) -> int:
        """Messages that the broker has not confirmed."""
        return self._open.count + self._delivery.unconfirmed_count

    @property
    def has_unanswered(self) -> bool:
        """Whether complete batches are neither confirmed nor have failed."""
        return bool(self._delivery.items)

    def begin(self, begun: Begun) -> None:
        """Send batches from now on, since the transaction has its id."""
        self._delivery.begin(begun)
        if self._open.count and self._linger is None:
            self._linger_later()

    @property
    def is_empty(self) -> bool:
        """Whether no message waits, since the last message has completed its batch."""
        return self._open.count == 0

    def lead_plain_sends(self) -> None:
        """Put the producer's later sends behind this transaction, which has begun (order, k)."""
        self._delivery.lead_plain_sends()

    def pass_on(self) -> None:
        """Let sends follow what this aborted transaction followed, if they follow nothing."""
        self._delivery.pass_on()

    def add_value(self, value: bytes) -> bool:
        """Append a value to the open batch, if nothing else has to be done.

        So it is with most of many small messages that have nothing but a value. The caller sees to
        it that the sender has not failed.

        Returns:
            Whether it was appended. If not, `add` does it.
        """
        batch = self._open
        values = batch.values_alone
        # Another message has seen to it that the batch leaves.
        if values is None or self._linger is None or type(value) is not bytes:
            return False
        config = self._config
        size = len(value) + MESSAGE_OVERHEAD_BYTES
        count = batch.count + 1
        if (
            size > config.message_bytes_max
            or size + batch.size >= config.batch_bytes_max
            or count >= config.batch_messages_max
        ):
            return False
        values.append(value)
        batch.count = count
        batch.size += size
        return True

    def add(
        self,
        value: bytes,
        key: bytes | None,
        properties: bytes,
        event_time_ms: int | None,
    ) -> None:
        """Append a message without a receipt, as message_arguments has checked it.

        Raises:
            MessageTooLarge: the message has to be sent in parts, and this sender belongs to no
                transaction; or it exceeds message_bytes_max. No effect.
            MagnetarError: the transaction failed before. No effect.
        """
        if self._linger is None:
            # Nothing waits here that the event loop will send.
            self._runtime.require_loop()
        size = len(value) + len(properties) + MESSAGE_OVERHEAD_BYTES
        if key is not None:
            size += len(key)
        config = self._config
        if size > config.message_bytes_max:
            check_size(value, key, properties, message_bytes_max=config.message_bytes_max)
        batch = self._open
        if size + batch.size > config.batch_bytes_max:
            if self.needs_parts(value, key, properties):
                self._add_parts(value, key, properties, event_time_ms, receipt=None)
                return
            if batch.count:
                self.close_batch()
                batch = self._open
        if self.failure is not None:
            raise copy_error(self.failure)
        batch.add(value, key, properties, event_time_ms)
        if batch.size >= config.batch_bytes_max or batch.count >= config.batch_messages_max:
            self.close_batch()
        elif self._linger is None:
            self._linger_later()

    def add_awaited(
        self,
        value: bytes,
        key: bytes | None,
        properties: bytes,
        event_time_ms: int | None,
    ) -> tuple[int, Receipt]:
        """Append a message, and return its place in the batch and the batch's receipt.

        Raises:
            MagnetarError: as `add`.
        """
        self._runtime.require_loop()
        if self.needs_parts(value, key, properties):
            whole = self._whole_receipt(1)
            count = self._add_parts(value, key, properties, event_time_ms, receipt=whole)
            # The receipt is the last part's: its place is so many before that.
            return 1 - count, whole
        size = len(value) + len(key or b"") + len(properties) + MESSAGE_OVERHEAD_BYTES
        if self._open.count and self._open.size + size > self._config.batch_bytes_max:
            self.close_batch()
        batch = self._open.of_key(key)
        if batch.receipt is None:
            batch.receipt = self._new_receipt()
        index, receipt = batch.count, batch.receipt
        receipt.awaited += 1
        try:
            self.add(value, key, properties, event_time_ms)
        except BaseException:
            receipt.awaited -= 1
            raise
        return index, receipt

    def stop_awaiting(self, receipt: Receipt) -> None:
        """Note that a caller no longer waits for a message, and will not be told of its failure."""
        if not receipt.done():
            receipt.awaited -= 1
        elif (error := receipt.exception()) is not None:
            assert isinstance(error, MagnetarError)
            self._owner.sending_failed(self, error, 1)

    def add_many(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """Append many messages, none of which is too large.

        Raises:
            MagnetarError: the transaction failed before. No effect.
        """
        self._runtime.require_loop()
        if self.failure is not None:
            raise copy_error(self.failure)
        config = self._config
        pieces = list(
            cut(
                values,
                keys,
                room_bytes=config.batch_bytes_max - self._open.size,
                room_messages=config.batch_messages_max - self._open.count,
                batch_bytes_max=config.batch_bytes_max,
                batch_messages_max=config.batch_messages_max,
            )
        )
        last = len(pieces) - 1
        for number, (start, stop, size) in enumerate(pieces):
            if stop > start:
                self._open.extend(
                    values[start:stop], None if keys is None else keys[start:stop], size
                )
            if number < last or self._open.size >= config.batch_bytes_max:
                self.close_batch()
        if self._open.count and self._linger is None:
            self._linger_later()

    def add_encoded(self, payload: bytes, count: int, size: int) -> None:
        """Send an encoded batch, right behind all messages that were added before.

        Args:
            payload: the encoded batch.
            count: how many messages it has.
            size: how many bytes it takes of the budget.
        Raises:
            MagnetarError: as `add`.
        """
        self._runtime.require_loop()
        limit = self._whole_bytes_max + BATCH_OVERHEAD_BYTES
        if len(payload) > limit:
            raise MessageTooLarge(f"a batch of {len(payload)} bytes exceeds {limit}")
        self.close_batch()
        if self.failure is not None:
            raise copy_error(self.failure)
        batch = ClosedBatch(payload, count, size, None)
        self._owner.batch_closed(self)
        self._delivery.send(batch, timeout_ms=self._runtime.config.send_timeout_ms)

    def close_batch(self) -> None:
        """Send the collected messages, without waiting for more."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._open.count == 0:
            return
        gathered, self._open = self._open, self._new_open()
        for open_batch in gathered.batches:
            if open_batch.count:
                # These messages are nowhere else: if they do not leave, they have failed.
                self._runtime.guarded(
                    partial(self._fail_unsent, open_batch), self._close, open_batch
                )

    def _close(self, open_batch: OpenBatch) -> None:
        if self.failure is not None:
            self._fail_unsent(open_batch, self.failure)
            return
        payload = open_batch.encode(self._config.codec)
        batch = ClosedBatch(payload, open_batch.count, open_batch.size, open_batch.receipt)
        self._owner.batch_closed(self)
        self._delivery.send(batch, timeout_ms=self._runtime.config.send_timeout_ms)

    def _fail_unsent(self, open_batch: OpenBatch, error: MagnetarError) -> None:
        self._fail([ClosedBatch(b"", open_batch.count, 0, open_batch.receipt)], error)

    def take_open_batch(self) -> OpenBatch:
        """Take the collected messages away, to send them in another way."""
        taken, self._open = self._open, self._new_open()
        # Of several keys it had to begin, and has no way but the usual one.
        (batch,) = (one for one in taken.batches if one.count)
        return batch

    def _new_open(self) -> OpenBatch | OpenBatchesByKey:
        by_key = self._config.batching is Batching.BY_KEY
        return OpenBatchesByKey() if by_key else OpenBatch()

    def send_alone(self, open_batch: OpenBatch, *, timeout_ms: float) -> ClosedBatch:
        """Send these messages as a batch, behind all messages that were added before.

        Raises:
            MagnetarError: the messages cannot be encoded. No effect.
        """
        self.close_batch()
        payload = self._encode(open_batch)
        count = open_batch.count
        batch = ClosedBatch(payload, count, open_batch.size, self._whole_receipt(count))
        self._delivery.send(batch, timeout_ms=timeout_ms)
        return batch

    def send_again(self, batch: ClosedBatch, *, timeout_ms: float) -> None:
        """Repeat the batch of send_alone(), when it is not known whether it arrived.

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
        self._delivery.send_again(batch, timeout_ms=timeout_ms)

    def drain(self) -> Awaitable[None]:
        """Wait until all complete batches are confirmed or have failed."""
        return self._delivery.drain()

    def abandon(self, error: MagnetarError) -> None:
        """Fail and drop buffered messages; answers that are under way still count."""
        if self.failure is None:
            self.failure = error
        self.close_batch()
        self._delivery.abandon(error)

    def give_up(self, error: MagnetarError) -> None:
        """Fail everything that is not confirmed, now."""
        if self.failure is None:
            self.failure = error
        self.close_batch()
        self._delivery.give_up(error)

    def retire(self) -> None:
        """Forget everything, since the transaction has ended."""
        self._owner.forget(self)
        self._delivery.retire()

    def _linger_later(self) -> None:
        if self.plain is not None and self._delivery.txn_id is None:
            # It may turn out that all of the transaction fits this batch.
            if len(self._open.batches) > 1:
                self._owner.batch_closed(self)
            return
        linger_ms = self._config.linger_ms
        if linger_ms:
            self._linger = self._runtime.call_later(self._died, linger_ms, self.close_batch)
        else:
            self._linger = self._runtime.call_soon(self._died, self.close_batch)

    def _died(self, error: MagnetarError) -> None:
        """Fail for good, since a callback has died: what it left behind is not known."""
        self.give_up(error)
        self._owner.sending_failed(self, error, 0)

    def needs_parts(self, value: bytes, key: bytes | None, properties: bytes) -> bool:
        """Return whether a message is too large for a batch.

        Raises:
            MessageTooLarge: the message exceeds message_bytes_max.
        """
        config = self._config
        size = check_size(value, key, properties, message_bytes_max=config.message_bytes_max)
        return size > config.batch_bytes_max and size > self._whole_bytes_max

    @property
    def _whole_bytes_max(self) -> int:
        """Limit of the columns of a batch with one message, in bytes."""
        limit = self._config.whole_bytes_max
        session = self._delivery.repeats.connection.live_session
        if session is not None:
            limit = min(limit, session.batch_bytes_max - BATCH_OVERHEAD_BYTES)
        return limit

    def _add_parts(
        self,
        value: bytes,
        key: bytes | None,
        properties: bytes,
        event_time_ms: int | None,
        *,
        receipt: Receipt | None,
    ) -> int:
        """Send a message as parts, right after all that was added before; returns how many.

        Args:
            receipt: told what becomes of the last part.
        Raises: as `add`.
        """
        if self.plain is None:
            raise MessageTooLarge(
                f"a message of {len(value)} bytes has to be sent in parts, which takes a"
                " transaction: use send() or enqueue()"
            )
        if self.failure is not None:
            raise copy_error(self.failure)
        message = OpenBatch()
        message.add(value, key, properties, event_time_ms)
        parts = split(self._encode(message), min(PART_BYTES_MAX, self._whole_bytes_max))
        self.close_batch()
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            batch = ClosedBatch(part, 1, len(part), receipt if is_last else None)
            self._delivery.send(batch, timeout_ms=self._runtime.config.send_timeout_ms)
        self._owner.batch_closed(self)
        return len(parts)

    def _new_receipt(self) -> Receipt:
        return new_receipt(self._runtime.loop)

    def _whole_receipt(self, count: int) -> Receipt:
        """Return a receipt for which all of a batch's messages wait."""
        receipt = self._new_receipt()
        receipt.awaited = count
        return receipt

    def _encode(self, open_batch: OpenBatch) -> bytes:
        try:
            return open_batch.encode(self._config.codec)
        except MagnetarError:
            raise
        except Exception as cause:
            raise failure_of(cause, f"to encode {open_batch.count} messages") from cause

    def _fail(self, tail: list[ClosedBatch], error: MagnetarError) -> None:
        if self.plain is not None and self.failure is None:
            self.failure = error
        # What fails in a transaction does not count, wherever its copies are.
        errors = [error if self.plain is not None else of_all_copies(one, error) for one in tail]
        for batch, own in zip(tail, errors, strict=True):
            if batch.receipt is not None and not batch.receipt.done():
                batch.receipt.set_exception(copy_error(own))
        for batch, own in zip(tail, errors, strict=True):
            self._owner.sending_failed(self, own, batch.unawaited_count)
        if self.plain is not None:
            self.close_batch()
