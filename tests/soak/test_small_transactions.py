"""A million small transactions: once retention has caught up, memory and disk stop growing.

SOAK_TRANSACTIONS names another number, SOAK_AT_ONCE how many run at a time, each with a producer of
its own, and SOAK_RATE how many begin in a second at most: beside other work the rate changes, and
disk and memory with it. SOAK_MESSAGE_BYTES and SOAK_PARTITIONS_WRITTEN make each transaction
smaller or larger. With SOAK_INPUTS_TOGETHER, one of so many transactions acknowledges so many
inputs: a slow machine does ten million of them in two hours. With `-s` the figures are shown for
success too.
"""

from __future__ import annotations

import asyncio
import csv
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import mean

import pytest
from benchmarks.runner import run
from benchmarks.servers import Servers, started
from tests.waiting import pace

import magnetar
from magnetar import Client, Consumer, Producer

TRANSACTIONS = int(os.environ.get("SOAK_TRANSACTIONS", "1000000"))
AT_ONCE = int(os.environ.get("SOAK_AT_ONCE", "64"))
RATE_MAX = float(os.environ.get("SOAK_RATE", "inf"))
# Of so many transactions, one acknowledges that many inputs.
INPUTS_TOGETHER = int(os.environ.get("SOAK_INPUTS_TOGETHER", "1"))
PARTITIONS = 8
PARTITIONS_WRITTEN = int(os.environ.get("SOAK_PARTITIONS_WRITTEN", "2"))
MESSAGE_BYTES = int(os.environ.get("SOAK_MESSAGE_BYTES", "1024"))
RETENTION_MS = 60_000
# An outcome has to be kept for as long as a transaction may last.
SETTINGS = {
    "MAGNETAR_OUTCOME_RETENTION_MS": str(RETENTION_MS),
    "MAGNETAR_TXN_TIMEOUT_MS_MAX": str(RETENTION_MS),
}
INPUTS_AHEAD = 2_000
SAMPLE_PERIOD_S = 1.0
# Of the last quarter's figures over the second quarter's.
GROWTH_MAX = 1.05


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of both servers at one moment; disk is the size of their directory."""

    at_s: float
    finished: int
    broker_bytes: int
    coordinator_bytes: int
    disk_bytes: int


class Pipeline:
    """Inputs, the transactions that turn each into outputs, and who follows those."""

    def __init__(self) -> None:
        self.begun = 0
        self._started_s = time.monotonic()
        self._begins = asyncio.Event()
        self.finished = 0

    async def run(self, client: Client, following_client: Client) -> None:
        """Returns when all transactions are committed."""
        for topic in ("inputs", "outputs"):
            await client.admin.topics.create(
                topic, partitions=PARTITIONS, retention_ms=RETENTION_MS
            )
        inputs = await client.subscribe("inputs", "transactions", initial_position="earliest")
        outputs = await following_client.subscribe("outputs", "follower")
        beside = [
            asyncio.create_task(self._feed(await client.create_producer("inputs"))),
            asyncio.create_task(_follow(outputs)),
        ]
        working = [
            self._transact(client, inputs, await client.create_producer("outputs", linger_ms=0))
            for _ in range(AT_ONCE)
        ]
        try:
            await asyncio.gather(*working)
        finally:
            for task in beside:
                task.cancel()

    async def _feed(self, producer: Producer) -> None:
        """Inputs, a few ahead of their consumers, so that they are consumed when they are old."""
        value = bytes(MESSAGE_BYTES)
        sent = 0
        while True:
            self._begins.clear()
            while sent < self.begun + INPUTS_AHEAD:
                await producer.enqueue(value)
                sent += 1
            await self._begins.wait()

    async def _transact(self, client: Client, inputs: Consumer, producer: Producer) -> None:
        value = bytes(MESSAGE_BYTES)
        while self.begun < TRANSACTIONS:
            self.begun += 1
            self._begins.set()
            first = self.begun
            await self._turn(first)
            messages = (
                [await inputs.receive() for _ in range(INPUTS_TOGETHER)]
                if first % INPUTS_TOGETHER == 0
                else ()
            )
            txn = await client.begin_transaction()
            for step in range(PARTITIONS_WRITTEN):
                producer.send_nowait(value, partition=(first + step) % PARTITIONS, txn=txn)
            for message in messages:
                inputs.ack_nowait(message, txn=txn)
            await txn.commit()
            self.finished += 1

    async def _turn(self, number: int) -> None:
        """Returns when that many transactions may have begun."""
        early_s = self._started_s + number / RATE_MAX - time.monotonic()
        if early_s > 0:
            await pace(early_s)


async def _follow(outputs: Consumer) -> None:
    while True:
        for columns in await outputs.receive_columns():
            outputs.ack_nowait(columns)


@pytest.mark.soak
def test_memory_and_disk_stay_what_they_are(tmp_path: Path) -> None:
    samples: list[Sample] = []

    async def program(servers: Servers) -> None:
        pipeline = Pipeline()
        sampling = asyncio.create_task(_sample(servers, pipeline, samples))
        async with (
            await magnetar.connect(servers.address) as client,
            await magnetar.connect(servers.address) as following_client,
        ):
            await pipeline.run(client, following_client)
        sampling.cancel()

    try:
        with started(tmp_path, settings=SETTINGS) as servers:
            run(program(servers))
    finally:
        _write(samples, tmp_path / "samples.csv")
    seconds = samples[-1].at_s - samples[0].at_s
    print(f"\n{TRANSACTIONS / seconds:,.0f} transactions/s; {tmp_path / 'samples.csv'}")
    grown = [
        line
        for name, value_of in FIGURES.items()
        for line in _grown(name, [value_of(sample) for sample in samples])
    ]
    assert not grown, grown


FIGURES: dict[str, Callable[[Sample], int]] = {
    "broker, resident": lambda sample: sample.broker_bytes,
    "coordinator, resident": lambda sample: sample.coordinator_bytes,
    "disk": lambda sample: sample.disk_bytes,
}


async def _sample(servers: Servers, pipeline: Pipeline, samples: list[Sample]) -> None:
    while True:
        samples.append(
            Sample(
                time.monotonic(),
                pipeline.finished,
                *servers.resident_bytes(),
                _occupied_bytes(servers.data_dir),
            )
        )
        await pace(SAMPLE_PERIOD_S)


def _occupied_bytes(directory: Path) -> int:
    """Return the size of all files; files that vanish meanwhile do not count."""
    count = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                count += os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return count


def _grown(name: str, values: Sequence[int]) -> list[str]:
    """Complaints about a mean or a maximum that grew; prints each quarter."""
    size = len(values) // 4
    quarters = [values[at * size : (at + 1) * size] for at in range(4)]
    complaints = []
    for kind, summary in (("mean", mean), ("maximum", max)):
        mib = [summary(quarter) / (1 << 20) for quarter in quarters]
        growth = mib[3] / mib[1]
        line = f"{name}, {kind} MiB by quarter: {', '.join(f'{one:.1f}' for one in mib)}"
        line += f" (last / second {growth:.3f})"
        print(line)
        if growth > GROWTH_MAX:
            complaints.append(line)
    return complaints


def _write(samples: Sequence[Sample], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Sample))
        writer.writerows(astuple(sample) for sample in samples)
