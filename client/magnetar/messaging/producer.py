"""Sends messages to a topic, plainly or inside transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from magnetar.column_batch import ColumnBatch
from magnetar.config import ProducerConfig
from magnetar.errors import ClientClosed
from magnetar.link.cluster import TopicRoute
from magnetar.link.in_flight import copy_error
from magnetar.link.runtime import Runtime
from magnetar.messaging.backpressure import PendingBudget
from magnetar.messaging.batching import Properties, partition_of_key
from magnetar.messaging.message_sizes import as_bytes
from magnetar.messaging.partition_sender import PartitionSender
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.errors import InvalidArgument, MagnetarError, OutcomeUnknown, QuotaExceeded
from magnetar_core.ids import MessageId

if TYPE_CHECKING:
    from magnetar.transactions.transaction import Transaction


class Producer:
    """Made by `Client.create_producer`.

    Messages with a key go to the partition that the key's CRC-32C names, in every client and for
    ever. The others fill one batch of one partition, then one of the next.
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
        self._runtime = runtime
        self._route = route
        self._config = config
        self._budget = budget
        self._begin = begin
        self._on_close = on_close
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
        return self._route.topic

    @property
    def partition_count(self) -> int:
        return self._route.partition_count

    async def send(
        self,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | None = None,
    ) -> MessageId | TxnSend:
        """Send a message and wait until the broker holds it durably.

        A message of a transaction gets its id only with the commit marker: the answer is then a
        TxnSend. So is it for a message that is too large for a batch, which is sent in parts, in a
        transaction of its own. Cancelling takes nothing back.

        Args:
            event_time_ms: the application's own time, milliseconds since the Unix epoch.
        Raises:
            MessageTooLarge: more than message_bytes_max. No effect.
            OutcomeUnknown: no answer in time; it may be stored.
            InvalidTxnState: the transaction has ended, or failed. No effect.
            MagnetarError: what the broker answered.
        """
        if self._budget.full:
            await self._budget.room()
        sender = self._sender(key, partition, txn)
        if txn is None and sender.needs_parts(value, key, properties):
            async with await self._begin() as own:
                return await self.send(
                    value,
                    key,
                    properties=properties,
                    event_time_ms=event_time_ms,
                    partition=sender.name.partition,
                    txn=own,
                )
        index, receipt = sender.add_awaited(value, key, properties, event_time_ms)
        if txn is not None:
            txn.begin_soon()
        first = await asyncio.shield(receipt)
        if txn is not None:
            await txn.joined()
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
        txn: Transaction | None = None,
    ) -> None:
        """Put a message into its batch. What becomes of it, flush() or the commit tells.

        Raises:
            QuotaExceeded: too much is unacknowledged. No effect; flush, or use `enqueue`.
            MessageTooLarge: it has to be sent in parts, which takes a transaction. No effect; use
                `send` or `enqueue`, or give a transaction.
        """
        if self._budget.full:
            raise QuotaExceeded(
                "too much is unacknowledged: pending_bytes_max or pending_messages_max"
            )
        self._sender(key, partition, txn).add(value, key, properties, event_time_ms)

    async def enqueue(
        self,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | None = None,
    ) -> None:
        """As send_nowait, but wait while too much is unacknowledged.

        And until a message is stored that has to be sent in parts.
        """
        if self._budget.full:
            await self._budget.room()
        sender = self._sender(key, partition, txn)
        if txn is None and sender.needs_parts(value, key, properties):
            await self.send(
                value,
                key,
                properties=properties,
                event_time_ms=event_time_ms,
                partition=sender.name.partition,
            )
            return
        sender.add(value, key, properties, event_time_ms)
        if sender.is_empty:
            # A batch is full: let it leave, and others have their turn.
            await asyncio.sleep(0)

    async def send_many(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes] | None = None,
        *,
        partition: int | None = None,
        txn: Transaction | None = None,
    ) -> None:
        """Enqueue many messages at once: the fastest way. Does not wait until they are durable.

        Raises:
            InvalidArgument: not bytes, or not as many keys as values. No effect.
            MessageTooLarge: one is too large. What went before it is enqueued.
        """
        for column in (values, keys):
            if column is not None and not set(map(type, column)) <= {bytes}:
                raise InvalidArgument("values and keys must be bytes")
        if keys is not None and len(keys) != len(values):
            raise InvalidArgument(f"{len(keys)} keys for {len(values)} values")
        if values and max(map(len, values)) > self._config.batch_bytes_max:
            # Rare, and each of them a batch or more of its own.
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

    async def send_columns(
        self,
        batches: Iterable[ColumnBatch],
        *,
        partition: int | None = None,
        txn: Transaction | None = None,
    ) -> None:
        """Enqueue batches that are laid out already. Does not wait until they are durable.

        Each is sent as it is; nothing looks at keys to choose a partition.

        Args:
            partition: of all of them; otherwise each goes to the next one.
        Raises:
            MessageTooLarge: a batch is more than the broker takes, or a message more than
                message_bytes_max. What went before it is
                enqueued.
            MagnetarError: the transaction failed before.
        """
        for batch in batches:
            if self._budget.full:
                await self._budget.room()
            sender = self._sender(None, partition, txn)
            batch.check_sizes(self._config.message_bytes_max)
            sender.add_encoded(batch.encode(self._config.codec), batch.count, batch.byte_count)
            # Let it leave, and others have their turn.
            await asyncio.sleep(0)

    async def flush(self) -> None:
        """Wait until everything sent so far is confirmed, or has failed.

        Raises:
            MagnetarError: the first failure of a plain message that no `send` call waited for,
                since the last flush. Failures inside a transaction make its commit fail instead.
        """
        senders = [*self._plain, *self._transactional.values()]
        for sender in senders:
            sender.close_batch()
        for sender in senders:
            await sender.drain()
        self._raise_failure()

    async def close(self) -> None:
        """Flush, for the configured time at most, and refuse further sends.

        Raises: as flush; OutcomeUnknown when time ran out.
        """
        if self._closed:
            return
        self._closed = True
        self._on_close(self)
        try:
            async with asyncio.timeout(self._runtime.config.close_timeout_ms / 1000):
                await self.flush()
        except TimeoutError:
            pass
        finally:
            for sender in self._plain:
                sender.give_up(OutcomeUnknown("the producer was closed before the answer came"))
        self._raise_failure()

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _sender(
        self, key: bytes | None, partition: int | None, txn: Transaction | None
    ) -> PartitionSender:
        if self._closed:
            raise ClientClosed("the producer is closed")
        if partition is None:
            if key is None or self._route.partition_count == 1:
                partition = self._sticky
            else:
                partition = partition_of_key(as_bytes(key, "a key"), self._route.partition_count)
        elif not 0 <= partition < self._route.partition_count:
            raise InvalidArgument(f"{self.topic} has no partition {partition}")
        if txn is None:
            return self._plain[partition]
        txn.require_open()
        sender = self._transactional.get((txn.number, partition))
        return self._enroll(txn, partition) if sender is None else sender

    def _enroll(self, txn: Transaction, partition: int) -> PartitionSender:
        sender = PartitionSender(
            self._runtime,
            self._config,
            self._route,
            partition,
            self.producer_id,
            self._budget,
            on_failed=lambda error, _: txn.doom(error),
            on_batch_closed=self._rotate if txn.has_begun else partial(self._outgrown, txn),
            plain=self._plain[partition],
        )
        key = (txn.number, partition)
        self._transactional[key] = sender
        txn.add_sender(sender, partial(self._transactional.pop, key, None))
        return sender

    def _outgrown(self, txn: Transaction, partition: int) -> None:
        """A transaction that waited with its beginning fills more than a batch."""
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
