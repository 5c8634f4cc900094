"""The audit of ten million messages needs no more memory than that of a million.

SOAK_AUDIT_MESSAGES names another number. With `-s` the figures are shown for success too.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.spark.conftest import ROOT
from tests.system.processes import BROKER, Servers, peak_memory_bytes

import magnetar
from magnetar_spark.jobs.auditing.audit_checks import KINDS

MESSAGES = int(os.environ.get("SOAK_AUDIT_MESSAGES", "10000000"))
MESSAGE_BYTES = 100
TOPICS = ("one", "two")
PARTITIONS = 4
# Half of all messages are sent plainly; the others in transactions of so many, to two partitions
# of either topic.
TRANSACTION_MESSAGES = 100
AT_ONCE = 64
PLAIN_AT_ONCE = 10_000
DRIVER_MEMORY = "1g"
# What a JVM with that heap has besides: code, threads, buffers.
DRIVER_BYTES_MAX = (1 << 30) + (700 << 20)
# Its caches fill.
BROKER_BYTES_MAX = 400 << 20
# Of peaks, ten times as many messages over as many.
GROWTH_MAX = 1.5
SAMPLE_PERIOD_S = 0.2


@dataclass
class Usage:
    """By kind of process: resident bytes, the most at one moment, and processor seconds."""

    bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _seconds_of: dict[int, float] = field(default_factory=dict)

    def add(self, root: psutil.Process) -> None:
        now: dict[str, int] = defaultdict(int)
        for process in [root, *root.children(recursive=True)]:
            try:
                kind = "driver JVM" if process.name() == "java" else "Python workers"
                if process.pid == root.pid:
                    kind = "driver Python"
                now[kind] += process.memory_info().rss
                used = _processor_seconds(process)
            except psutil.NoSuchProcess:
                continue
            self.seconds[kind] += used - self._seconds_of.get(process.pid, 0.0)
            self._seconds_of[process.pid] = used
        for kind, count in now.items():
            self.bytes[kind] = max(self.bytes[kind], count)


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@pytest.mark.soak
@pytest.mark.chaos
def test_memory_does_not_grow_with_messages(java: None, tmp_path: Path) -> None:
    small = _measured(tmp_path / "small", MESSAGES // 10)
    large = _measured(tmp_path / "large", MESSAGES)
    assert large["driver JVM"] < DRIVER_BYTES_MAX
    assert large["broker"] < BROKER_BYTES_MAX
    for kind in ("driver Python", "Python workers"):
        assert large[kind] < GROWTH_MAX * small[kind], (kind, small[kind], large[kind])


def _measured(directory: Path, messages: int) -> dict[str, int]:
    directory.mkdir()
    servers = Servers(directory)
    servers.start()
    try:
        began_s = time.monotonic()
        transactions = messages // 2 // TRANSACTION_MESSAGES
        plain = messages - transactions * TRANSACTION_MESSAGES
        asyncio.run(_fill(servers.address, plain, transactions))
        filled_s = time.monotonic() - began_s
        # The broker's peak while it was filled is not the audit's.
        servers.stop()
        servers.start()
        usage = Usage()
        began_s = time.monotonic()
        report = _audited(servers.address, usage)
        seconds = time.monotonic() - began_s
        broker = servers.pid(BROKER)
        usage.bytes["broker"] = peak_memory_bytes(broker)
        usage.seconds["broker"] = _processor_seconds(psutil.Process(broker))
    finally:
        servers.stop()
    print(
        f"\n{messages:,} messages, {transactions:,} transactions: filled in {filled_s:.0f} s,"
        f" audited in {seconds:.0f} s; MiB and processor seconds: "
        + ", ".join(
            f"{kind} {count >> 20} {usage.seconds[kind]:.0f}"
            for kind, count in sorted(usage.bytes.items())
        )
    )
    assert report["counts"] == dict.fromkeys(KINDS, 0), report["findings"][:5]
    assert (report["messages"], report["transactions"]) == (messages, transactions)
    return usage.bytes


async def _fill(address: str, plain: int, transactions: int) -> None:
    async with await magnetar.connect(address) as client:
        producers = []
        for topic in TOPICS:
            await client.admin.topics.create(topic, partitions=PARTITIONS)
            producers.append(await client.create_producer(topic))
        value = b"v" * MESSAGE_BYTES
        for number, first in enumerate(range(0, plain, PLAIN_AT_ONCE)):
            values = [value] * min(PLAIN_AT_ONCE, plain - first)
            producer = producers[number % len(TOPICS)]
            await producer.send_many(values, partition=number // len(TOPICS) % PARTITIONS)
        for producer in producers:
            await producer.flush()
        numbers = iter(range(transactions))
        some = [value] * (TRANSACTION_MESSAGES // 4)

        async def commit_some() -> None:
            for number in numbers:
                async with client.transaction() as txn:
                    for producer in producers:
                        for place in (number, number + 1):
                            await producer.send_many(some, partition=place % PARTITIONS, txn=txn)

        await asyncio.gather(*(commit_some() for _ in range(AT_ONCE)))


def _audited(address: str, usage: Usage) -> Any:
    environ = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"--driver-memory {DRIVER_MEMORY} pyspark-shell",
    }
    command = [*(sys.executable, "-m", "magnetar_cli", "--broker", address)]
    command += ["pipeline", "audit", "--master", "local[2,4]", "--json"]
    ended = threading.Event()

    def sample(root: psutil.Process) -> None:
        while not ended.wait(SAMPLE_PERIOD_S):
            try:
                usage.add(root)
            except psutil.NoSuchProcess:
                return

    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        sampling = threading.Thread(target=sample, args=(psutil.Process(process.pid),))
        sampling.start()
        try:
            stdout, stderr = process.communicate()
        finally:
            ended.set()
            sampling.join()
    assert process.returncode == 0, (process.returncode, stdout[-2000:], stderr[-2000:])
    return json.loads(stdout)
