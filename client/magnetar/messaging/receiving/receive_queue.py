"""The messages of a partition that have arrived and wait for the application.

Parts wait until their message is complete. Messages that leave the queue give their permits back,
so that the broker sends more. Source: docs/design/0001-protocol.md, Messages in parts, and
Redelivery and the client.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from magnetar.config import ConsumerConfig
from magnetar.message import AssembledBatch, MessageColumns, ReceivedBatch
from magnetar.messaging.acknowledging.unacked_tracker import UnackedTracker
from magnetar.messaging.interval_set import IntervalSet, Range
from magnetar.messaging.receiving.assembly import Assembly
from magnetar.messaging.receiving.fast_lane import NOTHING_LENT, LentMessages
from magnetar.messaging.receiving.permits import Permits, PrefetchBudget
from magnetar_core.batch import part_of
from magnetar_core.errors import InvalidArgument, MagnetarError
from magnetar_core.ids import SubscriptionName
from magnetar_core.wire import broker_pb2

log = logging.getLogger("magnetar")

# Messages that came in parts and can be acknowledged by their MessageId alone.
ASSEMBLED_NOTED_MAX = 10_000
# Messages that are lent at once: what is left is counted when it is taken back.
LENT_MAX = 1_000


class BatchCursor:
    """A received batch, and the offsets of it that the application has not received."""

    __slots__ = ("batch", "ranges")

    def __init__(self, batch: ReceivedBatch, ranges: list[Range]) -> None:
        self.batch = batch
        # In descending order: the next one is at the end.
        self.ranges = ranges[::-1]

    def remove(self, ranges: Iterable[Range]) -> None:
        """Remove these offsets, so that the application does not receive them."""
        kept = IntervalSet(self.ranges)
        kept.remove_all(ranges)
        if isinstance(self.batch, AssembledBatch) and list(kept) != self.ranges:
            kept = IntervalSet()
        self.ranges = list(kept)[::-1]

    @property
    def count(self) -> int:
        """Number of offsets that are left."""
        return sum(last - first + 1 for first, last in self.ranges)

    def skip(self, count: int) -> None:
        """Pass over the next messages; of their range at least one more must be left."""
        first, last = self.ranges[-1]
        self.ranges[-1] = (first + count, last)

    def take(self, count_max: int) -> MessageColumns:
        """Return the next consecutive messages; there must be some."""
        if isinstance(self.batch, AssembledBatch):
            self.ranges.clear()
            return MessageColumns(self.batch, 0, 1)
        first, last = self.ranges.pop()
        stop = min(last, first + count_max - 1)
        if stop < last:
            self.ranges.append((stop + 1, last))
        base = self.batch.first_offset
        return MessageColumns(self.batch, first - base, stop - base + 1)


class ReceiveQueue:
    """The queue of a consumer on a partition."""

    def __init__(
        self,
        name: SubscriptionName,
        number: int,
        consumer_id: int,
        config: ConsumerConfig,
        budget: PrefetchBudget,
        unacked: UnackedTracker,
        *,
        flow: Callable[[int, int], None],
        give_back: Callable[[list[Range]], None],
    ) -> None:
        """An empty queue.

        Args:
            number, consumer_id: the receiver's number, and the id of the consumer that the
                application has: each delivered batch carries both.
            budget: the bytes that the client's partitions share.
            flow: gives the broker more permits: a number of messages, and a number of bytes.
            give_back: asks for the redelivery of a damaged batch.
        """
        self.ready: deque[BatchCursor] = deque()
        # One past the last message that the application was given; None before the first.
        self.given_end: int | None = None
        self._name = name
        self._number = number
        self._consumer_id = consumer_id
        self._unacked = unacked
        self._permits = Permits(config, budget, flow)
        self._give_back = give_back
        self._message_bytes_max = config.message_bytes_max
        self._assembly = Assembly(config.message_bytes_max)
        # Messages that came in parts: the last offset of each by its first, newest last.
        self._assembled: dict[int, int] = {}
        # Of the first batch in `ready`. Its cursor stands before what is lent and not noted yet.
        self._lent = NOTHING_LENT

    def begin(self) -> None:
        """A new attachment: the broker may send."""
        self._permits.begin()

    def clear(self) -> None:
        """Drop the messages that were not handed out: they come again, or never."""
        self.take_back()
        self.ready.clear()
        self._permits.clear()
        self._assembly.clear()
        self._unacked.detach()

    def close(self) -> None:
        """Note that nothing more comes. What is queued may still be taken."""
        self._permits.close()

    def add(self, ledger_id: int, batches: Sequence[broker_pb2.DeliveredBatch]) -> list[Range]:
        """Batches have come in.

        Returns: what can never be read, since a seek has cut the message.
        Raises:
            MessageTooLarge: a message has more than message_bytes_max.
            ChecksumMismatch, InvalidArgument: a message in parts cannot be read.
        """
        self.take_back()
        cut: list[Range] = []
        for wire in batches:
            batch = ReceivedBatch(
                self._name.topic,
                self._name.partition,
                ledger_id,
                wire,
                self._number,
                self._consumer_id,
                self._message_bytes_max,
            )
            if part_of(batch.data):
                cut += self._add_part(batch)
            else:
                meant = IntervalSet([(batch.first_offset, batch.last_offset)])
                meant.remove_all((one.first, one.last) for one in wire.excluded)
                batch.check_sizes(meant, self._message_bytes_max)
                self._add_whole(batch, meant)
        return cut

    def take(self, count_max: int) -> MessageColumns:
        """Return consecutive messages; there must be some.

        Raises:
            ChecksumMismatch: the batch is damaged; the broker is asked for it again.
            InvalidArgument: the batch is damaged; the broker is asked for it again.
        """
        self.take_back()
        cursor = self.ready[0]
        try:
            _ = cursor.batch.columns
        except MagnetarError:
            self.ready.popleft()
            self._give_back_damaged(cursor)
            raise
        taken = cursor.take(count_max)
        count = cursor.batch.redelivery_count
        self._unacked.hand_out(taken.first_offset, taken.last_offset, count)
        self.given_end = max(self.given_end or 0, taken.last_offset + 1)
        self._permits.use(len(taken) * cursor.batch.permits)
        if not cursor.ranges:
            self.ready.popleft()
            self._permits.use_bytes(cursor.batch)
        return taken

    def lend(self, batch: ReceivedBatch) -> LentMessages:
        """Lend the messages that follow in this batch, to be received one by one.

        Messages that tell the broker of room are not lent, so that it is told at once: the last
        message of a batch, and the message that renews the permits.
        """
        self.take_back()
        if self.ready and self.ready[0].batch is batch:
            first, last = self.ready[0].ranges[-1]
            count = min(LENT_MAX, last - first, self._permits.left - 1)
            if count > 0:
                start = first - batch.first_offset
                self._lent = LentMessages(batch, start, start + count)
        return self._lent

    def note_received(self) -> None:
        """Note which of the lent messages were received; they stay lent."""
        if self._lent is not NOTHING_LENT:
            self._hand_out(self._lent, self._lent.received())

    def take_back(self) -> None:
        """Note which of the lent messages were received, and stop lending."""
        lent, self._lent = self._lent, NOTHING_LENT
        if lent is not NOTHING_LENT:
            self._hand_out(lent, lent.take_back())

    def _hand_out(self, lent: LentMessages, places: range) -> None:
        if places:
            base = lent.batch.first_offset
            first, last = base + places.start, base + places.stop - 1
            self.ready[0].skip(len(places))
            self._unacked.hand_out(first, last, lent.batch.redelivery_count)
            self.given_end = max(self.given_end or 0, last + 1)
            self._permits.use(len(places))

    def acks_until(self, batch: ReceivedBatch, offset: int) -> int:
        """Return the offset before which acks of this batch's messages, in order, claim nothing.

        Args:
            offset: the offset of a message that the application has; its ack claims nothing more.
        """
        if isinstance(batch, AssembledBatch):
            return offset + 1
        last = batch.last_offset
        queued = self._unacked.queued.within(offset + 1, last)
        if not queued:
            return last + 1
        first_queued = queued[0][0]
        if self.ready and self.ready[0].batch is batch:
            own_first, _ = self.ready[0].ranges[-1]
            if first_queued == own_first:
                # The rest of it leaves the queue before the application can acknowledge it.
                return last + 1
        return first_queued

    def claim(self, ranges: Sequence[Range]) -> None:
        """Drop queued messages, since the application acknowledges an earlier copy of them."""
        if not self._unacked.has_queued(ranges):
            return
        self.take_back()
        claimed = self._unacked.claim(ranges)
        if claimed:
            for cursor in self.ready:
                count = cursor.count
                cursor.remove(claimed)
                self._permits.use((count - cursor.count) * cursor.batch.permits)
                if not cursor.ranges:
                    self._permits.use_bytes(cursor.batch)
            self.ready = deque(cursor for cursor in self.ready if cursor.ranges)

    def last_offset_of(self, offset: int) -> int:
        """Return the last offset of the message that begins at this offset."""
        return self._assembled.get(offset, offset)

    def check_given(self, offset: int) -> None:
        """Check that the application has received all messages below an offset.

        Raises:
            InvalidArgument: it has not, or the offset is inside a message.
        """
        self.note_received()
        if self.given_end is None or offset > self.given_end:
            raise InvalidArgument(
                f"{offset} is beyond what was received of {self._name}, which ends at"
                f" {self.given_end}"
            )
        if any(first < offset <= last for first, last in self._assembled.items()):
            raise InvalidArgument(f"{offset} is inside of a message of {self._name}")

    def _add_whole(self, batch: ReceivedBatch, meant: IntervalSet) -> None:
        """Put the new messages of a batch where they can be taken."""
        new = self._unacked.arrive(meant)
        copies_count = len(meant) - sum(last - first + 1 for first, last in new)
        if copies_count:
            log.debug("%s: dropped %d copies", self._name, copies_count)
            self._permits.use(copies_count * batch.permits)
        if new:
            self.ready.append(BatchCursor(batch, new))
        else:
            self._permits.use_bytes(batch)

    def _add_part(self, part: ReceivedBatch) -> list[Range]:
        """Part of a message: it leaves the queue at once, since the others have to fit too."""
        self._permits.use(1)
        self._permits.use_bytes(part)
        whole, cut = self._assembly.add(part)
        for one in cut:
            log.warning(
                "%s: the beginning or the end of a message in parts is missing at offset %d, as"
                " after a seek; it is skipped",
                self._name,
                one.first_offset,
            )
        if whole is not None:
            self._assembled[whole.first_offset] = whole.last_offset
            while len(self._assembled) > ASSEMBLED_NOTED_MAX:
                del self._assembled[next(iter(self._assembled))]
            self._add_whole(whole, IntervalSet([(whole.first_offset, whole.last_offset)]))
        return [(one.first_offset, one.last_offset) for one in cut]

    def _give_back_damaged(self, cursor: BatchCursor) -> None:
        ranges = cursor.ranges[::-1]
        for first, last in ranges:
            self._unacked.hand_out(first, last, cursor.batch.redelivery_count)
            self._permits.use((last - first + 1) * cursor.batch.permits)
        self._permits.use_bytes(cursor.batch)
        self._give_back(ranges)
