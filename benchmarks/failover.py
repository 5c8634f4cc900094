"""`python -m benchmarks.failover`: how long partitions pause when a server of brokers is killed.

A cluster on this machine: etcd, an object server, three servers of brokers and two of coordinators.
One of the brokers' servers is killed, again and again, while a client sends to every partition;
another one joins each time. Stages, from the kill:

- its lease ends: etcd says that its shards have no owner;
- claimed: etcd says that the others have them;
- open: the last one takes conversations;
- writable: a message that was sent after the kill is acknowledged in every partition.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from functools import partial
from random import Random

import click
from rich.console import Console

import magnetar
from benchmarks.takeovers import TOPIC, Watch, clusters, figures, is_even, shares, table_of
from magnetar_cli.cluster.local.local_cluster import LocalCluster, Plan, Running
from magnetar_cluster.directory.view import BROKER

STAGES = ("its lease ends", "claimed", "open", "writable")
OPENED = re.compile(
    r"(broker-\d+) is open in epoch (\d+): its store after (\d+) ms, recovered after (\d+) ms"
)


async def kill_one(
    victim: Running, watch: Watch, producer: magnetar.Producer, partitions: int
) -> list[float]:
    """Kill a server, and return the milliseconds from then to each stage."""
    lost = shares(watch.view, BROKER)[victim.name]
    os.kill(victim.pid, signal.SIGKILL)
    killed_s = time.perf_counter()
    writing = [
        asyncio.create_task(producer.send(b"after", partition=one)) for one in range(partitions)
    ]
    ended_s, claimed_s = await watch.taken_over(victim, lost)
    await asyncio.gather(*map(watch.opened, lost))
    open_s = time.perf_counter()
    await asyncio.gather(*writing)
    writable_s = time.perf_counter()
    return [(one - killed_s) * 1_000 for one in (ended_s, claimed_s, open_s, writable_s)]


async def measure(
    plan: Plan, kills: int, random: Random, partitions: int
) -> tuple[list[list[float]], list[tuple[float, float]]]:
    """Return the stages of each kill, and how long each opening took: its store, and in all."""
    cluster = LocalCluster(plan)
    found: list[list[float]] = []
    try:
        await cluster.start()
        watch = Watch(cluster.variables["MAGNETAR_ETCD"])
        addresses = cluster.variables["MAGNETAR_BROKER"]
        evenly = partial(is_even, plan=plan, kind=BROKER)
        async with await magnetar.connect(addresses) as client:
            await watch.until(evenly)
            await client.admin.topics.create(TOPIC, partitions=partitions)
            producer = await client.create_producer(TOPIC, linger_ms=0)
            for number in range(kills):
                for one in range(partitions):
                    await producer.send(b"before", partition=one)
                victims = [one for one in cluster.running() if one.kind == BROKER]
                victim = random.choice(victims)
                found.append(await kill_one(victim, watch, producer, partitions))
                click.echo(f"{number + 1}: " + "  ".join(f"{ms:.0f}" for ms in found[-1]))
                await cluster.add(BROKER)
                await watch.until(evenly)
        await watch.close()
    finally:
        await cluster.stop()
    openings = [
        (float(match[3]), float(match[4]))
        for log in plan.directory.glob("broker-*.log")
        for match in OPENED.finditer(log.read_text())
    ]
    return found, openings


@click.command()
@click.option("--kills", type=click.IntRange(1), default=30, show_default=True)
@click.option("--lease-ms", type=int, default=3_000, show_default=True)
@click.option("--shards", type=int, default=6, show_default=True, help="Of brokers.")
@click.option("--partitions", type=int, default=12, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses who is killed.")
def main(kills: int, lease_ms: int, shards: int, partitions: int, seed: int) -> None:
    """Kill servers of brokers, and measure how long their partitions pause."""
    random = Random(seed)
    stages: list[list[float]] = []
    openings: list[tuple[float, float]] = []
    for directory, count in clusters(kills):
        plan = Plan(
            directory=directory,
            broker_shards=shards,
            coordinator_shards=2,
            lease_ms=lease_ms,
            settings={"MAGNETAR_SETTLING_MS": "500"},
        )
        more_stages, more_openings = asyncio.run(measure(plan, count, random, partitions))
        stages += more_stages
        openings += more_openings
    table = table_of(STAGES, stages)
    table.add_section()
    for what, values in zip(
        ("an opening: its store", "and all of it"), zip(*openings, strict=True), strict=True
    ):
        table.add_row(what, *figures(values))
    Console().print(table)


if __name__ == "__main__":
    main()
