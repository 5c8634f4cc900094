"""A broker keeps its memory_bytes, whatever is in its tails."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
from tests.system.conftest import Figure
from tests.system.processes import BROKER, COORDINATOR, Servers
from tests.system.programs import run

import magnetar

MIB = 1 << 20
MEMORY_BYTES = 256 * MIB
PARTITIONS = 64
# With tails of 256 MiB, the broker would take 430 MiB for that.
ROUNDS = 400
BATCH = [os.urandom(1_000)] * 1_000


def test_tails_leave_a_broker_within_its_memory(tmp_path: Path, figure: Figure) -> None:
    servers = Servers(
        tmp_path / "servers",
        settings={"MAGNETAR_MEMORY_BYTES": str(MEMORY_BYTES)},
        counts={BROKER: 1, COORDINATOR: 1},
    )

    async def scenario() -> None:
        broker = psutil.Process(servers.pid(BROKER))
        peak_bytes = 0
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t", partitions=PARTITIONS)
            producer = await client.create_producer("t")
            for number in range(ROUNDS):
                await producer.send_many(BATCH, partition=number % PARTITIONS)
                peak_bytes = max(peak_bytes, broker.memory_info().rss)
            # Nothing that gave way is lost.
            counts = await asyncio.gather(*(_count(client, one) for one in range(PARTITIONS)))
            assert sum(counts) == ROUNDS * len(BATCH)
        figure("peak memory of the broker", f"{peak_bytes // MIB} MiB of {MEMORY_BYTES // MIB}")
        # What a container should have: the process may be above for the blink of an eye.
        assert peak_bytes <= MEMORY_BYTES * 5 // 4

    with servers.running():
        run(scenario(), timeout_s=240.0)


async def _count(client: magnetar.Client, partition: int) -> int:
    return sum([len(columns) async for columns in client.read_columns("t", partition)])
