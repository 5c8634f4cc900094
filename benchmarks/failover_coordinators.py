"""`python -m benchmarks.failover_coordinators`: how long transactions pause without their server.

A cluster on this machine, as of benchmarks.failover. One of the servers of coordinators is killed,
again and again, while a client has transactions in each state there: open ones, prepared ones, and
such that are being committed and aborted at this moment. Another server joins each time. Stages,
from the kill:

- its lease ends: etcd says that its shards have no owner;
- claimed: etcd says that the others have them;
- committing, aborting: those that were under way are answered;
- prepared, open: those are committed, each asked for right after the kill;
- new: a new transaction at the same coordinator is committed.

In the end all messages are read: those of committed transactions are there once, no others are.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Iterable
from functools import partial
from random import Random

import click
from rich.console import Console

import magnetar
from benchmarks.takeovers import TOPIC, Watch, clusters, is_even, shares, table_of
from magnetar.config import ClientConfig
from magnetar_cli.cluster.local.local_cluster import LocalCluster, Plan, Running
from magnetar_cluster.directory.view import COORDINATOR

STATES = ("committing", "aborting", "prepared", "open")
STAGES = ("its lease ends", "claimed", *STATES, "new")
PATIENCE_MS = 60_000


class Load:
    """Transactions of a client, and what their messages have to be in the end."""

    def __init__(self, client: magnetar.Client, producer: magnetar.Producer) -> None:
        self.committed: set[bytes] = set()
        self._client = client
        self._producer = producer
        self._count = 0

    async def begin(self, partition: int) -> tuple[magnetar.Transaction, bytes]:
        """Begin a transaction that has sent a message."""
        txn = await self._client.begin_transaction(timeout_s=PATIENCE_MS / 1_000)
        value = b"%06d" % self._count
        self._count += 1
        await self._producer.send(value, partition=partition, txn=txn)
        return txn, value

    async def commit(self, txn: magnetar.Transaction, value: bytes) -> None:
        """Commit a transaction, and note what is readable since."""
        await txn.commit()
        self.committed.add(value)

    async def check(self, partitions: int) -> None:
        """Read everything."""
        found: list[bytes] = []
        for partition in range(partitions):
            found += [one.value async for one in self._client.read(TOPIC, partition)]
        if sorted(found) != sorted(self.committed):
            raise click.ClickException(
                f"{len(self.committed)} messages were committed, and {len(found)} are there:"
                f" lost {self.committed - set(found)}, not committed {set(found) - self.committed}"
            )


async def kill_one(
    victim: Running, watch: Watch, load: Load, partitions: int, each: int
) -> list[float]:
    """Kill a server, and return the milliseconds from then to each stage."""
    lost = shares(watch.view, COORDINATOR)[victim.name]
    numbers = {one.number for one in lost}
    begun: dict[str, list[tuple[magnetar.Transaction, bytes]]] = {one: [] for one in STATES}
    others: list[tuple[magnetar.Transaction, bytes]] = []
    while any(len(one) < each for one in begun.values()):
        txn, value = await load.begin(len(others) % partitions)
        state = next(one for one in STATES if len(begun[one]) < each)
        if txn.txn_id.tcid in numbers:
            begun[state].append((txn, value))
            if state == "prepared":
                await txn.work.prepare()
        else:
            others.append((txn, value))
    under_way = {
        "committing": [asyncio.create_task(load.commit(*one)) for one in begun["committing"]],
        "aborting": [asyncio.create_task(txn.abort()) for txn, _ in begun["aborting"]],
    }
    # Some have reached the server by then, and some are answered.
    await asyncio.sleep(0.005)
    os.kill(victim.pid, signal.SIGKILL)
    killed_s = time.perf_counter()

    async def done(work: Iterable[Awaitable[object]]) -> float:
        await asyncio.gather(*work)
        return time.perf_counter()

    async def begin_anew() -> None:
        while True:
            txn, value = await load.begin(0)
            await load.commit(txn, value)
            if txn.txn_id.tcid in numbers:
                return

    waiting = [
        asyncio.create_task(done(work))
        for work in (
            under_way["committing"],
            under_way["aborting"],
            [load.commit(*one) for one in begun["prepared"]],
            [load.commit(*one) for one in begun["open"]],
            [begin_anew()],
        )
    ]
    stages = [*await watch.taken_over(victim, lost), *await asyncio.gather(*waiting)]
    for one in others:
        await load.commit(*one)
    return [(one - killed_s) * 1_000 for one in stages]


async def measure(
    plan: Plan, kills: int, random: Random, partitions: int, each: int
) -> list[list[float]]:
    """Return the stages of each kill."""
    cluster = LocalCluster(plan)
    found: list[list[float]] = []
    try:
        await cluster.start()
        watch = Watch(cluster.variables["MAGNETAR_ETCD"])
        evenly = partial(is_even, plan=plan, kind=COORDINATOR)
        config = ClientConfig(operation_timeout_ms=PATIENCE_MS)
        async with await magnetar.connect(
            cluster.variables["MAGNETAR_BROKER"], config=config
        ) as client:
            await watch.until(evenly)
            await client.admin.topics.create(TOPIC, partitions=partitions)
            producer = await client.create_producer(TOPIC, linger_ms=0)
            load = Load(client, producer)
            for number in range(kills):
                victims = [one for one in cluster.running() if one.kind == COORDINATOR]
                victim = random.choice(victims)
                found.append(await kill_one(victim, watch, load, partitions, each))
                click.echo(f"{number + 1}: " + "  ".join(f"{ms:.0f}" for ms in found[-1]))
                await cluster.add(COORDINATOR)
                await watch.until(evenly)
            await load.check(partitions)
        await watch.close()
    finally:
        await cluster.stop()
    return found


@click.command()
@click.option("--kills", type=click.IntRange(1), default=30, show_default=True)
@click.option("--lease-ms", type=int, default=3_000, show_default=True)
@click.option("--shards", type=int, default=4, show_default=True, help="Of coordinators.")
@click.option("--partitions", type=int, default=6, show_default=True)
@click.option("--each", type=int, default=8, show_default=True, help="Transactions in each state.")
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses who is killed.")
def main(kills: int, lease_ms: int, shards: int, partitions: int, each: int, seed: int) -> None:
    """Kill servers of coordinators, and measure how long their transactions pause."""
    random = Random(seed)
    stages: list[list[float]] = []
    for directory, count in clusters(kills):
        plan = Plan(
            directory=directory,
            broker_shards=3,
            coordinator_shards=shards,
            lease_ms=lease_ms,
            settings={"MAGNETAR_SETTLING_MS": "500"},
        )
        stages += asyncio.run(measure(plan, count, random, partitions, each))
    Console().print(table_of(STAGES, stages))


if __name__ == "__main__":
    main()
