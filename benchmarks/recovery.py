"""Cold recovery: a server is killed, and what it reads at its next start is timed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from benchmarks.results import Result
from benchmarks.servers import Servers
from magnetar import Client

TOPIC = "recovery"
# Batches at once, of one message each: an entry of the log is a batch.
ENTRIES_AT_ONCE = 1_000


async def measure(
    client: Client, servers: Servers, *, entry_counts: tuple[int, ...], open_count: int
) -> AsyncIterator[Result]:
    """Measure starts after kill -9 with more and more stored entries, and open transactions."""
    await client.admin.topics.create(TOPIC, partitions=8)
    stored = 0
    for count in entry_counts:
        await _store_entries(client, count - stored)
        stored = count
        async for result in _kill_both(client, servers, f"{count:,} entries", scale=count):
            yield result
    await _open_transactions(client, open_count)
    variant = f"{stored:,} entries, {open_count:,} open transactions"
    async for result in _kill_both(client, servers, variant):
        yield result


async def _store_entries(client: Client, count: int) -> None:
    """Store a number of entries, and a hundredth as many outcomes at the coordinator."""
    async with await client.create_producer(TOPIC, linger_ms=0, batch_messages_max=1) as producer:
        for done in range(0, count, ENTRIES_AT_ONCE):
            for number in range(min(ENTRIES_AT_ONCE, count - done)):
                await producer.enqueue(b"x" * 100, partition=number % 8)
            await producer.flush()
        for _ in range(count // 100):
            async with client.transaction() as txn:
                await producer.send(b"x" * 100, txn=txn)


async def _open_transactions(client: Client, count: int) -> None:
    producer = await client.create_producer(TOPIC, linger_ms=0)
    room = asyncio.Semaphore(256)

    async def begin() -> None:
        async with room:
            txn = await client.begin_transaction(timeout_s=900)
            await producer.send(b"x" * 100, txn=txn)

    await asyncio.gather(*(begin() for _ in range(count)))


async def _kill_both(
    client: Client, servers: Servers, variant: str, scale: int | None = None
) -> AsyncIterator[Result]:
    for kind in ("broker", "coordinator"):
        killed_s = await servers.kill(kind)
        await (
            client.admin.topics.list()
            if kind == "broker"
            else client.admin.transactions.list(limit=1)
        )
        away_s = time.perf_counter() - killed_s
        recovery_s = (await asyncio.to_thread(servers.metrics, kind, "recovery_seconds"))[""]
        for latency_of, seconds in (
            ("reading the store", recovery_s),
            ("kill to answer", away_s),
        ):
            yield Result(
                workload="recovery",
                variant=f"{kind}, {variant}",
                scale=scale,
                latency_of=latency_of,
                p50_ms=seconds * 1_000,
            )
