"""The rows of the comparison that have transactions, for Magnetar."""

from __future__ import annotations

import asyncio
import gc
import time

import magnetar
from benchmarks.peers.clients.magnetar_access import (
    BATCH_CALL_MESSAGES,
    SENT,
    Access,
    Tail,
    timed_commit,
)
from benchmarks.peers.clients.measuring import (
    CHUNK_MESSAGES,
    COMMIT_PERIOD_S,
    OPENED_AT_ONCE,
    PROBE_PERIOD_S,
    Round,
)
from magnetar import Consumer, Producer, Transaction, TransactionStatus

# Inputs that are received at a time before a round.
INPUTS_PER_S_MAX = 5_000
# More than any measurement lasts.
OPEN_TIMEOUT_S = 900.0


class TransactionRows(Access):
    """Transactions of all sizes."""

    async def transactions(self) -> None:
        task, client = self._task, self._client
        inputs_topic = f"{task.topic}-inputs"
        await self._create(task.topic)
        await self._create(inputs_topic)
        producer = await client.create_producer(task.topic, linger_ms=0)
        inputs = await client.create_producer(inputs_topic, linger_ms=0, batch_messages_max=1)
        consumer = await client.subscribe(inputs_topic, "inputs", initial_position="earliest")
        opened = await self._leave_open(producer, task.number("open_transactions", 0))
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
            # As docs/operations.md advises to who holds much: tens of thousands of inputs.
            gc.collect()
            gc.freeze()
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
        await self._check_open(len(opened))

    async def commits(self) -> None:
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
                    sent += await self._send_chunk(producer, txn)
                if committing is not None:
                    await committing
                committing = asyncio.create_task(timed_commit(txn, commits_s))
            if committing is not None:
                await committing
            one_round.end()
            arrived = await self._awaited(sent, before)
            one_round.result(sent, sent, arrived, {"commit()": commits_s})

    async def transform(self) -> None:
        """A subscription of its own in each round."""
        task = self._task
        outputs = f"{task.topic}-outputs"
        await self._create(outputs)
        producer = await self._client.create_producer(outputs)
        for number, measured in enumerate(task.readings()):
            consumer = await self._client.subscribe(
                task.topic, f"transform-{number}", initial_position="earliest"
            )
            before = await self._stored(outputs)
            commits_s: list[float] = []
            one_round = Round(measured=measured)
            seen = 0
            while seen < task.number("count"):
                messages = await consumer.receive_batch(CHUNK_MESSAGES)
                txn = await self._client.begin_transaction(lazy=True)
                for message in messages:
                    producer.send_nowait(message.value, partition=message.partition, txn=txn)
                consumer.ack_nowait(messages, txn=txn)
                await timed_commit(txn, commits_s)
                seen += len(messages)
            one_round.end()
            arrived = await self._awaited(seen, before, outputs)
            one_round.result(seen, task.number("count"), arrived, {"commit()": commits_s})
            await consumer.close()

    async def hanging(self) -> None:
        await self._create(self._task.topic)
        producer = await self._client.create_producer(self._task.topic, linger_ms=0)
        tail = await Tail.create(self._task)
        seconds = float(self._task.text("seconds"))
        await self._probe(producer, tail, float(self._task.text("warm_up_seconds")), None)
        for hangs in (False, True) * self._task.number("rounds"):
            before = await self._stored()
            txn: Transaction | None = None
            if hangs:
                txn = await self._client.begin_transaction(timeout_s=OPEN_TIMEOUT_S)
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
            await timed_commit(txn, commits_s)

    async def _leave_open(self, producer: Producer, count: int) -> list[Transaction]:
        """Begin transactions that have written a message each."""
        room = asyncio.Semaphore(OPENED_AT_ONCE)

        async def opened(number: int) -> Transaction:
            async with room:
                txn = await self._client.begin_transaction(timeout_s=OPEN_TIMEOUT_S)
                partition = number % self._task.partitions
                await producer.send(self._task.value, partition=partition, txn=txn)
                return txn

        return await asyncio.gather(*map(opened, range(count)))

    async def _check_open(self, expected: int) -> None:
        """Raise unless exactly these transactions are open still."""
        found = await self._client.admin.transactions.list([TransactionStatus.OPEN], limit=10_000)
        if len(found) != expected:
            raise RuntimeError(f"{len(found)} transactions are open, and not {expected}")

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

    async def _send_chunk(self, producer: Producer, txn: Transaction) -> int:
        value = self._task.value
        if self._task.call == "batch call":
            await producer.send_many([value] * BATCH_CALL_MESSAGES, txn=txn)
            return BATCH_CALL_MESSAGES
        for _ in range(CHUNK_MESSAGES):
            await producer.enqueue(value, txn=txn)
        return CHUNK_MESSAGES
