"""One broker beside several on this machine: `python -m benchmarks.brokers`.

Client processes write transactions of batches, so that a single client is not what is measured.
Processor time is summed up over the processes of each part: where there are fewer cores than
processes, it says what more cores would bring.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

import magnetar
from benchmarks.runner import run
from benchmarks.servers import cpu_s, started

TOPIC = "brokers"
PARTITIONS = 8
VALUE_BYTES = 1_024
BATCH_MESSAGES = 64
# In each of which a client writes one batch to every partition.
TRANSACTIONS_AT_ONCE = 4
START_TIMEOUT_S = 60


class Measured(NamedTuple):
    """One run.

    Attributes:
        servers_cpu_us: of all brokers and the coordinator, for each message.
        busiest_broker_cpu_us: of the broker that used most, for each message of the run.
    """

    messages_per_s: float
    servers_cpu_us: float
    busiest_broker_cpu_us: float
    clients_cpu_us: float


def measure(brokers: int, clients: int, seconds: float) -> Measured:
    with started(brokers=brokers) as servers:
        run(_create(servers.address))
        asked = [
            *(sys.executable, "-m", "benchmarks.brokers"),
            *("--client", servers.address, "--seconds", str(seconds)),
        ]
        ready = servers.ready()
        broker_pids = [one["pid"] for one in ready["brokers"]]
        other_pids = [one["pid"] for one in ready["coordinators"]]
        processes = [
            subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(clients)
        ]
        for one in processes:
            assert one.stdout is not None
            one.stdout.readline()
        before_s = [cpu_s(pid) for pid in broker_pids + other_pids]
        for one in processes:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        told = [
            json.loads(one.communicate(timeout=START_TIMEOUT_S + seconds)[0]) for one in processes
        ]
        used_s = [
            cpu_s(pid) - then_s
            for pid, then_s in zip(broker_pids + other_pids, before_s, strict=True)
        ]
    count = sum(one["messages"] for one in told)
    return Measured(
        count / max(one["seconds"] for one in told),
        sum(used_s) * 1e6 / count,
        max(used_s[: len(broker_pids)]) * 1e6 / count,
        sum(one["cpu_s"] for one in told) * 1e6 / count,
    )


async def _create(address: str) -> None:
    async with await magnetar.connect(address) as client:
        await client.admin.topics.create(TOPIC, partitions=PARTITIONS)


async def _be_client(address: str, seconds: float) -> dict[str, float]:
    async with await magnetar.connect(address) as client:
        producer = await client.create_producer(TOPIC)
        values = [bytes(VALUE_BYTES)] * BATCH_MESSAGES
        count = 0

        async def transact(until_s: float) -> None:
            nonlocal count
            while time.perf_counter() < until_s:
                async with client.transaction() as txn:
                    for partition in range(PARTITIONS):
                        await producer.send_many(values, partition=partition, txn=txn)
                count += PARTITIONS * BATCH_MESSAGES

        async def all_transact(duration_s: float) -> None:
            until_s = time.perf_counter() + duration_s
            await asyncio.gather(*(transact(until_s) for _ in range(TRANSACTIONS_AT_ONCE)))

        await all_transact(0.5)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        count = 0
        began_s, cpu_before_s = time.perf_counter(), cpu_s(os.getpid())
        await all_transact(seconds)
        return {
            "messages": count,
            "seconds": time.perf_counter() - began_s,
            "cpu_s": cpu_s(os.getpid()) - cpu_before_s,
        }


@click.command()
@click.option("--brokers", multiple=True, default=(1, 4), show_default=True)
@click.option("--clients", default=4, show_default=True)
@click.option("--seconds", default=5.0, show_default=True)
@click.option("--repeat", default=3, show_default=True)
@click.option("--client", hidden=True, help="Be a client of the broker at this address.")
def main(
    brokers: tuple[int, ...], clients: int, seconds: float, repeat: int, client: str | None
) -> None:
    """Measure one broker beside several, in turn, and show medians."""
    if client is not None:
        print(json.dumps(run(_be_client(client, seconds))), flush=True)
        return
    runs: dict[int, list[Measured]] = {count: [] for count in brokers}
    for _ in range(repeat):
        for count in brokers:
            runs[count].append(measure(count, clients, seconds))
    table = Table("brokers", *("messages/s", "servers us", "busiest broker us", "clients us"))
    for count, found in runs.items():
        middle = [median(column) for column in zip(*found, strict=True)]
        table.add_row(str(count), f"{middle[0]:,.0f}", *(f"{one:.2f}" for one in middle[1:]))
    Console().print(table)


if __name__ == "__main__":
    main()
