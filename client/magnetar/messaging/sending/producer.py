"""Producers send messages to a topic, inside or outside of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import repeat

from magnetar.arguments import integer, refusal
from magnetar.column_batch import ColumnBatch
from magnetar.habits import KnowsHabits
from magnetar.messaging.sending.batching import partition_of_key
from magnetar.messaging.sending.message_arguments import (
    Properties,
    check_size,
    checked_column,
    checked_message,
)
from magnetar.messaging.sending.producer_work import ProducerWork
from magnetar.transactions.failed_call import FailedCall
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_block import (
    NOT_GIVEN,
    NotGiven,
    given,
    require_outside,
)
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.errors import InvalidArgument, QuotaExceeded
from magnetar_core.ids import MessageId


class Producer(KnowsHabits):
    """Sends messages to a topic. `Client.create_producer` makes it.

    The key of a message determines its partition, by the key's CRC-32C, in every client and for
    ever. Messages without a key fill a batch for a partition, then a batch for the next partition.

        producer = await client.create_producer("orders")
        await producer.send(b"tea", key=b"7")
    """

    def __init__(self, work: ProducerWork) -> None:
        """A producer.

        Args:
            work: what the other modules of the SDK use in its place.
        """
        self.work = work
        self.producer_id = work.producer_id
        # It closes when the program drops it.
        self._client: object = None
        # For what is done for each message.
        self._open_blocks = work.runtime.open_blocks

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.work.topic

    @property
    def partition_count(self) -> int:
        """Number of partitions of the topic."""
        return self.work.partition_count

    async def send(
        self,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> MessageId | TxnSend:
        """Send a message and wait until the broker has stored it durably.

        A message that is too large for a batch is sent in parts, in a separate transaction.
        Cancelling the call does not take the message back; flush() raises if it fails.

        In a transaction, a call that does not succeed makes the transaction fail, whatever the
        reason: a bad argument, a timeout, a cancellation. Its commit is refused then.

        The message is checked and copied when the call begins. What is refused affects no other
        message, and what the caller changes later changes nothing.

        Args:
            value: the content of the message: bytes, a bytearray or a memoryview.
            key: messages with the same key go to the same partition, and stay in order. Of the same
                types as the value.
            properties: names and texts that travel with the message: a mapping of str to str.
            event_time_ms: the application's own time, in milliseconds since the Unix epoch: an int
                of 64 bits, or what has __index__, but for the lowest; no bool.
            partition: the partition's number; by default the key decides.
            txn: the transaction to which the message belongs; None: none. It must be given inside
                of the block of a transaction of this client.
        Returns:
            The id of the message. A message of a transaction has no id before the commit, so the
            result is a TxnSend then, and also for a message that was sent in parts.
        Raises:
            InvalidArgument: an argument has another type, or cannot be stored. No effect.
            MessageTooLarge: the message exceeds message_bytes_max. No effect.
            OutcomeUnknown: no answer came in time; the message may be stored.
            InvalidTxnState: the transaction has ended, or failed. No effect.
            InvalidArgument: `txn` is not given, inside of the block of a transaction, or belongs to
                another client. The transaction has failed. No effect.
            MagnetarError: the broker refused the message.
        """
        work = self.work
        txn = given(txn, work.runtime, "send")
        try:
            message = checked_message(value, key, properties, event_time_ms)
            partition = self._checked_partition(partition)
            if work.budget.full:
                await work.budget.room()
            return await work.send(message, partition, txn)
        except BaseException as error:
            self._fail(txn, error, key, partition)
            raise

    def send_nowait(
        self,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> None:
        """Add a message to a batch and return at once.

        flush() raises if the message fails; for a message of a transaction, the commit does. The
        arguments are those of `send`.

        Raises:
            QuotaExceeded: too many messages are unacknowledged. No effect; call flush(), or use
                `enqueue`, as one always does in a transaction, which fails otherwise.
            MessageTooLarge: the message has to be sent in parts, which takes a transaction. No
                effect; use `send` or `enqueue`, or give a transaction.
        """
        work = self.work
        # As given(), which would be a call more for each message; also in `enqueue`.
        if txn is NOT_GIVEN:
            if self._open_blocks:
                require_outside(work.runtime, "send")
            txn = None
        try:
            if work.budget.full:
                raise QuotaExceeded(
                    "too much is unacknowledged: pending_bytes_max or pending_messages_max"
                )
            # The way of a bare value, here and in `enqueue`: one call less for each message.
            if (
                key is None
                and partition is None
                and properties is None
                and event_time_ms is None
                and not work.is_closed
            ):
                bare = (
                    work.plain_senders[work.sticky_partition]
                    if txn is None
                    else work.sender(None, None, txn)
                )
                if bare.add_value(value):
                    return
            message = checked_message(value, key, properties, event_time_ms)
            work.sender(message[1], self._checked_partition(partition), txn).add(*message)
        except BaseException as error:
            self._fail(txn, error, key, partition)
            raise

    async def enqueue(
        self,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> None:
        """Add a message to a batch, and wait while too many messages are unacknowledged.

        A message that has to be sent in parts is stored when the call returns. flush() raises if
        the message fails; for a message of a transaction, the commit does. The arguments are those
        of `send`.

        Raises:
            MessageTooLarge: the message exceeds message_bytes_max. No effect.
            InvalidTxnState: the transaction has ended, or failed. No effect.
        """
        work = self.work
        # As given(), which would be a call more for each message.
        if txn is NOT_GIVEN:
            if self._open_blocks:
                require_outside(work.runtime, "send")
            txn = None
        try:
            if (
                key is None
                and partition is None
                and properties is None
                and event_time_ms is None
                and not work.is_closed
                and not work.budget.full
            ):
                bare = (
                    work.plain_senders[work.sticky_partition]
                    if txn is None
                    else work.sender(None, None, txn)
                )
                if bare.add_value(value):
                    return
            message = checked_message(value, key, properties, event_time_ms)
            partition = self._checked_partition(partition)
            if work.budget.full:
                await work.budget.room()
            sender = work.sender(message[1], partition, txn)
            if txn is None and sender.needs_parts(*message[:3]):
                await work.send(message, sender.name.partition, None)
                return
            sender.add(*message)
            if sender.is_empty:
                # A batch is full: let it leave, and others have their turn.
                await asyncio.sleep(0)
        except BaseException as error:
            self._fail(txn, error, key, partition)
            raise

    async def send_many(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes] | None = None,
        *,
        partition: int | None = None,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> None:
        """Enqueue many messages at once, which is the fastest way to send messages.

        The call does not wait until they are durable; `flush` does.

        Args:
            values: the contents of the messages: bytes-like, as in `send`.
            keys: the keys, as many as values.
            partition: the partition's number for all of them; by default the keys decide.
            txn: as for send.
        Raises:
            InvalidArgument: a value or key is not bytes-like, or the numbers of values and keys
                differ. No effect.
            MessageTooLarge: a message exceeds message_bytes_max. No effect.
        """
        work = self.work
        txn = given(txn, work.runtime, "send")
        try:
            _checked_transaction(txn)
            values = checked_column("values", values)
            keys = None if keys is None else checked_column("keys", keys)
            partition = self._checked_partition(partition)
            largest = self._check_sizes(values, keys)
            if largest > work.config.batch_bytes_max:
                # This is rare, and each large message fills a batch or more.
                for number, value in enumerate(values):
                    key = None if keys is None else keys[number]
                    await self.enqueue(value, key, partition=partition, txn=txn)
                return
            await work.send_many(values, keys, partition, txn)
        except BaseException as error:
            self._fail(txn, error, None, partition)
            raise

    async def send_columns(
        self,
        batches: Iterable[ColumnBatch],
        *,
        partition: int | None = None,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> None:
        """Enqueue batches that consist of columns. Keys do not determine the partition.

        The call does not wait until they are durable; `flush` does.

        Args:
            batches: each is sent as it is.
            partition: the partition's number for all of them; by default each batch goes to the
                next partition.
            txn: as for send.
        Raises:
            MessageTooLarge: a batch exceeds the broker's limit, or a message exceeds
                message_bytes_max. The batches before it are enqueued.
            MagnetarError: the transaction failed before.
        """
        txn = given(txn, self.work.runtime, "send")
        try:
            _checked_transaction(txn)
            partition = self._checked_partition(partition)
            await self.work.send_columns(batches, partition, txn)
        except BaseException as error:
            self._fail(txn, error, None, partition)
            raise

    async def flush(self) -> None:
        """Wait until all messages sent so far are confirmed, or have failed.

        Raises:
            MagnetarError: a message outside of transactions has failed since the last flush, and no
                call of `send` waited for it. This is the first such failure. A failure inside a
                transaction makes its commit fail instead.
        """
        await self.work.flush()

    async def close(self) -> None:
        """Flush, for `close_timeout_ms` at most, and refuse further sends.

        Raises:
            OutcomeUnknown: messages were not confirmed in time; they may be stored.
            MagnetarError: as flush.
        """
        await self.work.close()

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _fail(self, txn: object, error: BaseException, key: object, partition: object) -> None:
        """Make the transaction of a call fail, if there is one, since the call did not succeed."""
        txn = _checked_transaction(txn)
        if txn is None:
            return
        if partition is None and isinstance(key, bytes):
            partition = partition_of_key(key, self.work.partition_count)
        chosen = partition if isinstance(partition, int) else None
        txn.work.fail(error, FailedCall(self.topic, chosen))

    def _checked_partition(self, partition: object) -> int | None:
        """Check the number of a partition.

        Raises:
            InvalidArgument: the topic has no such partition.
        """
        if partition is None:
            return None
        if type(partition) is int and 0 <= partition < self.work.partition_count:
            return partition
        return integer("partition", partition, 0, self.work.partition_count - 1)

    def _check_sizes(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> int:
        """Return the size of the largest value.

        Raises:
            InvalidArgument: there are not as many keys as values.
            MessageTooLarge: a message exceeds message_bytes_max.
        """
        largest, limit = max(map(len, values), default=0), self.work.config.message_bytes_max
        largest_key = 0
        if keys is not None:
            if len(keys) != len(values):
                raise InvalidArgument(f"{len(keys)} keys for {len(values)} values")
            largest_key = max(map(len, keys), default=0)
        if largest + largest_key > limit:
            for value, key in zip(values, keys or repeat(b""), strict=False):
                check_size(value, key, b"", message_bytes_max=limit)
        return largest


def _checked_transaction(txn: object) -> Transaction | None:
    """Check that a caller gave a transaction.

    Raises:
        InvalidArgument: it is something else.
    """
    if txn is None or isinstance(txn, Transaction):
        return txn
    raise refusal("txn", txn, "a Transaction") from None
