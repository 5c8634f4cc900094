"""What every consumer does, however it comes by its partitions: take turns, hand out, acknowledge.

`Consumer` has fixed partitions of one topic, `GroupConsumer` has what its group assigns to it. Both
say here which of their receivers a message belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Self

from magnetar.enums import InitialPosition, SubscriptionType
from magnetar.errors import ClientClosed
from magnetar.link.in_flight import copy_error
from magnetar.link.runtime import Runtime
from magnetar.message import Message, MessageColumns
from magnetar.messaging.dead_letters import DeadLetters
from magnetar.messaging.interval_set import IntervalSet, Range
from magnetar.messaging.partition_receiver import PartitionReceiver
from magnetar.messaging.seeking import seek_command
from magnetar.transactions.transaction import Transaction
from magnetar_core.errors import IllegalGeneration, InvalidArgument, MagnetarError
from magnetar_core.ids import MessageId

Acknowledged = Message | MessageId
Place = tuple[PartitionReceiver, int, int]


class ConsumerBase:
    """Receives from the receivers in `_order`, and acknowledges at those that subclasses name."""

    def __init__(
        self,
        runtime: Runtime,
        subscription: str,
        subscription_type: SubscriptionType,
        dead_letters: DeadLetters | None,
    ) -> None:
        self.subscription = subscription
        self._runtime = runtime
        self._type = subscription_type
        self._dead_letters = dead_letters
        self._closed = False
        self._changed = asyncio.Event()
        # Whose turn it is: partitions take turns, a batch each.
        self._turn = 0
        self._order: list[PartitionReceiver] = []

    @property
    def runtime(self) -> Runtime:
        """The client's, for what is built on top of this consumer."""
        return self._runtime

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message.

        Raises:
            TimeoutError: none came in time.
            ClientClosed: the consumer is closed.
            MagnetarError: the subscription or topic is gone, or a batch is damaged.
        """
        self._receive_begins()
        try:
            async with asyncio.timeout(timeout_s):
                columns = await self._next(1)
        finally:
            self._receive_ends()
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
        self._receive_begins()
        try:
            async with asyncio.timeout(timeout_s):
                first = await self._next(max_messages)
        except TimeoutError:
            return []
        finally:
            self._receive_ends()
        return [first, *self.take_ready(max_messages - len(first))]

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
            IllegalGeneration: of a group: the partition was given away since. The transaction, if
                there is one, has failed; drop the message.
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
        by_receiver = self._by_receiver(messages, txn)
        if txn is not None:
            await self._ack_in_transaction(by_receiver, txn)
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
            IllegalGeneration: as ack.
        """
        if isinstance(messages, Message | MessageId):
            messages = (messages,)
        for receiver, ranges in self._by_receiver(messages, txn):
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

        Raises: as ack; InvalidArgument for SHARED and KEY_SHARED: other consumers hold messages
            in between.
        """
        if self._type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            raise InvalidArgument("a shared subscription has no cumulative acks")
        receiver, first, last = self._place_for(message, txn)
        if txn is None:
            await receiver.ack_up_to(last)
            return
        held = IntervalSet(receiver.unacked.held_up_to(last))
        held.add(first, last)
        await asyncio.shield(receiver.ack_in_transaction(list(held), txn, cumulative=True))
        await txn.joined()

    async def flush_acks(self) -> None:
        """Wait until all plain acks are confirmed.

        Raises:
            MagnetarError: the first failure that nobody waited for.
        """
        for receiver in list(self._order):
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

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # What subclasses say.

    def _receiver_of(self, message: Acknowledged) -> PartitionReceiver:
        """Raises: InvalidArgument, IllegalGeneration: this consumer does not have its partition."""
        raise NotImplementedError

    def _require_usable(self) -> None:
        """Raises: ClientClosed, or what ended this consumer."""
        if self._closed:
            raise ClientClosed("the consumer is closed")

    def _receive_begins(self) -> None:
        """The application wants more."""

    def _receive_ends(self) -> None:
        """It got something, or gave up."""

    def _raise_troubles(self) -> None:
        """Raises: what went wrong besides, once."""

    # For them.

    async def _seek(
        self,
        receiver: PartitionReceiver,
        offset: int | None,
        message_id: MessageId | None,
        append_time_ms: int | None,
        position: InitialPosition | str | None,
    ) -> int:
        """Move the cursor of one partition; returns its new offset."""
        command = seek_command(
            receiver.name, offset, message_id, append_time_ms, position, receiver.member
        )
        resets = receiver.resets
        reply = await receiver.connection.request(command)
        # The broker tells its consumers too; on a link that broke, it could not.
        if receiver.resets == resets:
            receiver.reset()
        return reply.offset

    async def _ack_in_transaction(
        self, by_receiver: list[tuple[PartitionReceiver, list[Range]]], txn: Transaction
    ) -> None:
        receipts = [receiver.ack_in_transaction(ranges, txn) for receiver, ranges in by_receiver]
        for receipt in receipts:
            await asyncio.shield(receipt)
        await txn.joined()

    async def _next(self, count_max: int) -> MessageColumns:
        while True:
            self._raise_troubles()
            columns = self._take(count_max)
            if columns is not None:
                return columns
            self._changed.clear()
            await self._changed.wait()

    def take_ready(self, count_max: int) -> list[MessageColumns]:
        """What is there now, no more than so many messages; belongs to the last receive."""
        pieces: list[MessageColumns] = []
        while count_max > 0:
            try:
                columns = self._take(count_max)
            except MagnetarError:
                break  # It comes up again, or was asked for again.
            if columns is None:
                break
            pieces.append(columns)
            count_max -= len(columns)
        return pieces

    def _take(self, count_max: int) -> MessageColumns | None:
        """From the partition whose turn it is, or the next that has something."""
        self._require_usable()
        order = self._order
        for step in range(len(order)):
            at = (self._turn + step) % len(order)
            receiver = order[at]
            while receiver.queue.ready:
                columns = receiver.queue.take(count_max)
                if self._dead_letters is not None and self._dead_letters.concerns(columns):
                    self._give_up(receiver, columns, self._dead_letters)
                    continue
                # It keeps its turn until its batch is used up.
                batch_is_used_up = not receiver.queue.ready or (
                    receiver.queue.ready[0].batch is not columns.batch
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

    def _place(self, message: Acknowledged) -> Place:
        """Whose it is, and its first and last offset."""
        self._require_usable()
        message_id = message.message_id if isinstance(message, Message) else message
        receiver = self._receiver_of(message)
        receiver.check_ledger(message_id.ledger_id)
        offset = message_id.offset
        if isinstance(message, Message):
            return receiver, offset, message.last_offset
        return receiver, offset, receiver.queue.last_offset_of(offset)

    def _place_for(self, message: Acknowledged, txn: Transaction | None) -> Place:
        """As _place. Where the partition was given away, the transaction has failed."""
        try:
            return self._place(message)
        except IllegalGeneration as error:
            self._fail(txn, error)
            raise

    def _by_receiver(
        self, messages: Iterable[Acknowledged] | MessageColumns, txn: Transaction | None
    ) -> list[tuple[PartitionReceiver, list[Range]]]:
        self._require_usable()
        if isinstance(messages, MessageColumns):
            receiver, _, _ = self._place_for(Message(messages.batch, messages.start), txn)
            return [(receiver, [(messages.first_offset, messages.last_offset)])]
        found: dict[PartitionReceiver, IntervalSet] = {}
        for message in messages:
            receiver, first, last = self._place_for(message, txn)
            ranges = found.get(receiver)
            if ranges is None:
                ranges = found[receiver] = IntervalSet()
            ranges.add(first, last)
        return [(receiver, list(ranges)) for receiver, ranges in found.items()]

    @staticmethod
    def _fail(txn: Transaction | None, error: MagnetarError) -> None:
        """What was to be acknowledged cannot be: what was sent for it must not count either.

        Raises: InvalidTxnState, when the transaction took nothing more in any case.
        """
        if txn is not None:
            txn.require_open()
            txn.doom(copy_error(error))
