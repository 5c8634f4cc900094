"""Readers read committed messages without a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

from magnetar.link.topic_route import TopicRoute
from magnetar.message import MESSAGE_BYTES_MAX_DEFAULT, MessageColumns, ReceivedBatch
from magnetar.messaging.interval_set import IntervalSet
from magnetar.messaging.receiving.assembly import Assembly
from magnetar_core.batch import part_of
from magnetar_core.cuts.cuts import CutRange
from magnetar_core.errors import InvalidArgument, OutOfRange
from magnetar_core.wire import broker_pb2


async def read_columns(
    route: TopicRoute,
    partition: int,
    start: int,
    end: int | None,
    *,
    follow_period_s: float | None = None,
    messages_max: int = 10_000,
    bytes_max: int = 4 << 20,
    message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT,
    cut: CutRange | None = None,
) -> AsyncGenerator[MessageColumns, None]:
    """Yield the messages of a range of offsets, in order, as columns.

    A message that was sent in parts has several offsets; its first offset decides.

    Args:
        route: the topic.
        partition: the partition's number.
        start: the first offset to read.
        end: the offset at which to stop; None: the end of the partition when the reader gets there.
        follow_period_s: wait for further messages at the end, and ask for them this often, in
            seconds.
        messages_max: how many messages to ask for at once.
        bytes_max: how many bytes to ask for at once.
        message_bytes_max: the largest message to accept, in bytes.
        cut: only what a cut takes of the partition. None: everything.
    Raises:
        OutOfRange: retention has removed the message at `start`, or the partition was restored
            since the cut.
        MessageTooLarge: a message exceeds message_bytes_max.
        InvalidArgument: the topic has no such partition.
    """
    if not 0 <= partition < route.partition_count:
        raise InvalidArgument(f"{route.topic} has no partition {partition}")
    reading = RangeReader(
        route, partition, start, end, message_bytes_max=message_bytes_max, cut=cut
    )
    while not reading.is_done:
        reply = await reading.ask(messages_max=messages_max, bytes_max=bytes_max)
        progressed = reading.next_offset > reading.asked_offset
        for columns in reading.open(reply):
            yield columns
        if reading.next_offset >= reply.end_offset or not progressed:
            if follow_period_s is None:
                return
            await asyncio.sleep(follow_period_s)


class RangeReader:
    """Reads the offsets of a partition from `start` to before `end`, reply by reply."""

    def __init__(
        self,
        route: TopicRoute,
        partition: int,
        start: int,
        end: int | None,
        *,
        message_bytes_max: int,
        cut: CutRange | None = None,
    ) -> None:
        self._cut = cut
        self._route = route
        self._partition = partition
        self._start = start
        self._end = end
        self._message_bytes_max = message_bytes_max
        self._assembly = Assembly(message_bytes_max)
        # The offset that the next request asks for, and the offset that the last request asked for.
        self.next_offset = start
        self.asked_offset = start

    @property
    def is_done(self) -> bool:
        """Whether all messages of the range have been opened."""
        wanted = self._end is None or self.next_offset < self._end
        return not wanted and not self._assembly.is_under_way

    async def ask(self, *, messages_max: int, bytes_max: int) -> broker_pb2.CommandReadResponse:
        """Ask for the next messages.

        Raises:
            OutOfRange: retention has removed the next message, or the partition was restored since
                the cut.
            MagnetarError: the link failed.
        """
        offset, end = self.next_offset, self._end
        reply = await self._route.connection(self._partition).request(
            broker_pb2.CommandRead(
                partition=self._route.partition_name(self._partition).to_wire(),
                start_offset=offset,
                messages_max=(
                    messages_max if end is None else max(1, min(messages_max, end - offset))
                ),
                bytes_max=bytes_max,
            )
        )
        if self._cut is not None:
            self._check_cut(self._cut, reply)
        self.asked_offset = offset
        self.next_offset = max(offset, reply.next_offset)
        return reply

    def _check_cut(self, cut: CutRange, reply: broker_pb2.CommandReadResponse) -> None:
        name = self._route.partition_name(self._partition)
        if reply.ledger_id != cut.ledger_id:
            raise OutOfRange(
                f"{name} was restored, or has lost messages, since the cut was taken: take another",
                ledger_id=reply.ledger_id,
            )
        if reply.end_offset < cut.end:
            raise OutOfRange(
                f"{name} ends at {reply.end_offset}, and the cut at {cut.end}: it was taken of"
                " another cluster, or messages were lost",
                ledger_id=reply.ledger_id,
            )

    def open(self, reply: broker_pb2.CommandReadResponse) -> Iterator[MessageColumns]:
        """Yield the messages of a reply that are in the range. Replies must be opened in order.

        Raises:
            MessageTooLarge: a message exceeds message_bytes_max.
        """
        start, end, cut, runtime = self._start, self._end, self._cut, self._route.runtime
        for wire in reply.batches:
            stamp = wire.stamp
            if cut is not None and not cut.takes(wire.entry_id + wire.first_index, stamp):
                continue
            if stamp:
                runtime.saw(stamp)
            batch = ReceivedBatch(
                self._route.topic,
                self._partition,
                reply.ledger_id,
                wire,
                message_bytes_max=self._message_bytes_max,
            )
            if part_of(batch.data):
                # A message belongs to the range in which it begins.
                if self._assembly.is_under_way or (
                    batch.first_offset >= start and (end is None or batch.first_offset < end)
                ):
                    whole, _ = self._assembly.add(batch)
                    if whole is not None:
                        yield MessageColumns(whole, 0, 1)
                continue
            wanted = IntervalSet([(batch.first_offset, batch.last_offset)])
            wanted.remove_all((excluded.first, excluded.last) for excluded in wire.excluded)
            if start > 0:
                wanted.remove(0, start - 1)
            if end is not None:
                wanted.remove(end, max(end, batch.last_offset))
            batch.check_sizes(wanted, self._message_bytes_max)
            for first, last in wanted:
                base = batch.first_offset
                yield MessageColumns(batch, first - base, last - base + 1)
