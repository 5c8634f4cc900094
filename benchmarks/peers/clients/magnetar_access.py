"""Access to Magnetar for the rows: topics, their offsets, and a reader of new messages."""

from __future__ import annotations

import asyncio
import struct
import time

import magnetar
from benchmarks.peers.clients.measuring import ARRIVAL_PATIENCE_S, PACE_S, POLL_S, Task
from magnetar import Client, Consumer, Producer, Transaction

# At the front of a value: when it was sent, in seconds.
SENT = struct.Struct("<d")
# As benchmarks.streams has it.
BATCH_CALL_MESSAGES = 10_000


class Access:
    """A client, and the task that it works on."""

    def __init__(self, client: Client, task: Task) -> None:
        self._client = client
        self._task = task

    async def _send_many(self, producer: Producer, count: int) -> None:
        for start in range(0, count, BATCH_CALL_MESSAGES):
            await producer.send_many([self._task.value] * min(BATCH_CALL_MESSAGES, count - start))
        await producer.flush()

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
        """Wait until as many messages as expected are new, or too long; return their number."""
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


async def timed_commit(txn: Transaction, commits_s: list[float]) -> None:
    called_s = time.perf_counter()
    await txn.commit()
    commits_s.append(time.perf_counter() - called_s)
