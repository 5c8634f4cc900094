"""Reads a range of a partition in bulk; it asks for the next reply while the last is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from magnetar.errors import failure_of
from magnetar.link.topic_route import TopicRoute
from magnetar.message import MESSAGE_BYTES_MAX_DEFAULT, MessageColumns
from magnetar.messaging.receiving.reader import RangeReader
from magnetar_core.cuts.cuts import CutRange
from magnetar_core.errors import DataLoss, InvalidArgument, MagnetarError

# Replies that wait for their reader, each of bytes_max at most, or of one batch.
REPLIES_AHEAD_MAX = 3
BYTES_MAX = 2 << 20
# Bytes are what limits a reply.
MESSAGES_MAX = (1 << 32) - 1


async def read_ahead(
    route: TopicRoute,
    partition: int,
    start: int,
    end: int,
    *,
    replies_max: int = REPLIES_AHEAD_MAX,
    bytes_max: int = BYTES_MAX,
    message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT,
    cut: CutRange | None = None,
) -> AsyncGenerator[list[MessageColumns], None]:
    """Yield the messages of a range of offsets, in order, in the groups in which they came.

    Args:
        route: the topic.
        partition: the partition's number.
        start: the first offset to read.
        end: the offset at which to stop; all messages before it must exist.
        replies_max: how many replies to read ahead.
        bytes_max: how many bytes to ask for at once.
        message_bytes_max: the largest message to accept, in bytes.
        cut: only what a cut takes of the partition. None: everything.
    Raises:
        OutOfRange: retention has removed messages at or behind `start`, or the partition was
            restored since the cut.
        DataLoss: the partition ends before `end`.
        Gone: the topic was deleted, or was made anew.
        MessageTooLarge: a message exceeds message_bytes_max.
    """
    if not 0 <= partition < route.partition_count:
        raise InvalidArgument(f"{route.topic} has no partition {partition}")
    if start >= end:
        return
    reading = RangeReader(
        route, partition, start, end, message_bytes_max=message_bytes_max, cut=cut
    )
    ready: asyncio.Queue[list[MessageColumns] | None] = asyncio.Queue(replies_max)

    async def fetch() -> None:
        while not reading.is_done:
            reply = await reading.ask(messages_max=MESSAGES_MAX, bytes_max=bytes_max)
            if reading.next_offset == reading.asked_offset:
                raise DataLoss(
                    f"{route.topic} partition {partition} ends at {reply.end_offset}; offsets"
                    f" from {reading.next_offset} to {end - 1} were expected",
                    end_offset=reply.end_offset,
                )
            await ready.put(list(reading.open(reply)))

    async def fetch_all() -> MagnetarError | None:
        try:
            await fetch()
        except Exception as error:
            # Told when everything before it has been handed out.
            await ready.put(None)
            return failure_of(error, "to read ahead")
        await ready.put(None)
        return None

    fetching = asyncio.create_task(fetch_all())
    try:
        while (columns := await ready.get()) is not None:
            yield columns
        error = await fetching
        if error is not None:
            raise error
    finally:
        fetching.cancel()
