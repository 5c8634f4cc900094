"""`python -m benchmarks.cuts`: the time of a consistent cut, and its costs for writers.

One broker and one coordinator. Cuts are taken by a separate process, one after the other without
writes, then a few in each second beside transactions; the same transactions without cuts are
measured in turn with them.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click
from rich.console import Console
from rich.table import Table

import magnetar
from benchmarks.runner import run
from benchmarks.servers import Servers, cpu_s, started
from benchmarks.shards import fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

VALUE = bytes(100)
AT_ONCE = 16
PARTITIONS_WRITTEN = 2
WARM_UP_S = 3.0


class Taken(NamedTuple):
    """One cut, as the process tells that took it."""

    seconds: float
    token_bytes: int


class Window(NamedTuple):
    """Transactions for a while."""

    committed: int
    seconds: float
    latencies_s: list[float]

    @property
    def rate(self) -> float:
        return self.committed / self.seconds


@dataclass(frozen=True, slots=True)
class Taker:
    """A process that takes a cut for each line of its input."""

    process: asyncio.subprocess.Process

    async def take(self) -> Taken:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        line = await self.process.stdout.readline()
        return Taken(*json.loads(line))


@asynccontextmanager
async def taker(address: str, topics: list[str]) -> AsyncIterator[Taker]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.cuts", "take", address, *topics),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Taker(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def take_for_lines(address: str, topics: tuple[str, ...]) -> None:
    """Take a cut for each line of the input; the process of `Taker` runs this."""
    loop = asyncio.get_running_loop()
    async with await magnetar.connect(address) as client:
        while await loop.run_in_executor(None, sys.stdin.readline):
            began_s = time.perf_counter()
            cut = await client.cut(topics)
            taken = Taken(time.perf_counter() - began_s, len(str(cut)))
            print(json.dumps(taken), flush=True)


class Writers:
    """Transactions over all partitions, so many at once."""

    def __init__(self, client: magnetar.Client, producers: list[magnetar.Producer]) -> None:
        self._client = client
        self._producers = producers
        self._next = 0

    async def write(self, seconds: float) -> Window:
        began_s = time.perf_counter()
        latencies_s: list[float] = []
        await asyncio.gather(
            *(self._write_until(began_s + seconds, latencies_s) for _ in range(AT_ONCE))
        )
        return Window(len(latencies_s), time.perf_counter() - began_s, latencies_s)

    async def _write_until(self, end_s: float, latencies_s: list[float]) -> None:
        while time.perf_counter() < end_s:
            txn = await self._client.begin_transaction()
            for _ in range(PARTITIONS_WRITTEN):
                producer, partition = self._place()
                producer.send_nowait(VALUE, partition=partition, txn=txn)
            called_s = time.perf_counter()
            await txn.commit()
            latencies_s.append(time.perf_counter() - called_s)

    def _place(self) -> tuple[magnetar.Producer, int]:
        self._next += 1
        producer = self._producers[self._next % len(self._producers)]
        return producer, self._next // len(self._producers) % producer.partition_count


class Measured(NamedTuple):
    """With one number of partitions.

    Attributes:
        idle: cuts without writes.
        cpu_ms_each: of the taker, the broker and the coordinator, for each of them.
        beside: cuts beside transactions.
        without: windows of transactions alone.
        with_cuts: windows of transactions with cuts beside them.
    """

    idle: list[Taken]
    cpu_ms_each: list[float]
    beside: list[Taken]
    without: list[Window]
    with_cuts: list[Window]


async def measure(
    servers: Servers, partitions: int, *, cuts: int, seconds: float, rounds: int, period_s: float
) -> Measured:
    async with await servers.connect() as client:
        topics = await fill(client, partitions)
        producers = [await client.create_producer(topic, linger_ms=0) for topic in topics]
        writers = Writers(client, producers)
        async with taker(servers.address, topics) as one:
            await one.take()
            pids = (one.process.pid, servers.broker_pid, servers.coordinator_pid)
            before_s = list(map(cpu_s, pids))
            idle = [await one.take() for _ in range(cuts)]
            used_s = [cpu_s(pid) - then for pid, then in zip(pids, before_s, strict=True)]
            await writers.write(WARM_UP_S)
            beside: list[Taken] = []
            without, with_cuts = [], []
            for _ in range(rounds):
                without.append(await writers.write(seconds))
                enough = asyncio.Event()
                taking = asyncio.create_task(_take_until(enough, one, period_s, beside))
                with_cuts.append(await writers.write(seconds))
                enough.set()
                await taking
    return Measured(idle, [1e3 * used / cuts for used in used_s], beside, without, with_cuts)


async def _take_until(
    enough: asyncio.Event, one: Taker, period_s: float, taken: list[Taken]
) -> None:
    """One cut in each period; the last one is waited for."""
    while not enough.is_set():
        next_s = time.perf_counter() + period_s
        taken.append(await one.take())
        with suppress(TimeoutError):
            await asyncio.wait_for(enough.wait(), next_s - time.perf_counter())


@click.group()
def main() -> None:
    """Measure the time of a consistent cut, and its costs for writers."""


@main.command()
@click.argument("address")
@click.argument("topics", nargs=-1)
def take(address: str, topics: tuple[str, ...]) -> None:
    """Take a cut for each line of standard input."""
    run(take_for_lines(address, topics))


@main.command("measure")
@click.option("--partitions", multiple=True, type=int, default=(10, 1_000, 10_000))
@click.option("--cuts", default=30, show_default=True, help="Cuts without writes.")
@click.option("--seconds", default=6.0, show_default=True, help="Of each window of transactions.")
@click.option("--rounds", default=4, show_default=True, help="Windows with and without cuts.")
@click.option("--period", default=1.0, show_default=True, help="Seconds from cut to cut.")
def measure_all(
    partitions: tuple[int, ...], cuts: int, seconds: float, rounds: int, period: float
) -> None:
    """Measure cuts of topics with so many partitions in all."""
    table = Table(
        *("partitions", "cut ms (longest)", "processor ms: client, broker, coordinator"),
        *("beside ms (longest)", "token KB", "transactions/s", "with cuts", "ratio", "p99 ms"),
    )
    for count in partitions:
        with started() as servers:
            found = run(
                measure(servers, count, cuts=cuts, seconds=seconds, rounds=rounds, period_s=period)
            )
        row = _row(count, found)
        click.echo("  ".join(row))
        table.add_row(*row)
    Console(width=160).print(table)


def _row(count: int, found: Measured) -> list[str]:
    without, with_cuts = (
        statistics.median(one.rate for one in windows)
        for windows in (found.without, found.with_cuts)
    )
    ratio = statistics.median(
        cut.rate / plain.rate for cut, plain in zip(found.with_cuts, found.without, strict=True)
    )
    return [
        f"{count:,}",
        _milliseconds(found.idle),
        ", ".join(f"{one:.1f}" for one in found.cpu_ms_each),
        _milliseconds(found.beside),
        f"{found.idle[-1].token_bytes / 1e3:.1f}",
        f"{without:,.0f}",
        f"{with_cuts:,.0f}",
        f"{ratio:.3f}",
        f"{_p99_ms(found.without):.1f} -> {_p99_ms(found.with_cuts):.1f}",
    ]


def _milliseconds(taken: list[Taken]) -> str:
    seconds = [one.seconds for one in taken]
    return f"{1e3 * statistics.median(seconds):.1f} ({1e3 * max(seconds):.0f})"


def _p99_ms(windows: list[Window]) -> float:
    latencies = [one for window in windows for one in window.latencies_s]
    return 1e3 * statistics.quantiles(latencies, n=100)[98]


if __name__ == "__main__":
    main()
