"""Reads committed messages without a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from magnetar.assembly import Assembly
from magnetar.cluster import TopicRoute
from magnetar.interval_set import IntervalSet
from magnetar.message import MessageColumns, ReceivedBatch
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
    message_bytes_max: int = 256 << 20,
) -> AsyncIterator[MessageColumns]:
    """Messages from one offset to another, in order, as columns.

    A message that was sent in parts has several offsets, and is there where the first one is.

    Args:
        end: the first offset that is not wanted; None reads to the end that the partition has
            when the reader gets there.
        follow_period_s: wait at the end for more, asking so often.
    Raises:
        OutOfRange: retention removed what lies at `start`.
        MessageTooLarge: one that was sent in parts has more than message_bytes_max.
    """
    if not 0 <= partition < route.partition_count:
        raise InvalidArgument(f"{route.topic} has no partition {partition}")
    offset = start
    assembly = Assembly(message_bytes_max)
    while end is None or offset < end or assembly.is_under_way:
        reply: broker_pb2.CommandReadResponse = await route.connection(partition).request(
            broker_pb2.CommandRead(
                partition=route.partition_name(partition).to_wire(),
                start_offset=offset,
                messages_max=(
                    messages_max if end is None else max(1, min(messages_max, end - offset))
                ),
                bytes_max=bytes_max,
            )
        )
        for wire in reply.batches:
            batch = ReceivedBatch(route.topic, partition, reply.ledger_id, wire)
            if part_of(batch.data):
                # A message is wanted where it begins.
                if assembly.is_under_way or batch.first_offset >= start:
                    whole, _ = assembly.add(batch)
                    if whole is not None:
                        yield MessageColumns(whole, 0, 1)
                continue
            wanted = IntervalSet([(batch.first_offset, batch.last_offset)])
            wanted.remove_all((one.first, one.last) for one in wire.excluded)
            if offset > 0:
                wanted.remove(0, offset - 1)
            if end is not None:
                wanted.remove(end, max(end, batch.last_offset))
            for first, last in wanted:
                base = batch.first_offset
                yield MessageColumns(batch, first - base, last - base + 1)
        progressed = reply.next_offset > offset
        offset = max(offset, reply.next_offset)
        if offset >= reply.end_offset or not progressed:
            if follow_period_s is None:
                return
            await asyncio.sleep(follow_period_s)
