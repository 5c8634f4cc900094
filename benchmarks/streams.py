"""Plain messages: produced, consumed, and from end to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from benchmarks.ceiling.measure import STORE_VARIANT, STREAM_VARIANT
from benchmarks.results import Result, latencies_ms, line_name
from benchmarks.servers import Servers
from magnetar import Client, Consumer, Producer

# Given to send_many at once.
CHUNK_MESSAGES = 10_000
COMMIT_PERIOD_S = 0.1
COMMITS_UNDER_WAY = 2
# Smaller messages are limited by their number, not by the bytes that the ceilings measure.
CEILING_MESSAGE_BYTES_MIN = 1024


async def measure_produce(
    client: Client, *, sizes: tuple[int, ...], total_bytes: int, topic_partitions: int
) -> AsyncIterator[Result]:
    """Yield messages per second, all durable, for each size and way of sending."""
    for message_bytes in sizes:
        for name, send in WAYS_OF_SENDING.items():
            topic = f"produce-{message_bytes}-{name}"
            await client.admin.topics.create(topic, partitions=topic_partitions)
            producer = await client.create_producer(topic)
            count = max(total_bytes // message_bytes, CHUNK_MESSAGES)
            if send is _enqueue:
                count = min(count, 1_000_000)
            await send(producer, bytes(message_bytes), CHUNK_MESSAGES)
            await producer.flush()
            began_s = time.perf_counter()
            await send(producer, bytes(message_bytes), count)
            await producer.flush()
            per_s = count / (time.perf_counter() - began_s)
            yield Result(
                workload="produce",
                variant=f"{message_bytes} B, {name}",
                scale=message_bytes,
                per_s=per_s,
                mb_per_s=per_s * message_bytes / 1e6,
                ceilings=_ceilings(message_bytes),
            )


async def measure_transactional(
    client: Client, *, sizes: tuple[int, ...], total_bytes: int, topic_partitions: int
) -> AsyncIterator[Result]:
    """Yield the same in transactions: the next one begins while the last one commits."""
    for message_bytes in sizes:
        topic = f"transactional-{message_bytes}"
        await client.admin.topics.create(topic, partitions=topic_partitions)
        producer = await client.create_producer(topic)
        count = max(total_bytes // message_bytes, CHUNK_MESSAGES)
        values = [bytes(message_bytes)] * CHUNK_MESSAGES
        commits: list[asyncio.Task[None]] = []
        began_s = time.perf_counter()
        sent = 0
        while sent < count:
            txn = await client.begin_transaction()
            commit_at_s = time.perf_counter() + COMMIT_PERIOD_S
            while sent < count and time.perf_counter() < commit_at_s:
                await producer.send_many(values, txn=txn)
                sent += len(values)
            commits.append(asyncio.create_task(txn.commit()))
            if len(commits) >= COMMITS_UNDER_WAY:
                await commits[-COMMITS_UNDER_WAY]
        await asyncio.gather(*commits)
        per_s = sent / (time.perf_counter() - began_s)
        yield Result(
            workload="produce",
            variant=f"{message_bytes} B, in transactions",
            scale=message_bytes,
            per_s=per_s,
            mb_per_s=per_s * message_bytes / 1e6,
            ceilings=_ceilings(message_bytes),
        )


async def measure_consume(
    client: Client,
    servers: Servers,
    *,
    sizes: tuple[int, ...],
    total_bytes: int,
    topic_partitions: int,
) -> AsyncIterator[Result]:
    """Yield messages per second, delivered and acknowledged, in each way of reading."""
    for message_bytes in sizes:
        topic = f"consume-{message_bytes}"
        await client.admin.topics.create(topic, partitions=topic_partitions)
        count = max(total_bytes // message_bytes, CHUNK_MESSAGES)
        async with await client.create_producer(topic) as producer:
            await _send_many(producer, bytes(message_bytes), count)
        for name, read in WAYS_OF_READING.items():
            consumer = await client.subscribe(
                topic, name, initial_position="earliest", receiver_queue_messages=100_000
            )
            cpu_s, began_s = servers.cpu_s(), time.perf_counter()
            await read(consumer, count)
            await consumer.flush_acks()
            per_s = count / (time.perf_counter() - began_s)
            cpu_us = servers.cpu_us_each(cpu_s, count)
            await consumer.close()
            yield Result(
                workload="consume",
                variant=f"{message_bytes} B, {name}",
                scale=message_bytes,
                per_s=per_s,
                mb_per_s=per_s * message_bytes / 1e6,
                cpu_us=cpu_us,
            )


async def _read_columns(consumer: Consumer, count: int) -> None:
    seen = 0
    while seen < count:
        for columns in await consumer.receive_columns():
            seen += len(columns)
            consumer.ack_nowait(columns)


async def _read_batches(consumer: Consumer, count: int) -> None:
    seen = 0
    while seen < count:
        messages = await consumer.receive_batch()
        for message in messages:
            assert message.value
        seen += len(messages)
        consumer.ack_nowait(messages)


async def _read_each(consumer: Consumer, count: int) -> None:
    seen = 0
    async for message in consumer:
        assert message.value
        consumer.ack_nowait(message)
        seen += 1
        if seen == count:
            break


WAYS_OF_READING = {
    "columns": _read_columns,
    "messages": _read_batches,
    "each message": _read_each,
}


async def measure_latency(client: Client, *, seconds: float) -> AsyncIterator[Result]:
    """Yield send's and the way from send to receive, with nothing else going on."""
    await client.admin.topics.create("latency")
    producer = await client.create_producer("latency", linger_ms=0)
    consumer = await client.subscribe("latency", "reader")
    sent_s: list[float] = []
    received_s: list[float] = []
    deadline_s = time.perf_counter() + seconds
    while (began_s := time.perf_counter()) < deadline_s:
        producer.send_nowait(b"x" * 100)
        message = await consumer.receive()
        received_s.append(time.perf_counter() - began_s)
        consumer.ack_nowait(message)
        began_s = time.perf_counter()
        await producer.send(b"x" * 100)
        sent_s.append(time.perf_counter() - began_s)
        consumer.ack_nowait(await consumer.receive())
    await consumer.flush_acks()
    for name, seconds_taken in (("send, durable", sent_s), ("send to receive", received_s)):
        p50_ms, p99_ms = latencies_ms(seconds_taken)
        yield Result(
            workload="latency",
            variant="100 B, alone",
            latency_of=name,
            p50_ms=p50_ms,
            p99_ms=p99_ms,
        )


def _ceilings(message_bytes: int) -> tuple[str, ...]:
    if message_bytes < CEILING_MESSAGE_BYTES_MIN:
        return ()
    return line_name("bare stream", STREAM_VARIANT), line_name("bare store", STORE_VARIANT)


async def _send_many(producer: Producer, value: bytes, count: int) -> None:
    for start in range(0, count, CHUNK_MESSAGES):
        await producer.send_many([value] * min(CHUNK_MESSAGES, count - start))


async def _enqueue(producer: Producer, value: bytes, count: int) -> None:
    for _ in range(count):
        await producer.enqueue(value)


WAYS_OF_SENDING = {"send_many": _send_many, "enqueue": _enqueue}
