"""How long a group's partitions stand still: a member is killed, leaves, or joins."""

from __future__ import annotations

import asyncio
import signal
import struct
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import magnetar
from benchmarks.results import Result, quantile
from magnetar import Client, GroupConsumer, Producer

TOPIC = "rebalance"
GROUP = "rebalance"
PARTITIONS = 16
RATE_PER_S = 3_200
SESSION_TIMEOUT_S = 1.0
SENT = struct.Struct("<d")
PACE_S = 0.002
# Between two changes, and before the first.
SETTLED_S = 1.0
STAYING_MEMBERS = 3
ROUNDS = 5


class Watched:
    """Members in this process, and when each partition's messages came.

    Attributes:
        newest_s: of each partition's latest message.
        gaps_s: since the last reset, the longest time between two messages of each partition, by
            partition and member.
    """

    def __init__(self) -> None:
        self.newest_s: dict[int, float] = {}
        self.first_s: dict[int, tuple[float, GroupConsumer]] = {}
        self.gaps_s: dict[int, float] = {}

    def reset(self) -> None:
        self.first_s.clear()
        self.gaps_s.clear()

    async def follow(self, consumer: GroupConsumer) -> None:
        while True:
            for columns in await consumer.receive_columns(timeout_s=0.05):
                now_s = time.perf_counter()
                partition = columns.partition
                self.first_s.setdefault(partition, (now_s, consumer))
                if partition in self.newest_s:
                    gap_s = now_s - self.newest_s[partition]
                    self.gaps_s[partition] = max(gap_s, self.gaps_s.get(partition, 0.0))
                self.newest_s[partition] = now_s
                with suppress(magnetar.IllegalGeneration):
                    consumer.ack_nowait(columns)


async def measure(client: Client, address: str) -> AsyncIterator[Result]:
    """Yield how long partitions stood still, for each kind of change.

    Args:
        address: of the broker; each member has a connection of its own.
    """
    await client.admin.topics.create(TOPIC, partitions=PARTITIONS)
    sending = asyncio.create_task(_send(await client.create_producer(TOPIC)))
    watched = Watched()
    clients = [await magnetar.connect(address) for _ in range(STAYING_MEMBERS)]
    members = [await _join(one) for one in clients]
    following = [asyncio.create_task(watched.follow(one)) for one in members]
    killed_s: list[float] = []
    left_s: list[float] = []
    moved_s: list[float] = []
    stayed_s: list[float] = []
    undisturbed_s: list[float] = []
    for _ in range(ROUNDS):
        await asyncio.sleep(SETTLED_S)
        watched.reset()
        await asyncio.sleep(SETTLED_S)
        undisturbed_s += watched.gaps_s.values()
        before = {place.partition: one for one in members for place in one.assignment}
        # A fourth member joins, as a process of its own that was started before.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.rebalance", address),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(SETTLED_S)
        watched.reset()
        process.stdin.write(b"join\n")
        await process.stdout.readline()
        await asyncio.sleep(SETTLED_S)
        after = {place.partition: one for one in members for place in one.assignment}
        stayed_s += [
            gap_s
            for partition, gap_s in watched.gaps_s.items()
            if after.get(partition) is not None and after[partition] is before.get(partition)
        ]
        # It is killed: the others get its partitions when its session is over.
        away = [one for one in range(PARTITIONS) if one not in after]
        watched.reset()
        began_s = time.perf_counter()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        killed_s += [at_s - began_s for at_s in await _first_of(watched, away)]
        # One of this process leaves, and comes again.
        await asyncio.sleep(SETTLED_S)
        leaving = members.pop()
        following.pop().cancel()
        away = [place.partition for place in leaving.assignment]
        watched.reset()
        began_s = time.perf_counter()
        await leaving.close()
        left_s += [at_s - began_s for at_s in await _first_of(watched, away)]
        await asyncio.sleep(SETTLED_S)
        watched.reset()
        began_s = time.perf_counter()
        joining = await _join(clients[-1])
        members.append(joining)
        following.append(asyncio.create_task(watched.follow(joining)))
        while not joining.assignment:
            await asyncio.sleep(0.001)
        moved = [place.partition for place in joining.assignment]
        watched.reset()
        moved_s += [at_s - began_s for at_s in await _first_of(watched, moved)]
    for task in [sending, *following]:
        task.cancel()
    for one in clients:
        await one.close()
    yield _result(
        f"killed, session {SESSION_TIMEOUT_S:.0f} s", "kill to new owner's first", killed_s
    )
    yield _result("leaves", "leave to new owner's first", left_s)
    yield _result("joins", "join to first on what moves", moved_s)
    yield _result("joins, what stays", "longest gap of a partition", stayed_s)
    yield _result("undisturbed", "longest gap of a partition", undisturbed_s)


async def _first_of(watched: Watched, partitions: list[int]) -> list[float]:
    """When the first message of each came."""
    while not all(one in watched.first_s for one in partitions):
        await asyncio.sleep(0.001)
    return [watched.first_s[one][0] for one in partitions]


async def _join(client: Client) -> GroupConsumer:
    return await client.consumer_group(
        GROUP, TOPIC, session_timeout_s=SESSION_TIMEOUT_S, initial_position="latest"
    )


async def _send(producer: Producer) -> None:
    began_s = time.perf_counter()
    sent = 0
    while True:
        for number in range(sent, int((time.perf_counter() - began_s) * RATE_PER_S)):
            value = SENT.pack(time.perf_counter())
            await producer.enqueue(value, partition=number % PARTITIONS)
            sent += 1
        await asyncio.sleep(PACE_S)


def _result(variant: str, latency_of: str, seconds: list[float]) -> Result:
    seconds.sort()
    return Result(
        workload="rebalance",
        variant=variant,
        scale=PARTITIONS,
        latency_of=latency_of,
        p50_ms=quantile(seconds, 0.5) * 1000,
        p99_ms=quantile(seconds, 0.99) * 1000,
    )


async def _be_killed(address: str) -> None:
    """A member in a process of its own: joins when it is told to, and says when it receives."""
    async with await magnetar.connect(address) as client:
        print("connected", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        consumer = await _join(client)
        received = False
        while True:
            for columns in await consumer.receive_columns(timeout_s=0.05):
                with suppress(magnetar.IllegalGeneration):
                    consumer.ack_nowait(columns)
                if not received:
                    received = True
                    print("receives", flush=True)


if __name__ == "__main__":
    asyncio.run(_be_killed(sys.argv[1]))
