"""Plain messages at a fixed rate, and a consumer that keeps up with them."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator

from benchmarks.results import Result, latencies_ms
from benchmarks.servers import Servers
from magnetar import Client, Consumer, Producer

# At the front of each value: when it was sent, in seconds.
SENT = struct.Struct("<d")
WARM_UP_S = 0.5
# Often enough that messages trickle in, and seldom enough to leave the loop to others.
PACE_S = 0.002


async def measure(
    client: Client,
    servers: Servers,
    *,
    sizes: tuple[int, ...],
    rate_per_s: int,
    seconds: float,
    topic_partitions: int,
) -> AsyncIterator[Result]:
    """Yield messages received per second, and the way from send to receive, for each size.

    Args:
        servers: the consumer has a connection of its own to them.
        sizes: bytes of a message, 8 or more.
        rate_per_s: messages.
    """
    for message_bytes in sizes:
        topic = f"tailing-{message_bytes}"
        await client.admin.topics.create(topic, partitions=topic_partitions)
        producer = await client.create_producer(topic)
        padding = bytes(message_bytes - SENT.size)
        async with await servers.connect() as reading_client:
            consumer = await reading_client.subscribe(topic, "tail")
            await _transfer(producer, consumer, padding, rate_per_s, WARM_UP_S)
            began_s = time.perf_counter()
            taken_s = await _transfer(producer, consumer, padding, rate_per_s, seconds)
            per_s = len(taken_s) / (time.perf_counter() - began_s)
        p50_ms, p99_ms = latencies_ms(taken_s)
        yield Result(
            workload="consume",
            variant=f"{message_bytes} B, tailing {rate_per_s:,}/s",
            scale=message_bytes,
            per_s=per_s,
            mb_per_s=per_s * message_bytes / 1e6,
            latency_of="send to receive",
            p50_ms=p50_ms,
            p99_ms=p99_ms,
        )


async def _transfer(
    producer: Producer, consumer: Consumer, padding: bytes, rate_per_s: int, seconds: float
) -> list[float]:
    """Returns: seconds from each message's send to its receipt, once all are received."""
    sending = asyncio.create_task(_send(producer, padding, rate_per_s, seconds))
    taken_s: list[float] = []
    while not sending.done() or len(taken_s) < sending.result():
        # With a timeout: the sender may find that it is done when all are received already.
        for columns in await consumer.receive_columns(timeout_s=PACE_S):
            now_s = time.perf_counter()
            taken_s += [now_s - SENT.unpack_from(value)[0] for value in columns.values()]
            consumer.ack_nowait(columns)
    return taken_s


async def _send(producer: Producer, padding: bytes, rate_per_s: int, seconds: float) -> int:
    """Returns: how many were sent."""
    began_s = time.perf_counter()
    sent = 0
    while (elapsed_s := time.perf_counter() - began_s) < seconds:
        for _ in range(int(elapsed_s * rate_per_s) - sent):
            await producer.enqueue(SENT.pack(time.perf_counter()) + padding)
            sent += 1
        await asyncio.sleep(PACE_S)
    return sent
