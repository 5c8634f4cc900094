"""The work of a Producer: it chooses the partitions of messages, and sends to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from magnetar.arguments import refusal
from magnetar.column_batch import ColumnBatch
from magnetar.config import ProducerConfig
from magnetar.errors import ClientClosed
from magnetar.link.runtime import Runtime
from magnetar.link.topic_route import TopicRoute
from magnetar.link.unanswered import copy_error
from magnetar.messaging.sending.backpressure import PendingBudget
from magnetar.messaging.sending.batching import partition_of_key
from magnetar.messaging.sending.message_arguments import Checked
from magnetar.messaging.sending.partition_sender import PartitionSender
from magnetar.messaging.sending.plain_sender import PlainSender
from magnetar.messaging.sending.transaction_sender import TransactionSender
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_work import TransactionWork
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.errors import MagnetarError, OutcomeUnknown
from magnetar_core.ids import MessageId


class ProducerWork:
    """Chooses the partition of each message, and sends to the brokers of the partitions.

    Attributes:
        producer_id: the producer's number at brokers.
        topic: the topic's name.
        runtime: the client's.
        config: the producer's settings.
        budget: of the messages that all producers of the client may have pending.
        is_closed: whether sends are refused.
        plain_senders: those that send outside of transactions, by the number of the partition.
        sticky_partition: the number of the partition whose batch messages without a key fill now.
    """

    def __init__(
        self,
        runtime: Runtime,
        route: TopicRoute,
        config: ProducerConfig,
        budget: PendingBudget,
        *,
        begin: Callable[[], Awaitable[Transaction]],
        on_close: Callable[[ProducerWork], None],
    ) -> None:
        """The work of a producer that has sent nothing yet.

        Args:
            begin: begins a transaction, for a message too large for a batch.
        """
        self.producer_id = runtime.new_id()
        self.topic = route.topic
        self._route = route
        self.runtime = runtime
        self.config = config
        self.budget = budget
        self._begin = begin
        self._on_close = on_close
        self.is_closed = False
        self.plain_senders = [
            PlainSender(self, route, partition) for partition in range(route.partition_count)
        ]
        # By the transaction's number and the partition.
        self._transactional: dict[tuple[int, int], TransactionSender] = {}
        # How many partitions count for the keys of transactions in which this producer had sent
        # before the topic got more: by the transaction's number. A key stays where it is in them.
        self._counts_before: dict[int, int] = {}
        self._stop_watching = route.when_grown(self._grow)
        self.sticky_partition = runtime.random.randrange(route.partition_count)
        self._first_failure: MagnetarError | None = None
        self._failed_count = 0

    @property
    def partition_count(self) -> int:
        """The number of the topic's partitions, as far as this producer knows."""
        return len(self.plain_senders)

    async def send(
        self, message: Checked, partition: int | None, txn: Transaction | None
    ) -> MessageId | TxnSend:
        """Send a message, in parts if it is too large for a batch; see Producer.send."""
        value, key, properties, event_time_ms = message
        sender = self.sender(key, partition, txn)
        if txn is None and sender.needs_parts(value, key, properties):
            async with await self._begin() as own:
                return await self.send(message, sender.name.partition, own)
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

    def sender(
        self, key: bytes | None, partition: int | None, txn: Transaction | None
    ) -> PartitionSender:
        """Return the sender of a message's partition.

        Args:
            key: the message's.
            partition: the partition's number; None: the key decides.
            txn: the transaction, in which the producer enrolls if it has not.
        Raises:
            ClientClosed: the producer is closed.
            InvalidTxnState: the transaction has ended, or failed.
            InvalidArgument: the transaction belongs to another client.
        """
        if self.is_closed:
            self.runtime.require_loop()
            raise ClientClosed("the producer is closed")
        if partition is None:
            if key is None or len(self.plain_senders) == 1:
                partition = self.sticky_partition
            else:
                # The usual way, without a call more for each message.
                count = self._count_for(txn) if self._counts_before else len(self.plain_senders)
                partition = partition_of_key(key, count)
        if txn is None:
            return self.plain_senders[partition]
        work = txn.work
        work.require_open()
        sender = self._transactional.get((work.number, partition))
        return self._enroll(work, partition) if sender is None else sender

    async def send_many(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        partition: int | None,
        txn: Transaction | None,
    ) -> None:
        """Enqueue messages of which each fits a batch; see Producer.send_many."""
        step = self.config.batch_messages_max
        for start in range(0, len(values), step):
            if self.budget.full:
                await self.budget.room()
            some = values[start : start + step]
            if keys is None or len(self.plain_senders) == 1 or partition is not None:
                sender = self.sender(None, partition, txn)
                sender.add_many(some, None if keys is None else keys[start : start + step])
            else:
                self._add_by_key(some, keys[start : start + step], txn)
            await asyncio.sleep(0)

    async def send_columns(
        self, batches: Iterable[ColumnBatch], partition: int | None, txn: Transaction | None
    ) -> None:
        """Enqueue batches of columns; see Producer.send_columns."""
        for batch in batches:
            if not isinstance(batch, ColumnBatch):
                raise refusal("batches", batch, "an iterable of ColumnBatch")
            batch.check_sizes(self.config.message_bytes_max)
            payload = batch.encode(self.config.codec)
            if self.budget.full:
                await self.budget.room()
            sender = self.sender(None, partition, txn)
            sender.add_encoded(payload, batch.count, batch.byte_count)
            # Let it leave, and others have their turn.
            await asyncio.sleep(0)

    async def flush(self) -> None:
        """Wait until all messages are confirmed, or have failed; see Producer.flush."""
        self.runtime.require_loop()
        senders: list[PartitionSender] = [*self.plain_senders, *self._transactional.values()]
        for sender in senders:
            sender.send_collected()
        for sender in senders:
            await sender.drain()
        self._raise_failure()

    async def drain_plain(self) -> None:
        """Wait until all messages outside of transactions are confirmed, or have failed."""
        for sender in self.plain_senders:
            sender.send_collected()
        for sender in self.plain_senders:
            await sender.drain()

    def abandon(self) -> None:
        """Take nothing more: the event loop has ended."""
        self.is_closed = True
        self._stop_watching()

    @property
    def unstored_count(self) -> int:
        """Messages outside of transactions that are not confirmed, or failed since flush()."""
        return self._failed_count + sum(sender.unconfirmed_count for sender in self.plain_senders)

    async def close(self) -> None:
        """Flush, and refuse further sends; see Producer.close."""
        self.runtime.require_loop()
        if self.is_closed:
            return
        self.is_closed = True
        self._stop_watching()
        try:
            async with asyncio.timeout(self.runtime.config.close_timeout_ms / 1000):
                await self.flush()
        except TimeoutError:
            pass
        finally:
            for sender in self.plain_senders:
                sender.give_up(OutcomeUnknown("the producer was closed before the answer came"))
            self._on_close(self)
        self._raise_failure()

    def fail(self, error: MagnetarError) -> None:
        """Fail everything that is not confirmed, and refuse what comes, since the client failed."""
        self.runtime.fail_each([sender.give_up for sender in self.plain_senders], error)

    def _count_for(self, txn: Transaction | None) -> int:
        """Return the number of partitions that says where the keys of a transaction lie."""
        count = len(self.plain_senders)
        if txn is None:
            return count
        return self._counts_before.get(txn.work.number, count)

    def _grow(self) -> None:
        """Use the partitions that the topic has got."""
        before = len(self.plain_senders)
        for number, _ in self._transactional:
            self._counts_before.setdefault(number, before)
        self.plain_senders += [
            PlainSender(self, self._route, partition)
            for partition in range(before, self._route.partition_count)
        ]

    def _enroll(self, txn: TransactionWork, partition: int) -> TransactionSender:
        txn.require_client(self.runtime)
        sender = TransactionSender(self, txn, self.plain_senders[partition], self._forget)
        self._transactional[txn.number, partition] = sender
        txn.add_sender(sender)
        return sender

    def _add_by_key(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None],
        txn: Transaction | None,
    ) -> None:
        count = self._count_for(txn)
        by_partition: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
        for value, key in zip(values, keys, strict=True):
            partition = self.sticky_partition if key is None else partition_of_key(key, count)
            columns = by_partition.get(partition)
            if columns is None:
                columns = by_partition[partition] = ([], [])
            columns[0].append(value)
            columns[1].append(key)
        for partition, (some_values, some_keys) in by_partition.items():
            self.sender(None, partition, txn).add_many(some_values, some_keys)

    # What senders tell.

    def batch_closed(self, partition: int) -> None:
        """Fill a batch for the next partition."""
        if partition == self.sticky_partition:
            self.sticky_partition = (partition + 1) % self.partition_count

    def sending_failed(self, error: MagnetarError, unawaited_count: int) -> None:
        """Let flush() fail for messages outside of transactions for which no caller waits."""
        if unawaited_count:
            self._failed_count += unawaited_count
            if self._first_failure is None:
                self._first_failure = error

    def _forget(self, sender: TransactionSender) -> None:
        """Note that the transaction of a sender has ended."""
        self._transactional.pop((sender.txn.number, sender.name.partition), None)
        self._counts_before.pop(sender.txn.number, None)

    def _raise_failure(self) -> None:
        error, self._first_failure = self._first_failure, None
        count, self._failed_count = self._failed_count, 0
        if error is not None:
            raised = copy_error(error)
            raised.add_note(f"{count} messages to {self.topic} failed since the last flush")
            raise raised
