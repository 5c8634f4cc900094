"""The canonical workload: a message to each of two partitions and one input acknowledged.

NewTxn, AddPartition and AddSubscription, the messages and the ack, EndTxn.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from benchmarks.inputs import Inputs
from benchmarks.results import Result, latencies_ms, line_name
from benchmarks.servers import Servers
from magnetar import Client, Producer

TOPIC = "small-transactions"
INPUT_TOPIC = "small-transactions-inputs"
WARM_UP_S = 0.5
# What the warm-up may take at the most; it tells how many the measurement will need.
WARM_UP_TRANSACTIONS_PER_S_MAX = 10_000
INPUTS_MARGIN = 1.5
# At the front of each value: the transaction's number.
NUMBER_BYTES = 8
VISIBLE_WITHIN_S = 30
POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of each transaction.

    Attributes:
        message_bytes: of a message's value, and of an input's.
        partitions: of the topic; each transaction writes a message to `partitions_written` of them.
        inputs: messages that each acknowledges.
        lazy: NewTxn names the participants; otherwise they are added to what it has begun.
        await_sends: wait for each message's and ack's confirmation before EndTxn, so that the
            latency is EndTxn's alone; otherwise commit() waits for them itself.
    """

    message_bytes: int
    partitions: int
    partitions_written: int
    inputs: int
    lazy: bool
    await_sends: bool


class Load:
    """Transactions of one shape, one after the other, so many at once.

    Attributes: of the last run.
        finished: transactions.
        latencies_s: from the call of commit() to its return.
        called_s: when commit() was called, by the transaction's number.
    """

    def __init__(self, client: Client, producer: Producer, inputs: Inputs, shape: Shape) -> None:
        self.finished = 0
        self.latencies_s: list[float] = []
        self.called_s: dict[int, float] = {}
        self._client = client
        self._producer = producer
        self._inputs = inputs
        self._shape = shape
        self._padding = bytes(shape.message_bytes - NUMBER_BYTES)
        self._number = 0
        self._deadline_s = 0.0

    async def run(self, concurrency: int, duration_s: float) -> float:
        """Returns: seconds from the first begin to the end of the last commit()."""
        self.finished = 0
        self.latencies_s.clear()
        self.called_s.clear()
        began_s = time.perf_counter()
        self._deadline_s = began_s + duration_s
        await asyncio.gather(*(self._transact(first) for first in range(concurrency)))
        return time.perf_counter() - began_s

    async def _transact(self, first_partition: int) -> None:
        shape, producer, consumer = self._shape, self._producer, self._inputs.consumer
        while time.perf_counter() < self._deadline_s and len(self._inputs) >= shape.inputs:
            inputs = self._inputs.take(shape.inputs)
            txn = await self._client.begin_transaction(lazy=self._shape.lazy)
            self._number += 1
            number = self._number
            value = number.to_bytes(NUMBER_BYTES, "big") + self._padding
            first_partition += 1
            partitions = [
                (first_partition + step) % shape.partitions
                for step in range(shape.partitions_written)
            ]
            if shape.await_sends:
                await asyncio.gather(
                    *(
                        producer.send(value, partition=partition, txn=txn)
                        for partition in partitions
                    ),
                    consumer.ack_many(inputs, txn=txn),
                )
            else:
                for one in partitions:
                    producer.send_nowait(value, partition=one, txn=txn)
                consumer.ack_nowait(inputs, txn=txn)
            called_s = self.called_s[number] = time.perf_counter()
            await txn.commit()
            self.latencies_s.append(time.perf_counter() - called_s)
            self.finished += 1


async def measure(
    client: Client,
    servers: Servers,
    *,
    concurrencies: tuple[int, ...],
    seconds: float,
    shape: Shape,
    beside_open_messages: int,
) -> AsyncIterator[Result]:
    """Yield the rate and the time to visibility for each number of transactions at once.

    Args:
        beside_open_messages: of a transaction that stays open in these partitions meanwhile; 0:
            without one.
    """
    await client.admin.topics.create(TOPIC, partitions=shape.partitions)
    producer = await client.create_producer(TOPIC, linger_ms=0)
    if beside_open_messages:
        await _leave_open(client, beside_open_messages, shape)
    beside = f", {beside_open_messages:,} open" if beside_open_messages else ""
    inputs = await Inputs.create(
        client, INPUT_TOPIC, partitions=shape.partitions, message_bytes=shape.message_bytes
    )
    load = Load(client, producer, inputs, shape)
    for concurrency in concurrencies:
        variant = f"{concurrency} at once{beside}"
        await inputs.fill(int(WARM_UP_S * WARM_UP_TRANSACTIONS_PER_S_MAX) * shape.inputs)
        warm_up_s = await load.run(concurrency, WARM_UP_S)
        needed = int(load.finished / warm_up_s * seconds * shape.inputs * INPUTS_MARGIN)
        await inputs.fill(needed + concurrency * shape.inputs)
        # As docs/operations.md advises to who holds much: here the inputs.
        gc.collect()
        gc.freeze()
        cpu_s = servers.cpu_s()
        elapsed_s = await load.run(concurrency, seconds)
        p50_ms, p99_ms = latencies_ms(load.latencies_s)
        per_s = load.finished / elapsed_s
        yield Result(
            workload="transactions",
            variant=variant,
            scale=concurrency,
            per_s=per_s,
            mb_per_s=per_s * shape.partitions_written * shape.message_bytes / 1e6,
            latency_of="EndTxn" if shape.await_sends else "commit()",
            p50_ms=p50_ms,
            p99_ms=p99_ms,
            cpu_us=servers.cpu_us_each(cpu_s, load.finished),
            ceilings=(line_name("bare transactions", f"{concurrency} at once"),),
        )
        await inputs.fill(needed + concurrency * shape.inputs)
        p50_ms, p99_ms = latencies_ms(await _visible_s(servers, load, concurrency, seconds, shape))
        yield Result(
            workload="transactions",
            variant=variant,
            scale=concurrency,
            latency_of="commit to visible",
            p50_ms=p50_ms,
            p99_ms=p99_ms,
        )


async def _visible_s(
    servers: Servers, load: Load, concurrency: int, seconds: float, shape: Shape
) -> list[float]:
    """From each call of commit() to each of its messages at a consumer on another connection."""
    arrived_s: list[tuple[int, float]] = []
    subscription = f"tail-{concurrency}"
    async with await servers.connect() as client:
        consumer = await client.subscribe(TOPIC, subscription)

        async def follow() -> None:
            while True:
                for columns in await consumer.receive_columns():
                    now_s = time.perf_counter()
                    arrived_s.extend(
                        (int.from_bytes(value[:NUMBER_BYTES], "big"), now_s)
                        for value in columns.values()
                    )
                    consumer.ack_nowait(columns)

        following = asyncio.create_task(follow())
        await load.run(concurrency, seconds)
        async with asyncio.timeout(VISIBLE_WITHIN_S):
            while len(arrived_s) < load.finished * shape.partitions_written:
                await asyncio.sleep(POLL_S)
        following.cancel()
        await consumer.close()
        await client.admin.subscriptions.delete(TOPIC, subscription)
    return [now_s - load.called_s[number] for number, now_s in arrived_s]


async def _leave_open(client: Client, count: int, shape: Shape) -> None:
    """A transaction with messages in every partition; the client's end aborts it."""
    txn = await client.begin_transaction(timeout_s=900)
    producer = await client.create_producer(TOPIC)
    for partition in range(shape.partitions):
        values = [bytes(shape.message_bytes)] * (count // shape.partitions)
        await producer.send_many(values, partition=partition, txn=txn)
    await producer.flush()
