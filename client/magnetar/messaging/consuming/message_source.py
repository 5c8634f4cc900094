"""Receiving of messages: partitions take turns, and messages come in batches or one by one."""

from __future__ import annotations

import asyncio

from magnetar.arguments import number
from magnetar.enums import SubscriptionType
from magnetar.errors import ClientClosed
from magnetar.link.runtime import Runtime
from magnetar.link.unanswered import copy_error
from magnetar.message import MessageColumns
from magnetar.messaging.consuming.dead_letters import DeadLetters
from magnetar.messaging.receiving.fast_lane import NOTHING_LENT, FastLane
from magnetar.messaging.receiving.partition_receiver import PartitionReceiver
from magnetar.transactions.transaction import Transaction
from magnetar_core.errors import MagnetarError

# After so many messages the event loop has a turn, if it had none: what was asked of brokers, such
# as more messages, leaves with it.
TURN_MESSAGES = 256


class MessageSource:
    """Receives from the receivers in `_order`.

    Attributes:
        consumer_id: the consumer's number at brokers.
        subscription: the name of the subscription.
        lane: where most messages are received and acknowledged.
    """

    def __init__(
        self,
        runtime: Runtime,
        subscription: str,
        subscription_type: SubscriptionType,
        dead_letters: DeadLetters | None,
    ) -> None:
        self.consumer_id = runtime.new_id()
        self.subscription = subscription
        self._runtime = runtime
        self._type = subscription_type
        self._dead_letters = dead_letters
        self._closed = False
        # The error after which no message comes; None: messages may come.
        self._failure: MagnetarError | None = None
        self._changed = asyncio.Event()
        # Whose turn it is: partitions take turns, a batch each.
        self._turn = 0
        self._order: list[PartitionReceiver] = []
        # The partition whose messages are in the lane; None: the lane is empty.
        self._lender: PartitionReceiver | None = None
        self.lane = FastLane(runtime.open_blocks)
        # Messages that left queues since the event loop had its turn, roughly.
        self._left_count = 0

    @property
    def runtime(self) -> Runtime:
        """The client's runtime."""
        return self._runtime

    async def next(self, count_max: int, timeout_s: float | None) -> MessageColumns:
        """Wait for the next messages of a batch, and return them.

        Args:
            count_max: how many messages to return at most.
            timeout_s: how many seconds to wait; None: without limit.
        Raises:
            TimeoutError: no message came in time.
            ClientClosed: the consumer is closed.
            MagnetarError: the subscription or topic was deleted, or a batch is damaged.
        """
        if self._left_count >= TURN_MESSAGES:
            self._left_count = 0
            await asyncio.sleep(0)
        if timeout_s is not None:
            number("timeout_s", timeout_s)
        self._receive_begins()
        try:
            self._raise_troubles()
            columns = self._take(count_max)
            if columns is None:
                async with asyncio.timeout(timeout_s):
                    columns = await self._wait_for(count_max)
            return columns
        finally:
            self._receive_ends()

    def lend(self, columns: MessageColumns) -> None:
        """Lend the following messages of their batch to the lane, the short way to receive."""
        if self._lender is not None:
            self.lane.lent = self._lender.queue.lend(columns.batch)
            self._left_count += self.lane.lent.count

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

    def fail(self, error: MagnetarError) -> None:
        """Receive nothing more, since the consumer has failed: its calls raise the error."""
        self._failure = error
        self._note_change()

    # Subclasses implement or extend these.

    def _require_usable(self) -> None:
        """Check that the consumer is open.

        Raises:
            WrongEventLoop: the caller is not on the client's event loop.
            ClientClosed: it is closed.
            MagnetarError: what has ended the consumer.
        """
        self._runtime.require_loop()
        if self._closed:
            raise ClientClosed("the consumer is closed")
        if self._failure is not None:
            raise copy_error(self._failure)

    def _receive_begins(self) -> None:
        """Note that the application asks for messages."""

    def _receive_ends(self) -> None:
        """Note that the application got messages, or stopped waiting."""

    def _raise_troubles(self) -> None:
        """Raise an error that happened in the background, once."""

    # Subclasses use these.

    async def _wait_for(self, count_max: int) -> MessageColumns:
        while True:
            self._changed.clear()
            await self._changed.wait()
            self._left_count = 0
            self._raise_troubles()
            columns = self._take(count_max)
            if columns is not None:
                return columns

    def _take_the_long_way(self) -> None:
        """Have the next receive and the next ack look at everything again."""
        self.lane.close()
        self._end_loan()

    def _end_loan(self) -> None:
        self.lane.lent = NOTHING_LENT
        if self._lender is not None:
            self._lender.queue.take_back()
            self._lender = None

    def _note_change(self) -> None:
        """Note that something can be received, or never will be, or cannot be acknowledged."""
        self._take_the_long_way()
        self._changed.set()

    def _take(self, count_max: int) -> MessageColumns | None:
        """Take messages of the partition whose turn it is, or of the next that has messages."""
        self._require_usable()
        self._end_loan()
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
                self._lender = receiver
                self._left_count += len(columns)
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
            await asyncio.shield(receiver.ack_in_transaction(ranges, txn.work).receipt)

        dead_letters.move(columns, acknowledge, lambda: receiver.nack(ranges))
