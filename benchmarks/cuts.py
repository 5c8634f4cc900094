"""`python -m benchmarks.cuts`: what it costs to take a consistent cut, and those who write beside.

First, cuts of topics in which nothing happens. Then transactions begin at a fixed rate, without and
with a process that takes a cut every tenth of a second: nobody should wait for it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from statistics import median
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

import magnetar
from benchmarks.results import latencies_ms
from benchmarks.runner import run
from benchmarks.servers import Servers, started
from benchmarks.shards import VALUE, fill
from magnetar import Client, Producer

WARM_UP_CUTS = 3
PARTITIONS_WRITTEN = 2


class Alone(NamedTuple):
    """Cuts of topics in which nothing happens.

    Attributes:
        cpu_ms: of client, broker and coordinator, for each.
        token_bytes: of the last.
    """

    p50_ms: float
    p99_ms: float
    cpu_ms: tuple[float, ...]
    token_bytes: int


class Beside(NamedTuple):
    """Transactions, from their beginning to the answer to their commit.

    Attributes:
        cuts_ms: of cuts that were taken meanwhile.
    """

    p50_ms: float
    p99_ms: float
    cuts_ms: list[float]


async def alone(servers: Servers, client: Client, topics: Sequence[str], count: int) -> Alone:
    for _ in range(WARM_UP_CUTS):
        await client.cut(topics)
    took_s: list[float] = []
    before_s = servers.cpu_s()
    for _ in range(count):
        began_s = time.perf_counter()
        cut = await client.cut(topics)
        took_s.append(time.perf_counter() - began_s)
    cpu_ms = tuple(each / 1_000 for each in servers.cpu_us_each(before_s, count))
    return Alone(*latencies_ms(took_s), cpu_ms, len(str(cut)))


async def beside(
    client: Client, producers: Sequence[Producer], rate_per_s: int, seconds: float, random: Random
) -> tuple[float, float]:
    """Begin transactions at a rate, however long each takes.

    Returns: p50 and p99, in milliseconds.
    """
    took_s: list[float] = []

    async def transact() -> None:
        began_s = time.perf_counter()
        txn = await client.begin_transaction()
        producer = random.choice(producers)
        for partition in random.sample(range(producer.partition_count), PARTITIONS_WRITTEN):
            producer.send_nowait(VALUE, partition=partition, txn=txn)
        await txn.commit()
        took_s.append(time.perf_counter() - began_s)

    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate_per_s * seconds)):
            await asyncio.sleep(max(0.0, began_s + number / rate_per_s - time.perf_counter()))
            group.create_task(transact())
    return latencies_ms(took_s)


@asynccontextmanager
async def taken(address: str, topics: Sequence[str], period_s: float) -> AsyncIterator[list[float]]:
    """Have another process take cuts; how long each took is there after the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.cuts", "take", address, str(period_s), *topics),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    # It is under way.
    cuts_ms = [float(await process.stdout.readline())]
    try:
        yield cuts_ms
    finally:
        rest, _ = await process.communicate()
    cuts_ms += map(float, rest.split())


async def measure(
    servers: Servers, partitions: int, count: int, rate_per_s: int, seconds: float, rounds: int
) -> tuple[Alone, Beside, Beside]:
    async with await servers.connect() as client:
        topics = await fill(client, partitions)
        cuts = await alone(servers, client, topics, count)
        producers = [await client.create_producer(one, linger_ms=0) for one in topics]
        random = Random(partitions)
        without: list[tuple[float, float]] = []
        with_cuts: list[tuple[float, float]] = []
        cuts_ms: list[float] = []
        for _ in range(rounds):
            without.append(await beside(client, producers, rate_per_s, seconds, random))
            async with taken(servers.address, topics, 0.1) as some_ms:
                with_cuts.append(await beside(client, producers, rate_per_s, seconds, random))
            cuts_ms += some_ms
        return cuts, _medians(without, []), _medians(with_cuts, cuts_ms)


def _medians(found: Sequence[tuple[float, float]], cuts_ms: list[float]) -> Beside:
    p50s, p99s = zip(*found, strict=True)
    return Beside(median(p50s), median(p99s), cuts_ms)


async def take(address: str, period_s: float, topics: Sequence[str]) -> None:
    """Take cuts until nobody is left at the other end of stdin, and print how long each took."""
    ending = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    async with await magnetar.connect(address) as client:
        while not ending.done():
            began_s = time.perf_counter()
            await client.cut(topics)
            took_s = time.perf_counter() - began_s
            print(took_s * 1_000, flush=True)
            await asyncio.sleep(max(0.0, period_s - took_s))


@click.group()
def main() -> None:
    """Measure consistent cuts."""


@main.command("measure")
@click.option("--partitions", multiple=True, type=int, default=(10, 1_000, 10_000))
@click.option("--cuts", default=50, show_default=True)
@click.option("--rate", default=100, show_default=True, help="Transactions a second beside cuts.")
@click.option("--seconds", default=5.0, show_default=True, help="Of each round.")
@click.option("--rounds", default=3, show_default=True, help="Without cuts, then with them.")
def measure_command(
    partitions: tuple[int, ...], cuts: int, rate: int, seconds: float, rounds: int
) -> None:
    """Measure cuts of topics with some partitions in all, on one broker."""
    table = Table("partitions", "cut p50 ms", "p99", "CPU ms each", "token bytes", "beside p50")
    for name in ("commit p50 ms without", "with cuts", "p99 without", "with cuts"):
        table.add_column(name, justify="right")
    for number in partitions:
        with started() as servers:
            found, without, with_cuts = run(measure(servers, number, cuts, rate, seconds, rounds))
        row = (
            f"{number:,}",
            f"{found.p50_ms:.1f}",
            f"{found.p99_ms:.1f}",
            " + ".join(f"{each:.1f}" for each in found.cpu_ms),
            f"{found.token_bytes:,}",
            f"{median(with_cuts.cuts_ms):.1f}",
            f"{without.p50_ms:.2f}",
            f"{with_cuts.p50_ms:.2f}",
            f"{without.p99_ms:.1f}",
            f"{with_cuts.p99_ms:.1f}",
        )
        click.echo("  ".join(row))
        table.add_row(*row)
    Console(width=200).print(table)


@main.command("take")
@click.argument("address")
@click.argument("period_s", type=float)
@click.argument("topics", nargs=-1, required=True)
def take_command(address: str, period_s: float, topics: tuple[str, ...]) -> None:
    """Take cuts of TOPICS until stdin ends, and print how many milliseconds each took."""
    asyncio.run(take(address, period_s, topics))


if __name__ == "__main__":
    main()
