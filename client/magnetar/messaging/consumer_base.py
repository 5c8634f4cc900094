"""The common part of all consumers: partitions take turns, messages are received and acknowledged.

`Consumer` has fixed partitions of a topic. `GroupConsumer` has the partitions that its group
assigns. Each of them says which of its receivers a message belongs to.
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
    """Receives from the receivers in `_order`, and acknowledges at the one a subclass names."""

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
        """The client's runtime, for code that is built on top of this consumer."""
        return self._runtime

    async def receive(self, timeout_s: float | None = None) -> Message:
        """Wait for the next message and return it.

        Args:
            timeout_s: how many seconds to wait; None: without limit.
        Raises:
            TimeoutError: no message came in time.
            ClientClosed: the consumer is closed.
            MagnetarError: the subscription or topic was deleted, or a batch is damaged.
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
        """Return the messages that have arrived. Wait only if there are none.

        Args:
            max_messages: how many messages to return at most.
            timeout_s: how many seconds to wait for the first message; None: without limit.
        Returns:
            The messages; an empty list if none came in time.
        Raises:
            ClientClosed: the consumer is closed.
            MagnetarError: as receive.
        """
        messages: list[Message] = []
        for columns in await self.receive_columns(max_messages, timeout_s):
            messages += columns
        return messages

    async def receive_columns(
        self, max_messages: int = 10_000, timeout_s: float | None = None
    ) -> list[MessageColumns]:
        """Do the same as receive_batch, without an object for each message: for bulk work.

        Args:
            max_messages: how many messages to return at most; above 0.
            timeout_s: how many seconds to wait for the first message; None: without limit.
        Raises:
            ClientClosed: the consumer is closed.
            MagnetarError: as receive.
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
            message: the message, or its id.
            txn: the message counts as consumed if this transaction commits, and comes again if it
                aborts.
        Raises:
            TransactionConflict: another transaction has acknowledged the message, or it is
                acknowledged already. The transaction has failed; abort it.
            InvalidTxnState: the transaction has ended, or failed. No effect.
            IllegalGeneration: the group has given the partition to another member. The transaction,
                if there is one, has failed; drop the message.
            OutcomeUnknown: no answer came in time. Acknowledging again is harmless.
        """
        await self.ack_many((message,), txn=txn)

    async def ack_many(
        self,
        messages: Iterable[Acknowledged] | MessageColumns,
        *,
        txn: Transaction | None = None,
    ) -> None:
        """Acknowledge many messages, with a single command for each partition.

        Args:
            messages: the messages, or their ids.
            txn: as for ack.
        Raises:
            MagnetarError: as ack.
        """
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
        """Acknowledge messages without waiting for the confirmation.

        flush_acks() raises if the ack fails; for an ack in a transaction, the commit does.

        Args:
            messages: a message or several, or their ids.
            txn: as for ack.
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
        """Acknowledge a message and all messages before it in its partition.

        In a transaction, this acknowledges the messages that this consumer has received and not
        acknowledged. In both cases it includes messages whose `nack` still waits for its delay.

        Args:
            message: the last message to acknowledge, or its id.
            txn: as for ack.
        Raises:
            InvalidArgument: the subscription is SHARED or KEY_SHARED, where other consumers have
                messages in between.
            MagnetarError: as ack.
        """
        if self._type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            raise InvalidArgument("a shared subscription has no cumulative acks")
        receiver, first, last = self._place_for(message, txn)
        if txn is None:
            await receiver.ack_up_to(last)
            return
        held = IntervalSet(receiver.unacked.held_up_to(last))
        held.add(first, last)
        receipt = receiver.ack_in_transaction(list(held), txn, cumulative=True)
        txn.join_soon()
        await asyncio.shield(receipt)
        await txn.joined()

    async def flush_acks(self) -> None:
        """Wait until all acks outside of transactions are confirmed.

        Raises:
            MagnetarError: an ack by `ack_nowait` has failed. This is the first such failure.
        """
        for receiver in list(self._order):
            await receiver.acks.flush()

    def nack(self, message: Acknowledged, *, delay_s: float | None = None) -> None:
        """Give a message back, so that the broker delivers it again later.

        Until then it stays with this consumer. If the consumer closes, it is delivered at once.

        Args:
            message: the message, or its id.
            delay_s: after how many seconds to deliver it again. The default is `nack_delay_ms` of
                ConsumerConfig, which doubles with each redelivery.
        """
        receiver, first, last = self._place(message)
        redelivery_count = message.redelivery_count if isinstance(message, Message) else 0
        delay_ms = None if delay_s is None else delay_s * 1_000
        receiver.nack([(first, last)], redelivery_count, delay_ms)

    def nack_many(self, messages: Iterable[Message], *, delay_s: float | None = None) -> None:
        """Give several messages back, as `nack` does for a single message."""
        for message in messages:
            self.nack(message, delay_s=delay_s)

    async def close(self) -> None:
        """Confirm pending acks and give up the partitions."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Subclasses implement or extend these.

    def _receiver_of(self, message: Acknowledged) -> PartitionReceiver:
        """Return the receiver of the message's partition.

        Raises:
            InvalidArgument: this consumer does not have the partition.
            IllegalGeneration: the group has given the partition to another member.
        """
        raise NotImplementedError

    def _require_usable(self) -> None:
        """Check that the consumer is open.

        Raises:
            ClientClosed: it is closed. Subclasses raise other errors that ended the consumer.
        """
        if self._closed:
            raise ClientClosed("the consumer is closed")

    def _receive_begins(self) -> None:
        """Note that the application asks for messages."""

    def _receive_ends(self) -> None:
        """Note that the application got messages, or stopped waiting."""

    def _raise_troubles(self) -> None:
        """Raise an error that happened in the background, once."""

    # Subclasses use these.

    async def _seek(
        self,
        receiver: PartitionReceiver,
        offset: int | None,
        message_id: MessageId | None,
        append_time_ms: int | None,
        position: InitialPosition | str | None,
    ) -> int:
        """Move the cursor of a partition and return its new offset."""
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
        txn.join_soon()
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
        """Return messages that have arrived, without waiting. It belongs to the last receive.

        Args:
            count_max: how many messages to return at most.
        """
        pieces: list[MessageColumns] = []
        while count_max > 0:
            try:
                columns = self._take(count_max)
            except MagnetarError:
                break  # The next receive raises it, or the batch was requested again.
            if columns is None:
                break
            pieces.append(columns)
            count_max -= len(columns)
        return pieces

    def _take(self, count_max: int) -> MessageColumns | None:
        """Take messages of the partition whose turn it is, or of the next that has messages."""
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
        """Return the receiver of a message, and its first and last offset."""
        self._require_usable()
        message_id = message.message_id if isinstance(message, Message) else message
        receiver = self._receiver_of(message)
        receiver.check_ledger(message_id.ledger_id)
        offset = message_id.offset
        if isinstance(message, Message):
            return receiver, offset, message.last_offset
        return receiver, offset, receiver.queue.last_offset_of(offset)

    def _place_for(self, message: Acknowledged, txn: Transaction | None) -> Place:
        """Do the same as _place. If the partition was given away, the transaction fails."""
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
        """Make a transaction fail, since a message in it cannot be acknowledged.

        What was sent for the message must not count either.

        Raises:
            InvalidTxnState: the transaction takes no more sends and acks in any case.
        """
        if txn is not None:
            txn.require_open()
            txn.doom(copy_error(error))
