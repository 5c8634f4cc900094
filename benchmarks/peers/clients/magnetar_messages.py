"""The rows of the comparison that have no transactions, for Magnetar."""

from __future__ import annotations

import asyncio
import time

import magnetar
from benchmarks.peers.clients.magnetar_access import BATCH_CALL_MESSAGES, SENT, Access, Tail
from benchmarks.peers.clients.measuring import (
    CHUNK_MESSAGES,
    PACE_S,
    Round,
    say,
    wait_for_line,
)
from magnetar import Consumer, Producer

RECEIVER_QUEUE_MESSAGES = 100_000


class MessageRows(Access):
    """Messages that are produced and consumed."""

    async def fill(self) -> None:
        count = self._task.number("count")
        await self._create(self._task.topic)
        async with await self._client.create_producer(self._task.topic) as producer:
            one_round = Round()
            await self._send_many(producer, count)
            one_round.end()
        one_round.result(count, count, await self._stored())

    async def produce(self) -> None:
        """Each producer has a connection of its own."""
        await self._create(self._task.topic)
        clients = [
            await magnetar.connect(self._task.text("address"))
            for _ in range(self._task.number("producers", 1))
        ]
        producers = [await client.create_producer(self._task.topic) for client in clients]
        for measured, seconds in self._task.rounds():
            before = await self._stored()
            one_round = Round(measured=measured)
            deadline_s = time.perf_counter() + seconds
            sent = sum(
                await asyncio.gather(
                    *(self._send_until(producer, deadline_s) for producer in producers)
                )
            )
            one_round.end()
            one_round.result(sent, sent, await self._awaited(sent, before))
        for client in clients:
            await client.close()

    async def consume(self) -> None:
        """A subscription of its own in each round."""
        receive = {
            "columns": _receive_columns,
            "messages, acked once": _receive_batch,
            "messages, acked each": _receive_each,
        }[self._task.call]
        for number, measured in enumerate(self._task.readings()):
            consumer = await self._client.subscribe(
                self._task.topic,
                f"round-{number}-{self._task.call}",
                initial_position="earliest",
                receiver_queue_messages=RECEIVER_QUEUE_MESSAGES,
            )
            one_round = Round(measured=measured)
            seen = 0
            while seen < self._task.number("count"):
                seen += await receive(consumer)
            await consumer.flush_acks()
            one_round.end()
            one_round.result(seen, await self._stored(), seen)
            await consumer.close()

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
        await self._send_many(producer, count)
        one_round = Round()
        say({"event": "kill"})
        await asyncio.to_thread(wait_for_line)
        await producer.send(self._task.value, partition=0)
        say({"event": "back"})
        one_round.end()
        one_round.result(1, count + 1, await self._awaited(count + 1, 0))

    async def _send_until(self, producer: Producer, deadline_s: float) -> int:
        """Send until a time; return how many were sent and confirmed."""
        value, partitions = self._task.value, self._task.partitions
        in_turn = self._task.number("in_turn", 0) == 1
        sent = 0
        while time.perf_counter() < deadline_s:
            if self._task.call == "batch call":
                await producer.send_many([value] * BATCH_CALL_MESSAGES)
                sent += BATCH_CALL_MESSAGES
            else:
                for number in range(sent, sent + CHUNK_MESSAGES):
                    partition = number % partitions if in_turn else None
                    await producer.enqueue(value, partition=partition)
                sent += CHUNK_MESSAGES
        await producer.flush()
        return sent


async def _receive_columns(consumer: Consumer) -> int:
    seen = 0
    for columns in await consumer.receive_columns():
        seen += sum(map(bool, columns.values()))
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
