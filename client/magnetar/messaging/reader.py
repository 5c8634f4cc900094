"""Reads committed messages without a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

from magnetar.link.cluster import TopicRoute
from magnetar.message import MESSAGE_BYTES_MAX_DEFAULT, MessageColumns, ReceivedBatch
from magnetar.messaging.assembly import Assembly
from magnetar.messaging.interval_set import IntervalSet
from magnetar_core.batch import part_of
from magnetar_core.errors import InvalidArgument
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
) -> AsyncGenerator[MessageColumns, None]:
    """Messages from one offset to another, in order, as columns.

    A message that was sent in parts has several offsets, and is there where the first one is.

    Args:
        end: the first offset that is not wanted; None reads to the end that the partition has
            when the reader gets there.
        follow_period_s: wait at the end for more, asking so often.
    Raises:
        OutOfRange: retention removed what lies at `start`.
        MessageTooLarge: one has more than message_bytes_max.
    """
    if not 0 <= partition < route.partition_count:
        raise InvalidArgument(f"{route.topic} has no partition {partition}")
    reading = RangeReader(route, partition, start, end, message_bytes_max=message_bytes_max)
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
    """Reads offsets from `start` to before `end` of one partition, one reply after the other."""

    def __init__(
        self,
        route: TopicRoute,
        partition: int,
        start: int,
        end: int | None,
        *,
        message_bytes_max: int,
    ) -> None:
        self._route = route
        self._partition = partition
        self._start = start
        self._end = end
        self._message_bytes_max = message_bytes_max
        self._assembly = Assembly(message_bytes_max)
        # What the next reply begins with; and what the last one was asked to begin with.
        self.next_offset = start
        self.asked_offset = start

    @property
    def is_done(self) -> bool:
        """Whether all that is wanted has been opened."""
        wanted = self._end is None or self.next_offset < self._end
        return not wanted and not self._assembly.is_under_way

    async def ask(self, *, messages_max: int, bytes_max: int) -> broker_pb2.CommandReadResponse:
        """Ask for what comes next. Raises: OutOfRange, and what the link raises."""
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
        self.asked_offset = offset
        self.next_offset = max(offset, reply.next_offset)
        return reply

    def open(self, reply: broker_pb2.CommandReadResponse) -> Iterator[MessageColumns]:
        """What of a reply is wanted. Replies are to be opened in order.

        Raises:
            MessageTooLarge: one has more than message_bytes_max.
        """
        start, end = self._start, self._end
        for wire in reply.batches:
            batch = ReceivedBatch(
                self._route.topic,
                self._partition,
                reply.ledger_id,
                wire,
                message_bytes_max=self._message_bytes_max,
            )
            if part_of(batch.data):
                # A message is wanted where it begins.
                if self._assembly.is_under_way or (
                    batch.first_offset >= start and (end is None or batch.first_offset < end)
                ):
                    whole, _ = self._assembly.add(batch)
                    if whole is not None:
                        yield MessageColumns(whole, 0, 1)
                continue
            wanted = IntervalSet([(batch.first_offset, batch.last_offset)])
            wanted.remove_all((one.first, one.last) for one in wire.excluded)
            if start > 0:
                wanted.remove(0, start - 1)
            if end is not None:
                wanted.remove(end, max(end, batch.last_offset))
            batch.check_sizes(wanted, self._message_bytes_max)
            for first, last in wanted:
                base = batch.first_offset
                yield MessageColumns(batch, first - base, last - base + 1)
