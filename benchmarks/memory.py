"""Measures the memory of an open transaction in the servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from benchmarks.inputs import Inputs
from benchmarks.results import Result
from benchmarks.servers import Servers
from magnetar import Client, Producer, Transaction

TOPIC = "memory"
INPUT_TOPIC = "memory-inputs"
VALUE = bytes(100)
PARTITIONS_WRITTEN = 2
AT_ONCE = 64
# Committed before the first reading, so that buffers and caches have what any traffic gives them.
WARM_UP_TRANSACTIONS = 2_000
TIMEOUT_S = 900


async def measure(
    client: Client, servers: Servers, *, count: int, topic_partitions: int
) -> AsyncIterator[Result]:
    """Yield resident bytes for each transaction: a message in 2 partitions, and an ack."""
    await client.admin.topics.create(TOPIC, partitions=topic_partitions)
    producer = await client.create_producer(TOPIC, linger_ms=0)
    inputs = await Inputs.create(
        client, INPUT_TOPIC, partitions=topic_partitions, message_bytes=len(VALUE)
    )
    await inputs.fill(WARM_UP_TRANSACTIONS + count)
    room = asyncio.Semaphore(AT_ONCE)

    async def write(number: int) -> Transaction:
        async with room:
            return await _write(client, producer, inputs, number, topic_partitions)

    warm_up = await asyncio.gather(*(write(number) for number in range(WARM_UP_TRANSACTIONS)))
    await asyncio.gather(*(txn.commit(wait_finished=True) for txn in warm_up))
    before_bytes = servers.resident_bytes()
    await asyncio.gather(*(write(number) for number in range(count)))
    after_bytes = servers.resident_bytes()
    yield Result(
        workload="memory",
        variant=f"{count:,} open transactions",
        scale=count,
        bytes_each=tuple(
            (after - before) / count
            for before, after in zip(before_bytes, after_bytes, strict=True)
        ),
    )


async def _write(
    client: Client, producer: Producer, inputs: Inputs, number: int, topic_partitions: int
) -> Transaction:
    """A transaction whose messages and ack are confirmed, and which is still open."""
    txn = await client.begin_transaction(timeout_s=TIMEOUT_S)
    partitions = [(number + step) % topic_partitions for step in range(PARTITIONS_WRITTEN)]
    await asyncio.gather(
        *(producer.send(VALUE, partition=partition, txn=txn) for partition in partitions),
        inputs.consumer.ack_many(inputs.take(1), txn=txn),
    )
    return txn
