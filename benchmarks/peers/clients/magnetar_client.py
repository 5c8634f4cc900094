"""The rows of the comparison for Magnetar."""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from collections.abc import Awaitable, Callable

import magnetar
from benchmarks.peers.clients.measuring import (
    ARRIVAL_PATIENCE_S,
    CHUNK_MESSAGES,
    COMMIT_PERIOD_S,
    PACE_S,
    POLL_S,
    PROBE_PERIOD_S,
    Round,
    Task,
    say,
    wait_for_line,
)
from benchmarks.runner import run
from magnetar import Client, Consumer, Producer, Transaction

# At the front of a value: when it was sent, in seconds.
SENT = struct.Struct("<d")
RECEIVER_QUEUE_MESSAGES = 100_000
# As benchmarks.streams has it.
BATCH_CALL_MESSAGES = 10_000
# Inputs that are received at a time before a round.
INPUTS_PER_S_MAX = 5_000
HANGING_TIMEOUT_S = 900.0


class Rows:
    """The work of one task."""

    def __init__(self, client: Client, task: Task) -> None:
        self._client = client
        self._task = task

    async def fill(self) -> None:
        await self._create(self._task.topic)
        count = self._task.number("count")
        async with await self._client.create_producer(self._task.topic) as producer:
            measured = Round()
            for start in range(0, count, BATCH_CALL_MESSAGES):
                await producer.send_many(
                    [self._task.value] * min(BATCH_CALL_MESSAGES, count - start)
                )
            await producer.flush()
            measured.end()
        measured.result(count, count, await self._stored())

    async def transactions(self) -> None:
        task, client = self._task, self._client
        inputs_topic = f"{task.topic}-inputs"
        await self._create(task.topic)
        await self._create(inputs_topic)
        producer = await client.create_producer(task.topic, linger_ms=0)
        inputs = await client.create_producer(inputs_topic, linger_ms=0, batch_messages_max=1)
        consumer = await client.subscribe(inputs_topic, "inputs", initial_position="earliest")
        received: list[magnetar.Message] = []
        for measured, seconds in task.rounds():
            needed = int(INPUTS_PER_S_MAX * seconds) + task.number("at_once")
            for number in range(needed - len(received)):
                await inputs.enqueue(task.value)
                if number % CHUNK_MESSAGES == 0:
                    await inputs.flush()
            await inputs.flush()
            while len(received) < needed:
                received += await consumer.receive_batch()
            commits_s: list[float] = []
            before = await self._stored()
            one_round = Round(measured=measured)
            deadline_s = time.perf_counter() + seconds

            work = (
                self._transact(producer, consumer, received, number, deadline_s, commits_s)
                for number in range(task.number("at_once"))
            )
            await asyncio.gather(*work)
            one_round.end()
            finished = len(commits_s)
            arrived = await self._awaited(2 * finished, before)
            one_round.result(finished, 2 * finished, arrived, {"commit()": commits_s})

    async def _transact(
        self,
        producer: Producer,
        consumer: Consumer,
        received: list[magnetar.Message],
        first: int,
        deadline_s: float,
        commits_s: list[float],
    ) -> None:
        """Small transactions, one after the other."""
        value, partitions = self._task.value, self._task.partitions
        while time.perf_counter() < deadline_s and received:
            txn = await self._client.begin_transaction(lazy=True)
            for step in (0, 1):
                producer.send_nowait(value, partition=(first + step) % partitions, txn=txn)
            consumer.ack_nowait([received.pop()], txn=txn)
            first += 1
            await _commit(txn, commits_s)

    async def produce(self) -> None:
        await self._create(self._task.topic)
        producer = await self._client.create_producer(self._task.topic)
        for measured, seconds in self._task.rounds():
            before = await self._stored()
            one_round = Round(measured=measured)
            deadline_s = time.perf_counter() + seconds
            sent = 0
            while time.perf_counter() < deadline_s:
                sent += await self._send_chunk(producer, sent)
            await producer.flush()
            one_round.end()
            one_round.result(sent, sent, await self._awaited(sent, before))

    async def transactional(self) -> None:
        """The next transaction begins while the last one commits."""
        await self._create(self._task.topic)
        producer = await self._client.create_producer(self._task.topic)
        for measured, seconds in self._task.rounds():
            before = await self._stored()
            one_round = Round(measured=measured)
            deadline_s = time.perf_counter() + seconds
            sent = 0
            commits_s: list[float] = []
            committing: asyncio.Task[None] | None = None
            while time.perf_counter() < deadline_s:
                txn = await self._client.begin_transaction()
                commit_at_s = time.perf_counter() + COMMIT_PERIOD_S
                while time.perf_counter() < commit_at_s:
                    sent += await self._send_chunk(producer, sent, txn)
                if committing is not None:
                    await committing
                committing = asyncio.create_task(_commit(txn, commits_s))
            if committing is not None:
                await committing
            one_round.end()
            arrived = await self._awaited(sent, before)
            one_round.result(sent, sent, arrived, {"commit()": commits_s})

    async def consume(self) -> None:
        """A subscription of its own in each round."""
        for number, (measured, _) in enumerate(self._task.rounds()):
            consumer = await self._client.subscribe(
                self._task.topic,
                f"round-{number}-{self._task.call}",
                initial_position="earliest",
                receiver_queue_messages=RECEIVER_QUEUE_MESSAGES,
            )
            receive = {
                "columns": _receive_columns,
                "messages, acked once": _receive_batch,
                "messages, acked each": _receive_each,
            }[self._task.call]
            one_round = Round(measured=measured)
            seen = 0
            while seen < self._task.number("count"):
                seen += await receive(consumer)
            await consumer.flush_acks()
            one_round.end()
            one_round.result(seen, await self._stored(), seen)
            await consumer.close()

    async def transform(self) -> None:
        task = self._task
        outputs = f"{task.topic}-outputs"
        await self._create(outputs)
        producer = await self._client.create_producer(outputs)
        consumer = await self._client.subscribe(
            task.topic, "transform", initial_position="earliest"
        )
        commits_s: list[float] = []
        one_round = Round()
        seen = 0
        while seen < task.number("count"):
            messages = await consumer.receive_batch(CHUNK_MESSAGES)
            txn = await self._client.begin_transaction(lazy=True)
            for message in messages:
                producer.send_nowait(message.value, partition=message.partition, txn=txn)
            consumer.ack_nowait(messages, txn=txn)
            await _commit(txn, commits_s)
            seen += len(messages)
        one_round.end()
        arrived = await self._awaited(seen, 0, outputs)
        one_round.result(seen, task.number("count"), arrived, {"commit()": commits_s})

    async def hanging(self) -> None:
        await self._create(self._task.topic)
        producer = await self._client.create_producer(self._task.topic, linger_ms=0)
        tail = await Tail.create(self._task)
        seconds = float(self._task.text("seconds"))
        await self._probe(producer, tail, float(self._task.text("warm_up_seconds")), None)
        for hangs in (False, True):
            before = await self._stored()
            txn: Transaction | None = None
            if hangs:
                txn = await self._client.begin_transaction(timeout_s=HANGING_TIMEOUT_S)
                for partition in range(self._task.partitions):
                    await producer.send(b"", partition=partition, txn=txn)
            one_round = Round()
            sends_s = await self._probe(producer, tail, seconds, txn)
            one_round.end()
            sent = len(sends_s)
            one_round.result(
                sent,
                sent,
                await self._awaited(sent, before),
                {"send": sends_s, "send to receive": tail.latencies_s},
                "one transaction hangs" if hangs else "none hangs",
            )
        await tail.close()

    async def tailing(self) -> None:
        await self._create(self._task.topic)
        producer = await self._client.create_producer(self._task.topic, linger_ms=1)
        tail = await Tail.create(self._task)
        padding = bytes(self._task.number("message_bytes") - SENT.size)
        rate = self._task.number("rate")
        for measured, seconds in self._task.rounds():
            before = await self._stored()
            tail.latencies_s = []
            one_round = Round(measured=measured)
            began_s = time.perf_counter()
            sent = 0
            while (elapsed_s := time.perf_counter() - began_s) < seconds:
                while sent < int(elapsed_s * rate):
                    value = SENT.pack(time.perf_counter()) + padding
                    await producer.enqueue(value, partition=sent % self._task.partitions)
                    sent += 1
                await asyncio.sleep(PACE_S)
            await producer.flush()
            await tail.wait(sent)
            one_round.end()
            arrived = await self._awaited(sent, before)
            one_round.result(sent, sent, arrived, {"send to receive": tail.latencies_s})
        await tail.close()

    async def restart(self) -> None:
        count = self._task.number("count")
        await self._create(self._task.topic)
        producer = await self._client.create_producer(self._task.topic)
        for start in range(0, count, BATCH_CALL_MESSAGES):
            await producer.send_many([self._task.value] * min(BATCH_CALL_MESSAGES, count - start))
        await producer.flush()
        one_round = Round()
        say({"event": "kill"})
        await asyncio.to_thread(wait_for_line)
        await producer.send(self._task.value, partition=0)
        say({"event": "back"})
        one_round.end()
        one_round.result(1, count + 1, await self._awaited(count + 1, 0))

    async def _probe(
        self, producer: Producer, tail: Tail, seconds: float, txn: Transaction | None
    ) -> list[float]:
        """Send single messages, abort what hangs, and wait until the reader has all of them.

        Returns: how long each send took.
        """
        tail.latencies_s = []
        sends_s: list[float] = []
        deadline_s = time.perf_counter() + seconds
        while (called_s := time.perf_counter()) < deadline_s:
            partition = len(sends_s) % self._task.partitions
            await producer.send(SENT.pack(called_s), partition=partition)
            sends_s.append(time.perf_counter() - called_s)
            await asyncio.sleep(PROBE_PERIOD_S)
        if txn is not None:
            await txn.abort()
        await tail.wait(len(sends_s))
        return sends_s

    async def _send_chunk(
        self, producer: Producer, sent: int, txn: Transaction | None = None
    ) -> int:
        value = self._task.value
        if self._task.call == "batch call":
            await producer.send_many([value] * BATCH_CALL_MESSAGES, txn=txn)
            return BATCH_CALL_MESSAGES
        in_turn = self._task.number("in_turn", 0) == 1
        for number in range(sent, sent + CHUNK_MESSAGES):
            partition = number % self._task.partitions if in_turn else None
            await producer.enqueue(value, partition=partition, txn=txn)
        return CHUNK_MESSAGES

    async def _create(self, topic: str) -> None:
        try:
            await self._client.admin.topics.create(topic, partitions=self._task.partitions)
        except magnetar.TopicExists:
            pass

    async def _stored(self, topic: str | None = None) -> int:
        """The sum of the partitions' end offsets."""
        found = await self._client.admin.topics.list_offsets(topic or self._task.topic)
        return sum(one.end_offset for one in found.partitions)

    async def _awaited(self, expected: int, before: int, topic: str | None = None) -> int:
        """What has arrived, once it is as much as expected, or when waiting has been in vain."""
        deadline_s = time.monotonic() + ARRIVAL_PATIENCE_S
        while (found := await self._stored(topic) - before) != expected:
            if time.monotonic() > deadline_s:
                break
            await asyncio.sleep(POLL_S)
        return found


