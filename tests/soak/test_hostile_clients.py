"""Beside hostile clients a broker stays small, and others are served.

What it may take at most is added up from its limits. With `-s` the figures are shown for success
too. How long others wait is a figure of this machine: run it while nothing else does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from benchmarks.results import latencies_ms
from benchmarks.runner import run
from benchmarks.servers import Servers, started
from tests.soak.hostile_client import LINKS, TOPIC
from tests.waiting import pace

import magnetar
from magnetar import Client
from magnetar_broker.config import BrokerConfig
from magnetar_core.config import ListenConfig
from magnetar_core.transport.frames import FRAME_READ_WHOLE_BYTES_MAX

SECONDS = 20.0
# Of one partition's log, so that reads of 16 MiB find as much.
FILL_BYTES = 40 << 20
P99_MS_MAX = 250.0
SAMPLE_PERIOD_S = 0.05

# What is read of a command takes up to so many times the memory of what was sent.
READING_FACTOR = 50
# Memtables, the block cache, and what allocators keep; measured with neither links nor tails.
STORE_BYTES = 300 << 20


def bound_bytes(idle_bytes: int, links: int) -> int:
    """Return the sum of a broker's limits on memory beside a number of conversations."""
    broker, listen = BrokerConfig(), ListenConfig()
    # What was dropped of a tail is held for a while: a third.
    tails = broker.tails_bytes_max * 4 // 3
    # An answer is begun while half is free; it has 16 MiB, and a batch that exceeds that.
    answers = listen.session_answer_bytes_max // 2 + (16 << 20) + broker.batch_bytes_max
    pushes = listen.session_push_bytes_max + broker.constants.dispatch_bytes_max
    # gRPC has a frame, and we have it; its commands are read one by one.
    frames = 2 * listen.frame_bytes_max
    # Once, not for each: one frame is read, and one batch opened, at a time.
    reading = READING_FACTOR * FRAME_READ_WHOLE_BYTES_MAX
    opened = 3 * broker.batch_body_bytes_max
    return (
        idle_bytes
        + STORE_BYTES
        + tails
        + links * (2 * answers + pushes + frames)
        + reading
        + opened
    )


@dataclass(slots=True)
class Watched:
    """Measurements beside hostile clients."""

    peak_bytes: int = 0
    sends_s: list[float] = field(default_factory=list)
    reads_s: list[float] = field(default_factory=list)
    commits_s: list[float] = field(default_factory=list)

    def told(self, kind: str, bound: int) -> str:
        parts = [f"{kind}: RSS {self.peak_bytes >> 20} MiB, bound {bound >> 20} MiB"]
        for name, taken_s in (
            ("send", self.sends_s),
            ("read", self.reads_s),
            ("transaction", self.commits_s),
        ):
            p50_ms, p99_ms = latencies_ms(taken_s)
            parts.append(f"{name} {p50_ms:.1f} / {p99_ms:.1f} ms ({len(taken_s)})")
        return "; ".join(parts)


@contextmanager
def hostile(kind: str, address: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.hostile_client", kind, address],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        assert process.poll() is None, "it ended before it was stopped"
    finally:
        process.kill()
        process.wait()


async def beside(client: Client, servers: Servers, seconds: float) -> Watched:
    """Another client's sends, reads and transactions, one after the other."""
    watched = Watched()
    producer = await client.create_producer("other")
    end_s = time.perf_counter() + seconds

    async def watch() -> None:
        while time.perf_counter() < end_s:
            watched.peak_bytes = max(watched.peak_bytes, servers.resident_bytes()[0])
            await pace(SAMPLE_PERIOD_S)

    async def serve() -> None:
        while time.perf_counter() < end_s:
            began_s = time.perf_counter()
            await producer.send(b"x" * 100)
            sent_s = time.perf_counter()
            first = [one async for one in client.read("other", 0, end=1)]
            read_s = time.perf_counter()
            assert len(first) == 1
            async with client.transaction() as txn:
                await producer.send(b"y" * 100, txn=txn)
            committed_s = time.perf_counter()
            watched.sends_s.append(sent_s - began_s)
            watched.reads_s.append(read_s - sent_s)
            watched.commits_s.append(committed_s - read_s)

    await asyncio.gather(watch(), serve())
    return watched


async def fill(client: Client) -> None:
    await client.admin.topics.create(TOPIC, partitions=2)
    await client.admin.topics.create("other")
    producer = await client.create_producer(TOPIC)
    for _ in range(FILL_BYTES // (1 << 20)):
        await producer.send(bytes(1 << 20), partition=1)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["none", "bombs", "unread", "ranges", "busy"])
def test_a_broker_stays_small_and_serves_the_others(kind: str) -> None:
    async def scenario(servers: Servers) -> tuple[Watched, int]:
        async with await magnetar.connect(servers.address) as client:
            idle_bytes = servers.resident_bytes()[0]
            await fill(client)
            if kind == "none":
                watched = await beside(client, servers, SECONDS)
            else:
                with hostile(kind, servers.address):
                    watched = await beside(client, servers, SECONDS)
            links = 1 + (LINKS if kind == "unread" else 1)
            return watched, bound_bytes(idle_bytes, links)

    with started() as servers:
        watched, bound = run(scenario(servers))
        told = watched.told(kind, bound)
        print(told)
        assert watched.peak_bytes < bound, told
        for taken_s in (watched.sends_s, watched.reads_s, watched.commits_s):
            assert latencies_ms(taken_s)[1] < P99_MS_MAX, told
