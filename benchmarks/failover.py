"""`python -m benchmarks.failover`: how long partitions pause when a server of brokers is killed.

A cluster on this machine: etcd, an object server, three servers of brokers and two of coordinators.
One of the brokers' servers is killed, again and again, while a client sends to every partition;
another one joins each time. Stages, from the kill:

- its lease ends: etcd says that nobody has its shards;
- claimed: etcd says that the others have them;
- open: the last one takes conversations;
- writable: a message that was sent after the kill is acknowledged in every partition.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import median

import click
from rich.console import Console
from rich.table import Table

import magnetar
from benchmarks.results import quantile
from magnetar_cli.cluster.local.local_cluster import CLUSTER_ID, LocalCluster, Plan, Running
from magnetar_cluster.directory import DirectoryUnavailable
from magnetar_cluster.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd_settings import EtcdSettings
from magnetar_cluster.view import BROKER, MemberName, ShardName, View
from magnetar_cluster.whereabouts import where_is
from magnetar_core.grpc_transport import GrpcTransport
from magnetar_core.transport import LinkClosed

TOPIC = "failover"
STAGES = ("its lease ends", "claimed", "open", "writable")
# Members of a kind are called by letters.
KILLS_OF_A_CLUSTER_MAX = 20
RETRY_S = 0.01
OPENED = re.compile(
    r"(broker-\d+) is open in epoch (\d+): its store after (\d+) ms, recovered after (\d+) ms"
)


class Watch:
    """Views of the directory, as they come."""

    def __init__(self, endpoint: str) -> None:
        self.view = View()
        self._directory = EtcdDirectory(EtcdSettings(endpoints=(endpoint,)), CLUSTER_ID)
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._follow())

    async def until(self, condition: Callable[[View], bool]) -> float:
        """Wait for a view that meets a condition, and return when it came."""
        while not condition(self.view):
            if self._task.done():
                await self._task
            self._changed.clear()
            await self._changed.wait()
        return time.perf_counter()

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._directory.close()

    async def _follow(self) -> None:
        while True:
            with suppress(DirectoryUnavailable):
                async for view in self._directory.watch():
                    self.view = view
                    self._changed.set()


def shares(view: View) -> dict[str, list[ShardName]]:
    """The shards of each server of brokers."""
    found: dict[str, list[ShardName]] = {
        name.name: [] for name in view.members if name.kind == BROKER
    }
    for shard, owner in view.owners.items():
        if shard.kind == BROKER and owner.member in found:
            found[owner.member].append(shard)
    return found


async def kill_one(
    victim: Running, watch: Watch, producer: magnetar.Producer, partitions: int
) -> list[float]:
    """Kill a server, and return the milliseconds from then to each stage."""
    lost = shares(watch.view)[victim.name]
    name = MemberName(BROKER, victim.name)
    os.kill(victim.pid, signal.SIGKILL)
    killed_s = time.perf_counter()
    writing = [
        asyncio.create_task(producer.send(b"after", partition=one)) for one in range(partitions)
    ]
    ended_s = await watch.until(lambda view: name not in view.members)

    def claimed(view: View) -> bool:
        owners = [view.owners.get(shard) for shard in lost]
        return all(one is not None and one.member != victim.name for one in owners)

    claimed_s = await watch.until(claimed)
    await asyncio.gather(*(opened(watch, shard) for shard in lost))
    open_s = time.perf_counter()
    await asyncio.gather(*writing)
    writable_s = time.perf_counter()
    return [(one - killed_s) * 1_000 for one in (ended_s, claimed_s, open_s, writable_s)]


async def opened(watch: Watch, shard: ShardName) -> None:
    """Wait until a shard takes conversations."""
    transport = GrpcTransport()
    while True:
        try:
            address = str(where_is(watch.view, shard).address)
            await transport.connect(address, "Broker", lambda _: None, lambda: None)
            break
        except LinkClosed:
            await asyncio.sleep(RETRY_S)
    await transport.close()


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
        each = plan.broker_shards // plan.brokers

        def is_even(view: View) -> bool:
            found = shares(view).values()
            return len(found) == plan.brokers and all(len(one) >= each for one in found)

        async with await magnetar.connect(addresses) as client:
            await watch.until(is_even)
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
                await watch.until(is_even)
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
    while len(stages) < kills:
        with tempfile.TemporaryDirectory(prefix="magnetar-failover-") as directory:
            plan = Plan(
                directory=Path(directory),
                broker_shards=shards,
                coordinator_shards=2,
                lease_ms=lease_ms,
                settings={"MAGNETAR_SETTLING_MS": "500"},
            )
            count = min(kills - len(stages), KILLS_OF_A_CLUSTER_MAX)
            more_stages, more_openings = asyncio.run(measure(plan, count, random, partitions))
            stages += more_stages
            openings += more_openings
    table = Table("ms since the kill", "median", "p90", "longest", title=f"{kills} kills")
    for stage, values in zip(STAGES, zip(*stages, strict=True), strict=True):
        table.add_row(stage, *figures(values))
    table.add_section()
    for what, values in zip(
        ("an opening: its store", "and all of it"), zip(*openings, strict=True), strict=True
    ):
        table.add_row(what, *figures(values))
    Console().print(table)


def figures(values: tuple[float, ...]) -> list[str]:
    ordered = sorted(values)
    return [f"{one:,.0f}" for one in (median(ordered), quantile(ordered, 0.9), ordered[-1])]


if __name__ == "__main__":
    main()
