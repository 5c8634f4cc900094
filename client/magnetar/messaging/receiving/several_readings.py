"""Reads several partitions: one after the other, or side by side where they do not end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from magnetar.link.topic_route import TopicRoute
from magnetar.message import MessageColumns

Pieces = AsyncGenerator[MessageColumns, None]


async def in_turn(readings: Iterable[Pieces]) -> Pieces:
    """Yield the messages of these readings, one after the other."""
    for reading in readings:
        async with aclosing(reading):
            async for columns in reading:
                yield columns


async def side_by_side(route: TopicRoute, reading_of: Callable[[int], Pieces]) -> Pieces:
    """Yield the messages of all partitions, as soon as they come. The readings have no end.

    Partitions that the topic gets meanwhile are read, too. The first error of a reading ends all.

    Args:
        reading_of: returns the reading of a partition.
    """
    ready: asyncio.Queue[MessageColumns | Exception] = asyncio.Queue(1)
    fetching: list[asyncio.Task[None]] = []

    async def fetch(reading: Pieces) -> None:
        try:
            async with aclosing(reading):
                async for columns in reading:
                    await ready.put(columns)
        except Exception as error:
            await ready.put(error)

    def begin() -> None:
        for partition in range(len(fetching), route.partition_count):
            fetching.append(asyncio.create_task(fetch(reading_of(partition))))

    stop_watching = route.when_grown(begin)
    try:
        begin()
        while True:
            found = await ready.get()
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        stop_watching()
        for one in fetching:
            one.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
