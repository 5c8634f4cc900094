"""Small transactions that no memory holds: a consumer reads them after the broker was killed.

In an object store it is killed twice. After the first time it finds them in its log, reads that
whole, and moves them to tables; after the second time, a reader has to fetch them from there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import magnetar
from benchmarks.results import Result
from benchmarks.servers import POLL_S, Servers
from magnetar import Client

TOPIC = "cold"
COUNTS = (100, 500)
# At once, while they are written; a moderate number, so that the log has some order.
WRITERS = 16
NOTED_AFTER_S = 2.0
MESSAGE_BYTES = 1024


async def measure(client: Client, servers: Servers) -> AsyncIterator[Result]:
    """Yield how long a new consumer takes for the messages of so many transactions."""
    for count in COUNTS:
        topic = f"{TOPIC}-{count}"
        await client.admin.topics.create(topic)
        await _write(client, topic, count)
        await servers.kill("broker")
        if servers.in_object_store:
            async with await client.create_producer(topic, linger_ms=0) as producer:
                await producer.send(b"begins a group, and with it the move to tables")
            while not await asyncio.to_thread(_has_tables, servers):
                await asyncio.sleep(POLL_S)
            # Then the store notes which part of its log is in tables.
            await asyncio.sleep(NOTED_AFTER_S)
            await servers.kill("broker")
        async with await magnetar.connect(servers.ready()["broker"]["address"]) as reading:
            began_s = time.perf_counter()
            consumer = await reading.subscribe(topic, "late", initial_position="earliest")
            seen = 0
            while seen < count:
                seen += len(await consumer.receive_batch())
            taken_s = time.perf_counter() - began_s
            await consumer.close()
        yield Result(
            workload="cold",
            variant=f"{count} transactions",
            scale=count,
            per_s=count / taken_s,
            latency_of="reading all",
            p50_ms=taken_s * 1_000,
        )


async def _write(client: Client, topic: str, count: int) -> None:
    room = asyncio.Semaphore(WRITERS)
    async with await client.create_producer(topic, linger_ms=0) as producer:

        async def transact() -> None:
            async with room, client.transaction() as txn:
                producer.send_nowait(bytes(MESSAGE_BYTES), txn=txn)

        await asyncio.gather(*(transact() for _ in range(count)))
        # Behind all markers.
        async with client.transaction() as txn:
            await producer.send(b"last", txn=txn)
            await txn.commit(wait_finished=True)


def _has_tables(servers: Servers) -> bool:
    found = servers.metrics("broker", "object_store_written_bytes_total")
    return found.get('{part="tables"}', 0.0) > 0
