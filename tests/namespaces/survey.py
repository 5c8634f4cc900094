"""A client that takes consistent cuts while everything fails, and reads them, also again later.

Each cut is read from the one before. So together they have each message once, and what has come
since can be checked as a whole. Now and then an earlier one is read again from its beginning.
"""

from __future__ import annotations

import asyncio

from tests.namespaces.crew import ACCOUNTS, ORDERS, Crew
from tests.waiting import pace

from magnetar import Client, Cut
from magnetar_core.errors import MagnetarError

TOPICS = (ACCOUNTS, ORDERS)
# A cut waits for a coordinator that is away. Who waits for long takes few.
TIMEOUT_S = 15.0
AGAIN_EVERY = 100

# topic, partition, offset, value, transaction.
Row = tuple[str, int, int, str, str | None]


async def survey(crew: Crew, client: Client) -> None:
    """Take cuts, one after another, each begun half a pause after the last, or later."""
    loop = asyncio.get_running_loop()
    tokens: list[str] = []
    while not crew.stopping.is_set():
        next_s = loop.time() + crew.pause_s / 2
        try:
            tokens.append(await _take(crew, client, tokens[-1] if tokens else None))
            if len(tokens) % AGAIN_EVERY == 0:
                token = crew.random.choice(tokens)
                crew.recorder.note("cut again", token=token, rows=await rows_at(client, token))
        except MagnetarError as error:
            crew.recorder.note("trouble", session=crew.name, error=repr(error))
        await pace(max(0.0, next_s - loop.time()))


async def _take(crew: Crew, client: Client, since: str | None) -> str:
    """Take a cut, and read what the one before has not; returns its token."""
    asked_at = crew.recorder.note("asking for a cut")
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    token = str(await client.cut(TOPICS, timeout_s=TIMEOUT_S))
    took_s = loop.time() - began_s
    rows = await rows_at(client, token, since)
    crew.recorder.note("cut", token=token, since=since, asked_at=asked_at, took_s=took_s, rows=rows)
    return token


async def rows_at(client: Client, token: str, since: str | None = None) -> list[Row]:
    """Read all partitions at a cut; without what an earlier one has."""
    at = Cut.parse(token)
    earlier = None if since is None else Cut.parse(since)
    return [
        (
            topic,
            partition,
            one.offset,
            one.value.decode(),
            None if one.txn_id is None else str(one.txn_id),
        )
        for topic in at.topics
        for partition in range(at.partition_count(topic))
        async for one in client.read(topic, partition, at=at, since=earlier)
    ]
