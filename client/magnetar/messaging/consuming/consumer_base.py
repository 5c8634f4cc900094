"""The common part of all consumers, as users have it: messages are received and acknowledged.

`Consumer` has fixed partitions of a topic. `GroupConsumer` has the partitions that its group
assigns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Self

from magnetar.arguments import INT64_MAX, checked, integer
from magnetar.errors import ClientClosed
from magnetar.habits import KnowsHabits
from magnetar.message import Message, MessageColumns
from magnetar.messaging.consuming.consumer_work import Acknowledged, ConsumerWork
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_block import NOT_GIVEN, NotGiven, require_outside


class ConsumerBase(KnowsHabits):
    """Receives messages one by one or in batches, and acknowledges them."""

    def __init__(self, work: ConsumerWork) -> None:
        """A consumer that is attached.

        Args:
            work: what the other modules of the SDK use in its place.
        """
        self.work = work
        self.consumer_id = work.consumer_id
        self.subscription = work.subscription
        # It closes when the program drops it.
        self._client: object = None
        # For what is done for each message.
        self._lane = work.lane
        self._open_blocks = work.runtime.open_blocks

    async def receive(self, timeout_s: float | None = None) -> Message:
        """Wait for the next message and return it.

        Args:
            timeout_s: how many seconds to wait; None: without limit.
        Raises:
            TimeoutError: no message came in time.
            ClientClosed: the consumer is closed.
            MagnetarError: the subscription or topic was deleted, or a batch is damaged.
        """
        lent = self._lane.lent
        for place in lent.places:
            return Message(lent.batch, place)
        columns = await self.work.next(1, timeout_s)
        self.work.lend(columns)
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
        max_messages = integer("max_messages", max_messages, 1, INT64_MAX)
        try:
            first = await self.work.next(max_messages, timeout_s)
        except TimeoutError:
            return []
        return [first, *self.work.take_ready(max_messages - len(first))]

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        # As receive, which would be a coroutine more for each message.
        lent = self._lane.lent
        for place in lent.places:
            return Message(lent.batch, place)
        try:
            return await self.receive()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def ack(
        self, message: Acknowledged, *, txn: Transaction | NotGiven | None = NOT_GIVEN
    ) -> None:
        """Acknowledge a message, and wait for the broker's confirmation.

        Args:
            message: the message, or its id.
            txn: the message counts as consumed if this transaction commits, and comes again if it
                aborts. None: it counts at once. `txn` must be given inside of the block of a
                transaction of this client.
        Raises:
            TransactionConflict: another transaction has acknowledged the message, or it is
                acknowledged already. The transaction has failed; abort it.
            InvalidTxnState: the transaction has ended, or failed. No effect.
            InvalidArgument: `txn` is not given, inside of the block of a transaction, which has
                failed now. No effect.
            IllegalGeneration: the group has given the partition to another member. The transaction,
                if there is one, has failed; drop the message.
            OutcomeUnknown: no answer came in time. Acknowledging again is harmless.
        """
        await self.work.ack_many((message,), txn=txn)

    async def ack_many(
        self,
        messages: Iterable[Acknowledged] | MessageColumns,
        *,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> None:
        """Acknowledge many messages, with a single command for each partition.

        Args:
            messages: the messages, or their ids.
            txn: as for ack.
        Raises:
            MagnetarError: as ack.
        """
        await self.work.ack_many(messages, txn=txn)

    def ack_nowait(
        self,
        messages: Acknowledged | Iterable[Acknowledged] | MessageColumns,
        *,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
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
        work = self.work
        # As given(), which would be a call more for each message.
        if txn is NOT_GIVEN:
            if self._open_blocks:
                require_outside(work.runtime, "ack")
            txn = None
        if txn is not None or not isinstance(messages, Message):
            work.ack_nowait(messages, txn)
            return
        run = self._lane.run
        if messages.batch is run.batch and messages.place == run.next_place < run.stop_place:
            run.next_place += 1
        else:
            receiver, _, _ = work.place(messages)
            self._lane.run = receiver.ack_one_nowait(messages)

    async def ack_cumulative(
        self, message: Acknowledged, *, txn: Transaction | NotGiven | None = NOT_GIVEN
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
        await self.work.ack_cumulative(message, txn=txn)

    async def flush_acks(self) -> None:
        """Wait until all acks outside of transactions are confirmed.

        Raises:
            MagnetarError: an ack by `ack_nowait` has failed. This is the first such failure.
        """
        await self.work.flush_acks()

    @checked
    def nack(self, message: Acknowledged, *, delay_s: float | None = None) -> None:
        """Give a message back, so that the broker delivers it again later.

        Until then it stays with this consumer. If the consumer closes, it is delivered at once.

        Args:
            message: the message, or its id.
            delay_s: after how many seconds to deliver it again. The default is `nack_delay_ms` of
                ConsumerConfig, which doubles with each redelivery.
        """
        self.work.nack(message, delay_s)

    @checked
    def nack_many(self, messages: Iterable[Message], *, delay_s: float | None = None) -> None:
        """Give several messages back, as `nack` does for a single message."""
        for message in messages:
            self.work.nack(message, delay_s)

    async def close(self) -> None:
        """Confirm pending acks and give up the partitions."""
        await self.work.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
