"""Receives and acknowledges a subscription's messages, from some or all of a topic's partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from magnetar.cluster import TopicRoute
from magnetar.config import ConsumerConfig
from magnetar.dead_letters import DeadLetters
from magnetar.errors import ClientClosed
from magnetar.interval_set import IntervalSet, Range
from magnetar.message import Message, MessageColumns
from magnetar.model import InitialPosition, SubscriptionType
from magnetar.partition_receiver import PartitionReceiver
from magnetar.pipeline import copy_error
from magnetar.runtime import Runtime
from magnetar.seeking import seek_command
from magnetar.transaction import Transaction
from magnetar_core.errors import InvalidArgument, MagnetarError
from magnetar_core.ids import MessageId

Acknowledged = Message | MessageId


class Consumer:
    """Made by `Client.subscribe`.

    Messages that were received and neither acknowledged nor given back stay with this consumer
    until it closes or its link breaks. Those acknowledged in a transaction that aborts come again.
    """

    def __init__(
        self,
        runtime: Runtime,
        route: TopicRoute,
        subscription: str,
        partitions: Sequence[int],
        subscription_type: SubscriptionType,
        initial_position: InitialPosition,
        consumer_name: str,
        config: ConsumerConfig,
        on_close: Callable[[Consumer], None],
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self.consumer_id = runtime.new_id()
        self.subscription = subscription
        self._runtime = runtime
        self._route = route
        self._type = subscription_type
        self._on_close = on_close
        self._dead_letters = dead_letters
        self._closed = False
        self._changed = asyncio.Event()
        # Whose turn it is: partitions take turns, a batch each.
        self._turn = 0
        self._receivers: dict[int, PartitionReceiver] = {
            partition: PartitionReceiver(
                runtime,
                route,
                partition,
                subscription,
                self.consumer_id,
                consumer_name or f"consumer-{self.consumer_id:016x}",
                subscription_type,
                initial_position,
                config,
                self._changed.set,
            )
            for partition in partitions
        }
        self._order = list(self._receivers.values())

    async def started(self) -> None:
        """Wait until every partition is attached. Raises: what a broker refuses it with."""
        for receiver in self._order:
            await receiver.started()

    @property
    def topic(self) -> str:
        return self._route.topic

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(self._receivers)

    @property
    def active_partitions(self) -> tuple[int, ...]:
        """FAILOVER: where this consumer is the one that gets messages."""
        return tuple(one for one, receiver in self._receivers.items() if receiver.active)

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message.

        Raises:
            TimeoutError: none came in time.
            ClientClosed: the consumer is closed.
            MagnetarError: the subscription or topic is gone, or a batch is damaged.
        """
        async with asyncio.timeout(timeout_s):
            columns = await self._next(1)
        return Message(columns.batch, columns.start)

    async def receive_batch(
        self, max_messages: int = 1_000, timeout_s: float | None = None
    ) -> list[Message]:
        """The messages that are there, waiting only for the first; none when time runs out.

        Raises: as receive, without TimeoutError.
        """
        messages: list[Message] = []
        for columns in await self.receive_columns(max_messages, timeout_s):
            messages += columns
        return messages

    async def receive_columns(
        self, max_messages: int = 10_000, timeout_s: float | None = None
    ) -> list[MessageColumns]:
        """As receive_batch, without an object per message: for bulk work.

        Raises: as receive, without TimeoutError.
        """
        if max_messages < 1:
            raise InvalidArgument("max_messages must be above 0")
        try:
            async with asyncio.timeout(timeout_s):
                pieces = [await self._next(max_messages)]
        except TimeoutError:
            return []
        count = len(pieces[0])
        while count < max_messages:
            try:
                columns = self._take(max_messages - count)
            except MagnetarError:
                break  # It comes up again, or was asked for again.
            if columns is None:
                break
            pieces.append(columns)
            count += len(columns)
        return pieces

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def ack(self, message: Acknowledged, *, txn: Transaction | None = None) -> None:
        """Acknowledge a message, and wait for the broker's confirmation.

        Args:
            txn: the message is consumed if this transaction commits, and comes again if not.
        Raises:
            TransactionConflict: another transaction holds it, or it is acknowledged. The
                transaction has failed; abort it.
            InvalidTxnState: the transaction has ended, or failed. No effect.
            OutcomeUnknown: no answer in time. Acknowledging again is harmless.
        """
        await self.ack_many((message,), txn=txn)

    async def ack_many(
        self,
        messages: Iterable[Acknowledged] | MessageColumns,
        *,
        txn: Transaction | None = None,
    ) -> None:
        """Acknowledge many, one command for each partition. Raises: as ack."""
        by_receiver = self._by_receiver(messages)
        if txn is not None:
            receipts = [
                receiver.ack_in_transaction(ranges, txn) for receiver, ranges in by_receiver
            ]
            for receipt in receipts:
                await asyncio.shield(receipt)
            await txn.joined()
        elif len(by_receiver) == 1:
            receiver, ranges = by_receiver[0]
            await receiver.ack(ranges)
        else:
            await asyncio.gather(*(receiver.ack(ranges) for receiver, ranges in by_receiver))

    def ack_nowait(
        self,
        messages: Acknowledged | Iterable[Acknowledged] | MessageColumns,
        *,
        txn: Transaction | None = None,
    ) -> None:
        """Acknowledge soon. What becomes of it, flush_acks() or the commit tells.

        Raises:
            InvalidTxnState: the transaction has ended, or failed. No effect.
        """
        if isinstance(messages, Message | MessageId):
            messages = (messages,)
        for receiver, ranges in self._by_receiver(messages):
            if txn is not None:
                receiver.ack_in_transaction(ranges, txn)
            else:
                receiver.ack_nowait(ranges)

    async def ack_cumulative(
        self, message: Acknowledged, *, txn: Transaction | None = None
    ) -> None:
        """Acknowledge a message and all before it in its partition.

        In a transaction: all before it that this consumer was given and has not acknowledged.
        Either way that includes messages whose `nack` still waits for its delay.

        Raises: as ack; InvalidArgument for SHARED, whose consumers hold each other's messages.
        """
        if self._type is SubscriptionType.SHARED:
            raise InvalidArgument("a shared subscription has no cumulative acks")
        receiver, first, last = self._place(message)
        if txn is None:
            await receiver.ack_up_to(last)
            return
        held = IntervalSet(receiver.holdings.held_up_to(last))
        held.add(first, last)
        await asyncio.shield(receiver.ack_in_transaction(list(held), txn, cumulative=True))
        await txn.joined()

    async def flush_acks(self) -> None:
        """Wait until all plain acks are confirmed.

        Raises:
            MagnetarError: the first failure that nobody waited for.
        """
        for receiver in self._order:
            await receiver.acks.flush()

    def nack(self, message: Acknowledged, *, delay_s: float | None = None) -> None:
        """Give a message back, to be delivered again later.

        Until then it stays with this consumer: if that closes, it is delivered at once.

        Args:
            delay_s: seconds; otherwise what ConsumerConfig says, growing with each time.
        """
        receiver, first, last = self._place(message)
        redelivery_count = message.redelivery_count if isinstance(message, Message) else 0
        delay_ms = None if delay_s is None else delay_s * 1_000
        receiver.nack([(first, last)], redelivery_count, delay_ms)

    def nack_many(self, messages: Iterable[Message], *, delay_s: float | None = None) -> None:
        for message in messages:
            self.nack(message, delay_s=delay_s)

    async def seek(
        self,
        *,
        offset: int | None = None,
        message_id: MessageId | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | str | None = None,
        partition: int | None = None,
    ) -> dict[int, int]:
        """Move the subscription's cursor, for all of its consumers. Name exactly one target.

        What was received before is void: it is delivered again, or never, as the cursor says.

        Args:
            append_time_ms: milliseconds since the Unix epoch; the first message not older.
            position: "earliest" or "latest".
            partition: only there; all partitions of this consumer otherwise.
        Returns: the new offset of each partition.
        Raises:
            ResourceInUse: acks are pending in transactions. No effect.
        """
        if message_id is not None and partition is None:
            partition = message_id.partition
        receivers = self._order if partition is None else [self._receiver(partition)]
        moved: dict[int, int] = {}
        for receiver in receivers:
            command = seek_command(receiver.name, offset, message_id, append_time_ms, position)
            resets = receiver.resets
            reply = await self._route.connection(receiver.name.partition).request(command)
            # The broker tells its consumers too; on a link that broke, it could not.
            if receiver.resets == resets:
                receiver.reset()
            moved[receiver.name.partition] = reply.offset
        return moved

    async def close(self) -> None:
        """Confirm acks and leave the subscription."""
        if self._closed:
            return
        self._closed = True
        self._on_close(self)
        if self._dead_letters is not None:
            await self._dead_letters.close()
        await asyncio.gather(*(receiver.close() for receiver in self._order))
        self._changed.set()

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _next(self, count_max: int) -> MessageColumns:
        while True:
            columns = self._take(count_max)
            if columns is not None:
                return columns
            self._changed.clear()
            await self._changed.wait()

    def _take(self, count_max: int) -> MessageColumns | None:
        """From the partition whose turn it is, or the next that has something."""
        if self._closed:
            raise ClientClosed("the consumer is closed")
        order = self._order
        for step in range(len(order)):
            at = (self._turn + step) % len(order)
            receiver = order[at]
            while receiver.ready:
                columns = receiver.take(count_max)
                if self._dead_letters is not None and self._dead_letters.concerns(columns):
                    self._give_up(receiver, columns, self._dead_letters)
                    continue
                # It keeps its turn until its batch is used up.
                batch_is_used_up = not receiver.ready or (
                    receiver.ready[0].batch is not columns.batch
                )
                self._turn = at + 1 if batch_is_used_up else at
                return columns
        for receiver in order:
            if receiver.failure is not None:
                raise copy_error(receiver.failure)
        return None

    def _give_up(
        self, receiver: PartitionReceiver, columns: MessageColumns, dead_letters: DeadLetters
    ) -> None:
        ranges = [(columns.first_offset, columns.last_offset)]

        async def acknowledge(txn: Transaction) -> None:
            await asyncio.shield(receiver.ack_in_transaction(ranges, txn))

        dead_letters.move(
            columns, acknowledge, lambda: receiver.nack(ranges, columns.redelivery_count)
        )

    def _receiver(self, partition: int) -> PartitionReceiver:
        receiver = self._receivers.get(partition)
        if receiver is None:
            raise InvalidArgument(f"this consumer does not have partition {partition}")
        return receiver

    def _place(self, message: Acknowledged) -> tuple[PartitionReceiver, int, int]:
        """Whose it is, and its first and last offset."""
        if self._closed:
            raise ClientClosed("the consumer is closed")
        message_id = message.message_id if isinstance(message, Message) else message
        receiver = self._receiver(message_id.partition)
        receiver.check_ledger(message_id.ledger_id)
        offset = message_id.offset
        if isinstance(message, Message):
            return receiver, offset, message.last_offset
        return receiver, offset, receiver.last_offset_of(offset)

    def _by_receiver(
        self, messages: Iterable[Acknowledged] | MessageColumns
    ) -> list[tuple[PartitionReceiver, list[Range]]]:
        if self._closed:
            raise ClientClosed("the consumer is closed")
        if isinstance(messages, MessageColumns):
            receiver = self._receiver(messages.partition)
            receiver.check_ledger(messages.ledger_id)
            return [(receiver, [(messages.first_offset, messages.last_offset)])]
        by_partition: dict[int, IntervalSet] = {}
        for message in messages:
            receiver, first, last = self._place(message)
            found = by_partition.get(receiver.name.partition)
            if found is None:
                found = by_partition[receiver.name.partition] = IntervalSet()
            found.add(first, last)
        return [
            (self._receivers[partition], list(found)) for partition, found in by_partition.items()
        ]
