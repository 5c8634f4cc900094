"""Sends the batches of a producer to a partition, outside of transactions or in a transaction.

Sequences count messages from 0 without gaps: for each producer and partition, or for each TxnID,
producer and partition. A batch gets its sequence when it is complete.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Final

from magnetar.config import Batching
from magnetar.errors import failure_of
from magnetar.link.runtime import Scheduled
from magnetar.link.topic_route import TopicRoute
from magnetar.link.unanswered import Unanswered, copy_error
from magnetar.messaging.sending.batch_delivery import BatchDelivery, SendingProducer
from magnetar.messaging.sending.batching import (
    MESSAGE_OVERHEAD_BYTES,
    NO_MESSAGES,
    OpenBatch,
    OpenBatchesByKey,
    cut,
)
from magnetar.messaging.sending.closed_batch import ClosedBatch, Receipt, new_receipt
from magnetar.messaging.sending.message_arguments import check_size
from magnetar_core.errors import MagnetarError, MessageTooLarge
from magnetar_core.ids import PartitionName

# What header, offsets and checksum may add to a batch of one message.
BATCH_OVERHEAD_BYTES = 1024
# Larger pieces are stored slower, smaller ones cost more commands.
PART_BYTES_MAX = 1 << 20
# Python finds the members of an enumeration slowly.
BY_KEY: Final = Batching.BY_KEY


class PartitionSender(BatchDelivery):
    """Collects messages in batches and sends them to the broker in order.

    Attributes:
        failure: why nothing more is sent; None: it is.
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
        """A sender that has sent nothing yet; see BatchDelivery."""
        super().__init__(producer, unanswered, route, name, is_open=is_open)
        self.failure: MagnetarError | None = None
        self._linger: Scheduled | asyncio.TimerHandle | None = None
        # Made with its first message.
        self._open: OpenBatch | OpenBatchesByKey = NO_MESSAGES

    @property
    def is_empty(self) -> bool:
        """Whether no message waits, since the last message has completed its batch."""
        return self._open.count == 0

    def add_value(self, value: bytes | None) -> bool:
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
        value: bytes | None,
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
        size = len(properties) + MESSAGE_OVERHEAD_BYTES
        if value is not None:
            size += len(value)
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
                self.send_collected()
        if self.failure is not None:
            self._require_sound()
        batch = self._collecting()
        batch.add(value, key, properties, event_time_ms)
        if batch.size >= config.batch_bytes_max or batch.count >= config.batch_messages_max:
            self.send_collected()
        elif self._linger is None:
            self._linger_later()

    def add_awaited(
        self,
        value: bytes | None,
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
        size = len(value or b"") + len(key or b"") + len(properties) + MESSAGE_OVERHEAD_BYTES
        if self._open.count and self._open.size + size > self._config.batch_bytes_max:
            self.send_collected()
        batch = self._collecting().of_key(key)
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
            self._failed(error, 1)

    def add_many(self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None) -> None:
        """Append many messages, none of which is too large.

        Raises:
            MagnetarError: the transaction failed before. No effect.
        """
        self._runtime.require_loop()
        self._require_sound()
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
                self._collecting().extend(
                    values[start:stop], None if keys is None else keys[start:stop], size
                )
            if number < last or self._open.size >= config.batch_bytes_max:
                self.send_collected()
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
        self.send_collected()
        self._require_sound()
        self._closed()
        self.send(
            ClosedBatch(payload, count, size, None),
            timeout_ms=self._runtime.config.send_timeout_ms,
        )

    def send_collected(self) -> None:
        """Send the collected messages, without waiting for more."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._open.count == 0:
            return
        gathered, self._open = self._open, NO_MESSAGES
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
        self._closed()
        self.send(batch, timeout_ms=self._runtime.config.send_timeout_ms)

    def _closed(self) -> None:
        """Note that a batch is complete."""
        self._owner.batch_closed(self.name.partition)

    def _collecting(self) -> OpenBatch | OpenBatchesByKey:
        """Return the batch that takes the next message."""
        if self._open is NO_MESSAGES:
            by_key = self._config.batching is BY_KEY
            self._open = OpenBatchesByKey() if by_key else OpenBatch()
        return self._open

    def give_up(self, error: MagnetarError) -> None:
        """Fail everything that is not confirmed, now."""
        if self.failure is None:
            self.failure = error
        self.send_collected()
        super().give_up(error)

    def _linger_later(self) -> None:
        linger_ms = self._config.linger_ms
        if linger_ms:
            self._linger = self._runtime.call_later(self._died, linger_ms, self.send_collected)
        else:
            self._linger = self._runtime.call_soon(self._died, self.send_collected)

    def _died(self, error: MagnetarError) -> None:
        """Fail for good, since a callback has died: what it left behind is not known."""
        self.give_up(error)
        self._failed(error, 0)

    def needs_parts(self, value: bytes | None, key: bytes | None, properties: bytes) -> bool:
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
        session = self.unanswered.connection.live_session
        if session is not None:
            limit = min(limit, session.batch_bytes_max - BATCH_OVERHEAD_BYTES)
        return limit

    @abstractmethod
    def _add_parts(
        self,
        value: bytes | None,
        key: bytes | None,
        properties: bytes,
        event_time_ms: int | None,
        *,
        receipt: Receipt | None,
    ) -> int:
        """Send a message as parts, right after all that was added before; returns how many.

        Args:
            receipt: told what becomes of the last part.
        Raises:
            MessageTooLarge: this sender belongs to no transaction.
            MagnetarError: as `add`.
        """

    def _require_sound(self) -> None:
        if self.failure is not None:
            raise copy_error(self.failure)

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

    # What becomes of batches.

    def refused(self, tail: list[ClosedBatch], error: MagnetarError) -> None:
        """Note that a batch and those behind it have failed."""
        self._fail(tail, error)
        for batch in tail:
            self._budget.give_back(batch.size, batch.count)

    def _fail_unsent(self, open_batch: OpenBatch, error: MagnetarError) -> None:
        self._fail([ClosedBatch(b"", open_batch.count, 0, open_batch.receipt)], error)

    def _fail(self, tail: list[ClosedBatch], error: MagnetarError) -> None:
        errors = [self._error_of(one, error) for one in tail]
        for batch, own in zip(tail, errors, strict=True):
            if batch.receipt is not None and not batch.receipt.done():
                batch.receipt.set_exception(copy_error(own))
        for batch, own in zip(tail, errors, strict=True):
            self._failed(own, batch.unawaited_count)

    @abstractmethod
    def _error_of(self, batch: ClosedBatch, error: MagnetarError) -> MagnetarError:
        """Return the error of a batch for a refusal, which speaks of its last copy alone."""

    @abstractmethod
    def _failed(self, error: MagnetarError, unawaited_count: int) -> None:
        """Tell that messages have failed, for so many of which no caller waits."""
