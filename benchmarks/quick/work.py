"""The workloads: each a fixed amount of work, so that a slow machine does the same as a fast one.

Theirs is the order of a round: what stores most comes last, so that a broker's flushes and
compactions are those of the workload that they count for.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.inputs import Inputs
from benchmarks.small_transactions import Load, Shape
from benchmarks.streams import CHUNK_MESSAGES, WAYS_OF_READING, WAYS_OF_SENDING
from magnetar import Client

PARTITIONS = 8
STREAM_MESSAGE_BYTES = 100
TRANSACTION_MESSAGE_BYTES = 1024
# About what 100 ms bring: by the clock, a slow machine would commit more often for the same work.
COMMIT_MESSAGES = 100_000
# What is done beforehand, of the measured amount.
WARM_UP_PART = 0.1
RECEIVER_QUEUE_MESSAGES = 100_000

# Does the work that is measured, and returns the number of messages or transactions.
Work = Callable[[], Awaitable[int]]
# Prepares and warms up: takes a client and the amount of work.
Begin = Callable[[Client, int], Awaitable[Work]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The work of a round.

    Attributes:
        about: what the table calls it.
        count: messages or transactions of a whole round.
    """

    about: str
    count: int
    begin: Begin

    def part(self, share: float) -> int:
        """Return the count of a share of the work; at least one."""
        return max(int(self.count * share), 1)


async def _begin_transactions(client: Client, count: int, *, at_once: int) -> Work:
    """Begin transactions as in benchmarks.small_transactions: two messages, an ack, a commit."""
    topic = f"transactions-{at_once}"
    await client.admin.topics.create(topic, partitions=PARTITIONS)
    producer = await client.create_producer(topic, linger_ms=0)
    inputs = await Inputs.create(
        client, f"{topic}-inputs", partitions=PARTITIONS, message_bytes=TRANSACTION_MESSAGE_BYTES
    )
    shape = Shape(
        message_bytes=TRANSACTION_MESSAGE_BYTES,
        partitions=PARTITIONS,
        partitions_written=2,
        inputs=1,
        lazy=True,
        await_sends=False,
    )
    load = Load(client, producer, inputs, shape)
    await inputs.fill(_warm_up(count))
    await load.run(at_once, math.inf)
    await inputs.fill(count)

    async def work() -> int:
        # Until there are no inputs left.
        await load.run(at_once, math.inf)
        return load.finished

    return work


async def _begin_produce(client: Client, count: int, *, way: str, message_bytes: int) -> Work:
    topic = f"{way}-{message_bytes}"
    await client.admin.topics.create(topic, partitions=PARTITIONS)
    producer = await client.create_producer(topic)
    value = bytes(message_bytes)

    async def work(some: int) -> int:
        await WAYS_OF_SENDING[way](producer, value, some)
        await producer.flush()
        return some

    await work(_warm_up(count))
    return partial(work, count)


async def _begin_commits(client: Client, count: int) -> Work:
    """Produce in transactions; one commits while the next one is filled."""
    await client.admin.topics.create("commits", partitions=PARTITIONS)
    producer = await client.create_producer("commits")
    values = [bytes(STREAM_MESSAGE_BYTES)] * CHUNK_MESSAGES

    async def work(some: int) -> int:
        sent = 0
        previous = None
        while sent < some:
            txn = await client.begin_transaction()
            end = min(sent + COMMIT_MESSAGES, some)
            while sent < end:
                chunk = values[: end - sent]
                await producer.send_many(chunk, txn=txn)
                sent += len(chunk)
            if previous is not None:
                await previous
            previous = asyncio.create_task(txn.commit())
        if previous is not None:
            await previous
        return sent

    await work(_warm_up(count))
    return partial(work, count)


async def _begin_consume(client: Client, count: int, *, way: str, readings: int) -> Work:
    """Read a stored topic so many times, each time for a new subscription."""
    topic = f"consume-{way}".replace(" ", "-")
    stored = max(count // readings, 1)
    await client.admin.topics.create(topic, partitions=PARTITIONS)
    async with await client.create_producer(topic) as producer:
        await WAYS_OF_SENDING["send_many"](producer, bytes(STREAM_MESSAGE_BYTES), stored)
    names = map(str, itertools.count())

    async def read(some: int) -> None:
        consumer = await client.subscribe(
            topic,
            next(names),
            initial_position="earliest",
            receiver_queue_messages=RECEIVER_QUEUE_MESSAGES,
        )
        await WAYS_OF_READING[way](consumer, some)
        await consumer.flush_acks()
        await consumer.close()

    async def work() -> int:
        for _ in range(readings):
            await read(stored)
        return stored * readings

    await read(_warm_up(stored))
    return work


def _warm_up(count: int) -> int:
    return max(int(count * WARM_UP_PART), 1)


WORKLOADS = {
    "transactions-1": Workload(
        about="small transactions, one at once",
        count=400,
        begin=partial(_begin_transactions, at_once=1),
    ),
    "transactions-64": Workload(
        about="small transactions, 64 at once",
        count=1_500,
        begin=partial(_begin_transactions, at_once=64),
    ),
    "consume-columns": Workload(
        about="consume 100 B by columns",
        count=1_200_000,
        begin=partial(_begin_consume, way="columns", readings=4),
    ),
    "consume-each": Workload(
        about="consume 100 B message by message, each acknowledged",
        count=300_000,
        begin=partial(_begin_consume, way="each message", readings=1),
    ),
    "enqueue-100": Workload(
        about="produce 100 B message by message (enqueue)",
        count=300_000,
        begin=partial(_begin_produce, way="enqueue", message_bytes=STREAM_MESSAGE_BYTES),
    ),
    "produce-100": Workload(
        about="produce 100 B (send_many)",
        count=500_000,
        begin=partial(_begin_produce, way="send_many", message_bytes=STREAM_MESSAGE_BYTES),
    ),
    "commits-100": Workload(
        about="produce 100 B in transactions of 100,000 messages",
        count=500_000,
        begin=_begin_commits,
    ),
    "produce-1024": Workload(
        about="produce 1 KiB (send_many)",
        count=60_000,
        begin=partial(_begin_produce, way="send_many", message_bytes=1024),
    ),
}
