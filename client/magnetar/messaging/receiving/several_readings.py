"""Reads several partitions: one after the other, or side by side where they do not end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from magnetar.message import MessageColumns

Pieces = AsyncGenerator[MessageColumns, None]


async def in_turn(readings: Iterable[Pieces]) -> Pieces:
    """Yield the messages of these readings, one after the other."""
    for reading in readings:
        async with aclosing(reading):
            async for columns in reading:
                yield columns


async def side_by_side(readings: Iterable[Pieces]) -> Pieces:
    """Yield the messages of these readings, as soon as they come. The readings have no end.

    The first error of one of them ends all.
    """
    ready: asyncio.Queue[MessageColumns | Exception] = asyncio.Queue(1)

    async def fetch(reading: Pieces) -> None:
        try:
            async with aclosing(reading):
                async for columns in reading:
                    await ready.put(columns)
        except Exception as error:
            await ready.put(error)

    fetching = [asyncio.create_task(fetch(one)) for one in readings]
    try:
        while True:
            found = await ready.get()
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        for one in fetching:
            one.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
