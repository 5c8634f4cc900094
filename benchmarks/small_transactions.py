"""The canonical workload: NewTxn, AddPartition, a message to each of two partitions, EndTxn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from benchmarks.results import Result, latencies_ms
from benchmarks.servers import Servers
from magnetar import Client

TOPIC = "small-transactions"
WARM_UP_S = 0.5


async def measure(
    client: Client,
    servers: Servers,
    *,
    concurrencies: tuple[int, ...],
    seconds: float,
    message_bytes: int,
    partitions_per_transaction: int,
    topic_partitions: int,
    await_sends: bool,
    beside_open_messages: int,
) -> AsyncIterator[Result]:
    """Yield a result for each number of transactions at once.

    Args:
        await_sends: wait for each message's confirmation before EndTxn, so that the latency is
            EndTxn's alone; otherwise commit() waits for them itself.
        beside_open_messages: of a transaction that stays open in these partitions meanwhile; 0:
            without one.
    """
    await client.create_topic(TOPIC, partitions=topic_partitions)
    producer = await client.create_producer(TOPIC, linger_ms=0)
    value = bytes(message_bytes)
    if beside_open_messages:
        await _leave_open(client, beside_open_messages, value, topic_partitions)
    beside = f", {beside_open_messages:,} open" if beside_open_messages else ""
    latencies_s: list[float] = []
    finished = 0
    deadline_s = 0.0

    async def transact(first_partition: int) -> None:
        nonlocal finished
        while time.perf_counter() < deadline_s:
            txn = await client.begin_transaction()
            first_partition += 1
            partitions = [
                (first_partition + step) % topic_partitions
                for step in range(partitions_per_transaction)
            ]
            if await_sends:
                await asyncio.gather(
                    *(producer.send(value, partition=one, txn=txn) for one in partitions)
                )
            else:
                for one in partitions:
                    producer.send_nowait(value, partition=one, txn=txn)
            began_s = time.perf_counter()
            await txn.commit()
            latencies_s.append(time.perf_counter() - began_s)
            finished += 1

    for concurrency in concurrencies:
        for duration_s in (WARM_UP_S, seconds):
            latencies_s.clear()
            finished = 0
            cpu_s = servers.cpu_s()
            began_s = time.perf_counter()
            deadline_s = began_s + duration_s
            await asyncio.gather(*(transact(number) for number in range(concurrency)))
            elapsed_s = time.perf_counter() - began_s
        p50_ms, p99_ms = latencies_ms(latencies_s)
        per_s = finished / elapsed_s
        yield Result(
            workload="transactions",
            variant=f"{concurrency} at once{beside}",
            per_s=per_s,
            mb_per_s=per_s * partitions_per_transaction * message_bytes / 1e6,
            latency_of="EndTxn" if await_sends else "commit()",
            p50_ms=p50_ms,
            p99_ms=p99_ms,
            cpu_us=servers.cpu_us_each(cpu_s, finished),
        )


async def _leave_open(client: Client, count: int, value: bytes, topic_partitions: int) -> None:
    """A transaction with messages in every partition; the client's end aborts it."""
    txn = await client.begin_transaction(timeout_s=900)
    producer = await client.create_producer(TOPIC)
    for partition in range(topic_partitions):
        values = [value] * (count // topic_partitions)
        await producer.send_many(values, partition=partition, txn=txn)
    await producer.flush()
