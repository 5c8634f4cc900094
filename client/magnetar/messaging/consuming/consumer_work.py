"""The work of all consumers: what is received is acknowledged, or given back.

The other modules of the SDK call it in place of the consumer. A subclass says which of its
receivers a message belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from magnetar.arguments import refusal
from magnetar.enums import InitialPosition, SubscriptionType
from magnetar.message import Message, MessageColumns, ReceivedBatch
from magnetar.messaging.consuming.message_source import MessageSource
from magnetar.messaging.consuming.seeking import seek_command
from magnetar.messaging.interval_set import IntervalSet, Range
from magnetar.messaging.receiving.partition_receiver import PartitionReceiver
from magnetar.transactions.failed_call import FailedCall
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_block import NOT_GIVEN, NotGiven, given
from magnetar.transactions.transaction_work import TransactionWork
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import MessageId

Acknowledged = Message | MessageId
Place = tuple[PartitionReceiver, int, int]


class ConsumerWork(MessageSource):
    """Acknowledges what it receives at the receiver that a subclass names."""

    async def ack_many(
        self,
        messages: Iterable[Acknowledged] | MessageColumns,
        *,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> None:
        """Acknowledge many messages; see ConsumerBase.ack_many."""
        txn = given(txn, self._runtime, "ack")
        if txn is not None:
            try:
                txn.work.require_open()
                await self._ack_in_transaction(self._by_receiver(messages), txn.work)
            except BaseException as error:
                self._fail(txn, error, messages)
                raise
            return
        by_receiver = self._by_receiver(messages)
        if len(by_receiver) == 1:
            receiver, ranges = by_receiver[0]
            await receiver.ack(ranges)
        else:
            await asyncio.gather(*(receiver.ack(ranges) for receiver, ranges in by_receiver))

    def ack_nowait(
        self,
        messages: Acknowledged | Iterable[Acknowledged] | MessageColumns,
        txn: Transaction | None,
    ) -> None:
        """Acknowledge messages, but for a Message without a transaction, which has the fast lane.

        See ConsumerBase.ack_nowait.
        """
        if isinstance(messages, Message | MessageId):
            messages = (messages,)
        if txn is None:
            for receiver, ranges in self._by_receiver(messages):
                receiver.ack_nowait(ranges)
            return
        try:
            txn.work.require_open()
            for receiver, ranges in self._by_receiver(messages):
                receiver.ack_in_transaction(ranges, txn.work)
        except BaseException as error:
            self._fail(txn, error, messages)
            raise

    async def ack_cumulative(
        self, message: Acknowledged, *, txn: Transaction | NotGiven | None = NOT_GIVEN
    ) -> None:
        """Acknowledge up to a message; see ConsumerBase.ack_cumulative."""
        txn = given(txn, self._runtime, "ack")
        if txn is None:
            receiver, _, last = self._place_cumulative(message)
            await receiver.ack_up_to(last)
            return
        try:
            txn.work.require_open()
            receiver, first, last = self._place_cumulative(message)
            held = IntervalSet(receiver.unacked.held_up_to(last))
            held.add(first, last)
            receipt = receiver.ack_in_transaction(list(held), txn.work, cumulative=True).receipt
            txn.work.join_soon()
            await asyncio.shield(receipt)
            await txn.work.joined()
        except BaseException as error:
            self._fail(txn, error, message)
            raise

    async def flush_acks(self) -> None:
        """Wait until acks are confirmed; see ConsumerBase.flush_acks."""
        self._runtime.require_loop()
        for receiver in list(self._order):
            await receiver.acks.flush()

    def nack(self, message: Acknowledged, delay_s: float | None) -> None:
        """Give a message back; see ConsumerBase.nack."""
        delay_ms = None if delay_s is None else delay_s * 1_000
        receiver, first, last = self.place(message)
        receiver.nack([(first, last)], delay_ms)

    def place(self, message: Acknowledged) -> Place:
        """Return the receiver of a message, and its first and last offset."""
        self._require_usable()
        _check_acknowledged(message)
        receiver = self._receiver_of(message)
        offset = message.offset
        if isinstance(message, Message):
            receiver.check_ledger(message.batch.ledger_id)
            return receiver, offset, message.last_offset
        receiver.check_ledger(message.ledger_id)
        return receiver, offset, receiver.queue.last_offset_of(offset)

    async def close(self) -> None:
        """Confirm pending acks and give up the partitions."""
        raise NotImplementedError

    # Subclasses implement or extend these.

    def _receiver_of(self, message: Acknowledged) -> PartitionReceiver:
        """Return the receiver of the message's partition.

        Raises:
            InvalidArgument: this consumer does not have the partition.
            IllegalGeneration: the group has given the partition to another member.
        """
        raise NotImplementedError

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
        self, by_receiver: list[tuple[PartitionReceiver, list[Range]]], txn: TransactionWork
    ) -> None:
        receipts = [
            receiver.ack_in_transaction(ranges, txn).receipt for receiver, ranges in by_receiver
        ]
        txn.join_soon()
        for receipt in receipts:
            await asyncio.shield(receipt)
        await txn.joined()

    def _place_cumulative(self, message: Acknowledged) -> Place:
        if self._type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            raise InvalidArgument("a shared subscription has no cumulative acks")
        return self.place(message)

    def _by_receiver(
        self, messages: Iterable[Acknowledged] | MessageColumns
    ) -> list[tuple[PartitionReceiver, list[Range]]]:
        if isinstance(messages, tuple | list) and len(messages) == 1:
            receiver, first, last = self.place(messages[0])
            return [(receiver, [(first, last)])]
        self._require_usable()
        if not isinstance(messages, Iterable):
            raise refusal("messages", messages, "messages or their ids, or MessageColumns")
        if isinstance(messages, MessageColumns):
            receiver, _, _ = self.place(Message(messages.batch, messages.start))
            return [(receiver, [(messages.first_offset, messages.last_offset)])]
        found: dict[PartitionReceiver, IntervalSet] = {}
        for message, count in _consecutive(messages):
            receiver, first, last = self.place(message)
            found.setdefault(receiver, IntervalSet()).add(first, last + count - 1)
        return [(receiver, list(ranges)) for receiver, ranges in found.items()]

    def _fail(self, txn: object, error: BaseException, messages: object = None) -> None:
        """Make a transaction fail, since an ack in it did not succeed.

        What was sent for the messages must not count either.

        Args:
            messages: those that were to be acknowledged.
        """
        if not isinstance(txn, Transaction):
            raise refusal("txn", txn, "a Transaction") from None
        if isinstance(messages, Sequence) and not isinstance(messages, MessageId):
            messages = messages[0] if messages else None
        topic, partition = "", None
        if isinstance(messages, Message | MessageColumns):
            topic, partition = messages.topic, messages.partition
        elif isinstance(messages, MessageId):
            partition = messages.partition
        txn.work.fail(error, FailedCall(topic, partition, self.subscription))


def _check_acknowledged(message: object) -> None:
    if not isinstance(message, Message | MessageId):
        raise refusal("message", message, "a Message or a MessageId")


def _consecutive(messages: Iterable[Acknowledged]) -> Iterator[tuple[Acknowledged, int]]:
    """Divide messages into pieces that follow each other in a batch.

    Whatever is checked of the first message of a piece holds for the others.

    Yields:
        The first message of each piece, and how many there are.
    """
    first: Acknowledged | None = None
    batch: ReceivedBatch | None = None
    start = next_place = 0
    for message in messages:
        if isinstance(message, Message):
            if message.batch is batch and message.place == next_place:
                next_place += 1
                continue
            if first is not None:
                yield first, next_place - start
            first, batch, start = message, message.batch, message.place
            next_place = start + 1
        else:
            _check_acknowledged(message)
            if first is not None:
                yield first, next_place - start
            first, batch, start, next_place = message, None, 0, 1
    if first is not None:
        yield first, next_place - start
