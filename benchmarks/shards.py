"""`python -m benchmarks.shards`: what shards and partitions take of a server of brokers.

A cluster on this machine: etcd, an object server, one server of brokers and one of coordinators.
Every partition gets a message, so that none is only a name. Then the server is killed, and another
one opens all of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click
import psutil
from rich.console import Console
from rich.table import Table

import magnetar
from benchmarks.takeovers import Watch, shares
from magnetar_cli.cluster.local.local_cluster import LocalCluster, Plan
from magnetar_cluster.directory.view import BROKER

VALUE = bytes(100)
# The default limit of partitions of a topic.
TOPIC_PARTITIONS_MAX = 1_000
SENDS_AT_ONCE = 500


class Measured(NamedTuple):
    """Figures of one server with all shards and partitions.

    Attributes:
        idle_bytes: resident memory with its shards, before there is a topic.
        resident_bytes: with a message in every partition.
        opening_s: from the claim of the next server until all shards take conversations.
        opened_bytes: resident memory of that one then.
    """

    idle_bytes: int
    resident_bytes: int
    opening_s: float
    opened_bytes: int


async def measure(directory: Path, shards: int, partitions: int) -> Measured:
    plan = Plan(
        directory=directory,
        brokers=1,
        coordinators=1,
        broker_shards=shards,
        coordinator_shards=1,
        settings={"MAGNETAR_SETTLING_MS": "200"},
    )
    cluster = LocalCluster(plan)
    try:
        await cluster.start()
        watch = Watch(cluster.variables["MAGNETAR_ETCD"])
        (first,) = (one for one in cluster.running() if one.kind == BROKER)
        await watch.until(lambda view: len(shares(view, BROKER).get(first.name, ())) == shards)
        await asyncio.gather(*map(watch.opened, shares(watch.view, BROKER)[first.name]))
        idle_bytes = psutil.Process(first.pid).memory_info().rss
        async with await magnetar.connect(cluster.variables["MAGNETAR_BROKER"]) as client:
            await fill(client, partitions)
        resident_bytes = psutil.Process(first.pid).memory_info().rss
        os.kill(first.pid, signal.SIGKILL)
        second = await cluster.add(BROKER)
        claimed_s = await watch.until(lambda view: bool(shares(view, BROKER).get(second.name)))
        await watch.until(lambda view: len(shares(view, BROKER).get(second.name, ())) == shards)
        await asyncio.gather(*map(watch.opened, shares(watch.view, BROKER)[second.name]))
        opening_s = time.perf_counter() - claimed_s
        opened_bytes = psutil.Process(second.pid).memory_info().rss
        await watch.close()
        return Measured(idle_bytes, resident_bytes, opening_s, opened_bytes)
    finally:
        await cluster.stop()


async def fill(client: magnetar.Client, partitions: int) -> list[str]:
    """Make topics with so many partitions in all, and send a message to each of these.

    Returns:
        The topics.
    """
    topics: list[str] = []
    while partitions > 0:
        count = min(partitions, TOPIC_PARTITIONS_MAX)
        topic = f"topic-{len(topics)}"
        await client.admin.topics.create(topic, partitions=count)
        async with await client.create_producer(topic, linger_ms=0) as producer:
            for start in range(0, count, SENDS_AT_ONCE):
                some = range(start, min(start + SENDS_AT_ONCE, count))
                await asyncio.gather(*(producer.send(VALUE, partition=one) for one in some))
        partitions -= count
        topics.append(topic)
    return topics


@click.command()
@click.option("--shards", multiple=True, type=int, default=(1, 16, 64), show_default=True)
@click.option(
    "--partitions",
    multiple=True,
    type=int,
    default=(1, 100, 1_000),
    show_default=True,
    help="Of each shard.",
)
def main(shards: tuple[int, ...], partitions: tuple[int, ...]) -> None:
    """Measure a server of brokers with some shards and partitions."""
    columns = ("idle MB", "MB", "opened again MB", "opening s")
    table = Table("shards", "partitions of each", *columns)
    for count in shards:
        for each in partitions:
            with tempfile.TemporaryDirectory(prefix="magnetar-shards-") as directory:
                found = asyncio.run(measure(Path(directory), count, count * each))
            sizes = (found.idle_bytes, found.resident_bytes, found.opened_bytes)
            row = [*(f"{size / 1e6:,.0f}" for size in sizes), f"{found.opening_s:.1f}"]
            click.echo(f"{count} x {each}: " + "  ".join(row))
            table.add_row(str(count), f"{each:,}", *row)
    Console().print(table)


if __name__ == "__main__":
    main()