class Tail:
    """A reader of everything that is committed from now on, on a connection of its own."""

    def __init__(self, client: Client, consumer: Consumer) -> None:
        self.latencies_s: list[float] = []
        self._client = client
        self._consumer = consumer
        self._following = asyncio.create_task(self._follow())

    @classmethod
    async def create(cls, task: Task) -> Tail:
        client = await magnetar.connect(task.text("address"))
        return cls(client, await client.subscribe(task.topic, "tail"))

    async def wait(self, count: int) -> None:
        """Until so many were received."""
        deadline_s = time.monotonic() + ARRIVAL_PATIENCE_S
        while len(self.latencies_s) < count and time.monotonic() < deadline_s:
            await asyncio.sleep(PACE_S)

    async def close(self) -> None:
        self._following.cancel()
        await self._client.close()

    async def _follow(self) -> None:
        while True:
            for columns in await self._consumer.receive_columns():
                now_s = time.perf_counter()
                self.latencies_s += [
                    now_s - SENT.unpack_from(value)[0] for value in columns.values() if value
                ]
                self._consumer.ack_nowait(columns)


async def _commit(txn: Transaction, commits_s: list[float]) -> None:
    called_s = time.perf_counter()
    await txn.commit()
    commits_s.append(time.perf_counter() - called_s)


async def _receive_columns(consumer: Consumer) -> int:
    seen = 0
    for columns in await consumer.receive_columns():
        seen += len(columns)
        consumer.ack_nowait(columns)
    return seen


async def _receive_batch(consumer: Consumer) -> int:
    messages = await consumer.receive_batch()
    seen = sum(1 for message in messages if message.value)
    consumer.ack_nowait(messages)
    return seen


async def _receive_each(consumer: Consumer) -> int:
    messages = await consumer.receive_batch()
    seen = 0
    for message in messages:
        seen += 1 if message.value else 0
        consumer.ack_nowait(message)
    return seen


async def main(arguments: list[str]) -> None:
    task = Task(arguments)
    async with await magnetar.connect(task.text("address")) as client:
        work: Callable[[], Awaitable[None]] = getattr(Rows(client, task), task.text("work"))
        await work()


if __name__ == "__main__":
    run(main(sys.argv[1:]))
