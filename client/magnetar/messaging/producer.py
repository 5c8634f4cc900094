"""Producers send messages to a topic, inside or outside of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import repeat

from magnetar.arguments import integer, refusal
from magnetar.column_batch import ColumnBatch
from magnetar.config import ProducerConfig
from magnetar.errors import ClientClosed
from magnetar.link.in_flight import copy_error
from magnetar.link.runtime import Runtime
from magnetar.link.topic_route import TopicRoute
from magnetar.messaging.backpressure import PendingBudget
from magnetar.messaging.batching import partition_of_key
from magnetar.messaging.message_arguments import (
    Checked,
    Properties,
    check_size,
    checked_column,
    checked_message,
)
from magnetar.messaging.partition_sender import PartitionSender
from magnetar.transactions.failed_call import FailedCall
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_block import (
    NOT_GIVEN,
    NotGiven,
    given,
    require_outside,
)
from magnetar.transactions.transaction_work import TransactionWork
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.errors import InvalidArgument, MagnetarError, OutcomeUnknown, QuotaExceeded
from magnetar_core.ids import MessageId


class Producer:
    """Sends messages to a topic. `Client.create_producer` makes it.

    The key of a message determines its partition, by the key's CRC-32C, in every client and for
    ever. Messages without a key fill a batch for a partition, then a batch for the next partition.

        producer = await client.create_producer("orders")
        await producer.send(b"tea", key=b"7")
    """

    def __init__(
        self,
        runtime: Runtime,
        route: TopicRoute,
        config: ProducerConfig,
        budget: PendingBudget,
        *,
        begin: Callable[[], Awaitable[Transaction]],
        on_close: Callable[[Producer], None],
    ) -> None:
        """A producer that has sent nothing yet.

        Args:
            begin: begins a transaction, for a message too large for a batch.
        """
        self.producer_id = runtime.new_id()
        # It closes when the program drops it.
        self._client: object = None
        self._runtime = runtime
        self._route = route
        self._config = config
        self._budget = budget
        self._begin = begin
        self._on_close = on_close
        self._open_blocks = runtime.open_blocks
        self._closed = False
        self._plain: list[PartitionSender] = [
            PartitionSender(
                runtime,
                config,
                route,
                partition,
                self.producer_id,
                budget,
                on_failed=self._note_failure,
                on_batch_closed=self._rotate,
            )
            for partition in range(route.partition_count)
        ]
        # By the transaction's number and the partition.
        self._transactional: dict[tuple[int, int], PartitionSender] = {}
        self._sticky = runtime.random.randrange(route.partition_count)
        self._first_failure: MagnetarError | None = None
        self._failed_count = 0

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._route.topic

    @property
    def partition_count(self) -> int:
        """Number of partitions of the topic."""
        return self._route.partition_count

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
        txn = given(txn, self._runtime, "send")
        try:
            message = checked_message(value, key, properties, event_time_ms)
            partition = self._checked_partition(partition)
            if self._budget.full:
                await self._budget.room()
            return await self._send(message, partition, txn)
        except BaseException as error:
            self._fail(txn, error, key, partition)
            raise

    async def _send(
        self, message: Checked, partition: int | None, txn: Transaction | None
    ) -> MessageId | TxnSend:
        value, key, properties, event_time_ms = message
        sender = self._sender(key, partition, txn)
        if txn is None and sender.needs_parts(value, key, properties):
            async with await self._begin() as own:
                return await self._send(message, sender.name.partition, own)
        index, receipt = sender.add_awaited(value, key, properties, event_time_ms)
        if txn is not None:
            txn.work.join_soon()
        try:
            first = await asyncio.shield(receipt)
        except asyncio.CancelledError:
            sender.stop_awaiting(receipt)
            raise
        if txn is not None:
            await txn.work.joined()
            return TxnSend(txn.txn_id, sender.name.partition, first.index + index)
        return MessageId(
            first.ledger_id, first.entry_id, first.index + index, sender.name.partition
        )

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
        # As given(), which would be a call more for each message; also in `enqueue`.
        if txn is NOT_GIVEN:
            if self._open_blocks:
                require_outside(self._runtime, "send")
            txn = None
        try:
            if self._budget.full:
                raise QuotaExceeded(
                    "too much is unacknowledged: pending_bytes_max or pending_messages_max"
                )
            # The way of a bare value, here and in `enqueue`: one call less for each message.
            if (
                key is None
                and partition is None
                and properties is None
                and event_time_ms is None
                and not self._closed
            ):
                bare = self._plain[self._sticky] if txn is None else self._sender(None, None, txn)
                if bare.add_value(value):
                    return
            message = checked_message(value, key, properties, event_time_ms)
            self._sender(message[1], self._checked_partition(partition), txn).add(*message)
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
        # As given(), which would be a call more for each message.
        if txn is NOT_GIVEN:
            if self._open_blocks:
                require_outside(self._runtime, "send")
            txn = None
        try:
            if (
                key is None
                and partition is None
                and properties is None
                and event_time_ms is None
                and not self._closed
                and not self._budget.full
            ):
                bare = self._plain[self._sticky] if txn is None else self._sender(None, None, txn)
                if bare.add_value(value):
                    return
            message = checked_message(value, key, properties, event_time_ms)
            partition = self._checked_partition(partition)
            if self._budget.full:
                await self._budget.room()
            sender = self._sender(message[1], partition, txn)
            if txn is None and sender.needs_parts(*message[:3]):
                await self._send(message, sender.name.partition, None)
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
        txn = given(txn, self._runtime, "send")
        try:
            _checked_transaction(txn)
            values = checked_column("values", values)
            keys = None if keys is None else checked_column("keys", keys)
            partition = self._checked_partition(partition)
            largest = self._check_sizes(values, keys)
            if largest > self._config.batch_bytes_max:
                # This is rare, and each large message fills a batch or more.
                for number, value in enumerate(values):
                    key = None if keys is None else keys[number]
                    await self.enqueue(value, key, partition=partition, txn=txn)
                return
            step = self._config.batch_messages_max
            for start in range(0, len(values), step):
                if self._budget.full:
                    await self._budget.room()
                some = values[start : start + step]
                if keys is None or self._route.partition_count == 1 or partition is not None:
                    sender = self._sender(None, partition, txn)
                    sender.add_many(some, None if keys is None else keys[start : start + step])
                else:
                    self._add_by_key(some, keys[start : start + step], txn)
                await asyncio.sleep(0)
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
        txn = given(txn, self._runtime, "send")
        try:
            _checked_transaction(txn)
            partition = self._checked_partition(partition)
            for batch in batches:
                if not isinstance(batch, ColumnBatch):
                    raise refusal("batches", batch, "an iterable of ColumnBatch")
                batch.check_sizes(self._config.message_bytes_max)
                payload = batch.encode(self._config.codec)
                if self._budget.full:
                    await self._budget.room()
                sender = self._sender(None, partition, txn)
                sender.add_encoded(payload, batch.count, batch.byte_count)
                # Let it leave, and others have their turn.
                await asyncio.sleep(0)
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
        self._runtime.require_loop()
        senders = [*self._plain, *self._transactional.values()]
        for sender in senders:
            sender.close_batch()
        for sender in senders:
            await sender.drain()
        self._raise_failure()

    async def drain_plain(self) -> None:
        """Wait until all messages outside of transactions are confirmed, or have failed."""
        for sender in self._plain:
            sender.close_batch()
        for sender in self._plain:
            await sender.drain()

    def abandon(self) -> None:
        """Take nothing more: the event loop has ended."""
        self._closed = True

    @property
    def unstored_count(self) -> int:
        """Messages outside of transactions that are not confirmed, or failed since flush()."""
        return self._failed_count + sum(sender.unconfirmed_count for sender in self._plain)

    async def close(self) -> None:
        """Flush, for `close_timeout_ms` at most, and refuse further sends.

        Raises:
            OutcomeUnknown: messages were not confirmed in time; they may be stored.
            MagnetarError: as flush.
        """
        self._runtime.require_loop()
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(self._runtime.config.close_timeout_ms / 1000):
                await self.flush()
        except TimeoutError:
            pass
        finally:
            for sender in self._plain:
                sender.give_up(OutcomeUnknown("the producer was closed before the answer came"))
            self._on_close(self)
        self._raise_failure()

    def fail(self, error: MagnetarError) -> None:
        """Fail everything that is not confirmed, and refuse what comes, since the client failed."""
        self._runtime.fail_each([sender.give_up for sender in self._plain], error)

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
            partition = partition_of_key(key, self._route.partition_count)
        chosen = partition if isinstance(partition, int) else None
        txn.work.fail(error, FailedCall(self.topic, chosen))

    def _checked_partition(self, partition: object) -> int | None:
        """Check the number of a partition.

        Raises:
            InvalidArgument: the topic has no such partition.
        """
        if partition is None:
            return None
        return integer("partition", partition, 0, self._route.partition_count - 1)

    def _check_sizes(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> int:
        """Return the size of the largest value.

        Raises:
            InvalidArgument: there are not as many keys as values.
            MessageTooLarge: a message exceeds message_bytes_max.
        """
        largest, limit = max(map(len, values), default=0), self._config.message_bytes_max
        largest_key = 0
        if keys is not None:
            if len(keys) != len(values):
                raise InvalidArgument(f"{len(keys)} keys for {len(values)} values")
            largest_key = max(map(len, keys), default=0)
        if largest + largest_key > limit:
            for value, key in zip(values, keys or repeat(b""), strict=False):
                check_size(value, key, b"", message_bytes_max=limit)
        return largest

    def _sender(
        self, key: bytes | None, partition: int | None, txn: Transaction | None
    ) -> PartitionSender:
        if self._closed:
            self._runtime.require_loop()
            raise ClientClosed("the producer is closed")
        if partition is None:
            if key is None or self._route.partition_count == 1:
                partition = self._sticky
            else:
                partition = partition_of_key(key, self._route.partition_count)
        if txn is None:
            return self._plain[partition]
        work = txn.work
        work.require_open()
        sender = self._transactional.get((work.number, partition))
        return self._enroll(work, partition) if sender is None else sender

    def _enroll(self, txn: TransactionWork, partition: int) -> PartitionSender:
        txn.require_client(self._runtime)
        sender = PartitionSender(
            self._runtime,
            self._config,
            self._route,
            partition,
            self.producer_id,
            self._budget,
            on_failed=lambda error, _: txn.doom(error, FailedCall(self.topic, partition)),
            on_batch_closed=self._rotate if txn.has_begun else partial(self._outgrown, txn),
            plain=self._plain[partition],
        )
        key = (txn.number, partition)
        self._transactional[key] = sender
        txn.add_sender(sender, partial(self._transactional.pop, key, None))
        return sender

    def _outgrown(self, txn: TransactionWork, partition: int) -> None:
        """Begin a lazy transaction, whose messages fill more than a batch."""
        txn.begin_soon()
        self._rotate(partition)

    def _add_by_key(
        self, values: Sequence[bytes], keys: Sequence[bytes], txn: Transaction | None
    ) -> None:
        count = self._route.partition_count
        by_partition: dict[int, tuple[list[bytes], list[bytes]]] = {}
        for value, key in zip(values, keys, strict=True):
            partition = partition_of_key(key, count)
            columns = by_partition.get(partition)
            if columns is None:
                columns = by_partition[partition] = ([], [])
            columns[0].append(value)
            columns[1].append(key)
        for partition, (some_values, some_keys) in by_partition.items():
            self._sender(None, partition, txn).add_many(some_values, some_keys)

    def _rotate(self, partition: int) -> None:
        if partition == self._sticky:
            self._sticky = (partition + 1) % self._route.partition_count

    def _note_failure(self, error: MagnetarError, unawaited_count: int) -> None:
        if unawaited_count:
            self._failed_count += unawaited_count
            if self._first_failure is None:
                self._first_failure = error

    def _raise_failure(self) -> None:
        error, self._first_failure = self._first_failure, None
        count, self._failed_count = self._failed_count, 0
        if error is not None:
            raised = copy_error(error)
            raised.add_note(f"{count} messages to {self.topic} failed since the last flush")
            raise raised


def _checked_transaction(txn: object) -> Transaction | None:
    """Check that a caller gave a transaction.

    Raises:
        InvalidArgument: it is something else.
    """
    if txn is None or isinstance(txn, Transaction):
        return txn
    raise refusal("txn", txn, "a Transaction") from None
