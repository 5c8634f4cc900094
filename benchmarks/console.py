"""`python -m benchmarks.console measure`: the costs of viewers of the console.

One broker, one coordinator and one console. A process has so many streams of events open, as pages
in browsers have. Servers are measured idle, and beside transactions in turn with and without the
viewers.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

import click
import psutil
from rich.console import Console
from rich.table import Table

import magnetar
from benchmarks.cuts import Writers
from benchmarks.runner import run
from benchmarks.servers import Servers, cpu_s, started
from benchmarks.shards import fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OPEN_TOPIC = "open"
OPEN_PARTITIONS = 8
AT_ONCE = 64
TIMEOUT_S = 900
VALUE = bytes(100)
WARM_UP_S = 3.0
READ_BYTES = 1 << 16


class Viewed(NamedTuple):
    """Bytes that viewers have got so far.

    Attributes:
        streams: those that are open.
        byte_counts: of each stream.
    """

    streams: int
    byte_counts: list[int]


@dataclass(frozen=True, slots=True)
class Viewers:
    """A process with streams of events."""

    process: asyncio.subprocess.Process

    async def viewed(self) -> Viewed:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        return Viewed(*json.loads(await self.process.stdout.readline()))


class Costs(NamedTuple):
    """Processor time in milliseconds for each second, of console, broker and coordinator."""

    console: float
    broker: float
    coordinator: float


class Measured(NamedTuple):
    """With one cluster.

    Attributes:
        quiet, watched: idle servers without viewers, and with them, by windows in turn: servers
            that have just been filled tidy up for minutes, and take less all the time.
        console_bytes: the console's resident memory without viewers, and with them.
        state_bytes: what a viewer gets when it begins, on the average.
        bytes_per_s: what a viewer of an idle cluster gets, on the average.
        busy_bytes_per_s: what a viewer gets beside transactions.
        without_us, with_us: the broker's processor time for each transaction, by windows.
        without_per_s, with_per_s: transactions for each second.
    """

    quiet: list[Costs]
    watched: list[Costs]
    console_bytes: tuple[int, int]
    state_bytes: float
    bytes_per_s: float
    busy_bytes_per_s: float
    without_us: list[float]
    with_us: list[float]
    without_per_s: list[float]
    with_per_s: list[float]


def paths(count: int, topic: str) -> list[str]:
    """The views that so many viewers look at: transactions most of all."""
    views = [
        *("transactions",) * 4,
        *("topics", "cluster", "groups"),
        *(f"topic&name={quote(topic)}", f"messages&name={quote(topic)}&partition=0"),
        "transactions",
    ]
    return [f"/events?view={views[number % len(views)]}" for number in range(count)]


async def view_for_lines(address: str, streams: list[str]) -> None:
    """Keep streams open, and print what they have got for each line of the input."""
    byte_counts = [0] * len(streams)
    opened = 0
    place = urlsplit(address)

    async def read(number: int, path: str) -> None:
        nonlocal opened
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        status = await reader.readline()
        assert b" 200 " in status, status
        opened += 1
        while data := await reader.read(READ_BYTES):
            byte_counts[number] += len(data)

    tasks = [asyncio.create_task(read(*one)) for one in enumerate(streams)]
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        for task in tasks:
            if task.done():
                task.result()
                raise RuntimeError("the console has ended a stream")
        print(json.dumps(Viewed(opened, byte_counts)), flush=True)
    for task in tasks:
        task.cancel()


@asynccontextmanager
async def looking(address: str, count: int, topic: str) -> AsyncIterator[Viewers]:
    """Run a process of viewers, whose streams have their first state."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.console", "view", address, *paths(count, topic)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        viewers = Viewers(process)
        while (await viewers.viewed()).streams < count:
            await asyncio.sleep(0.1)
        yield viewers
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def console_at(brokers: str) -> AsyncIterator[tuple[int, str]]:
    """Run a console; the value is its process and its address."""
    with TemporaryDirectory(prefix="magnetar-console-") as directory:
        ready = Path(directory) / "ready"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "magnetar_cli", "--broker", brokers),
            *("console", "--port", "0", "--ready-file", str(ready)),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            await process.stdout.readline()
            yield process.pid, json.loads(ready.read_text())["address"]
        finally:
            process.terminate()
            await process.wait()


async def open_transactions(client: magnetar.Client, count: int) -> None:
    """Begin so many transactions, with a message each, and leave them open."""
    producer = await client.create_producer(OPEN_TOPIC, linger_ms=0)
    room = asyncio.Semaphore(AT_ONCE)

    async def begin(number: int) -> None:
        async with room:
            txn = await client.begin_transaction(timeout_s=TIMEOUT_S)
            await producer.send(VALUE, partition=number % OPEN_PARTITIONS, txn=txn)

    await asyncio.gather(*(begin(number) for number in range(count)))


async def measure(
    servers: Servers,
    *,
    partitions: int,
    transactions: int,
    viewers: int,
    seconds: float,
    rounds: int,
) -> Measured:
    async with await servers.connect() as client, console_at(servers.address) as (pid, address):
        await client.admin.topics.create(OPEN_TOPIC, partitions=OPEN_PARTITIONS)
        topics = await fill(client, partitions)
        producers = [await client.create_producer(one, linger_ms=0) for one in topics[:4]]
        await open_transactions(client, transactions)
        pids = (pid, servers.broker_pid, servers.coordinator_pid)
        console = psutil.Process(pid)

        async def costs() -> Costs:
            began_s, before_s = time.perf_counter(), [cpu_s(one) for one in pids]
            await asyncio.sleep(seconds)
            took_s = time.perf_counter() - began_s
            used_s = [cpu_s(one) - then for one, then in zip(pids, before_s, strict=True)]
            return Costs(*(1e3 * used / took_s for used in used_s))

        writers = Writers(client, producers)
        await writers.write(WARM_UP_S)
        quiet, watched = [], []
        quiet_bytes = console.memory_info().rss
        for _ in range(rounds):
            quiet.append(await costs())
            async with looking(address, viewers, OPEN_TOPIC) as some:
                await asyncio.sleep(2 * seconds)
                began = await some.viewed()
                watched.append(await costs())
                ended = await some.viewed()
                watched_bytes = console.memory_info().rss
        per_s = (sum(ended.byte_counts) - sum(began.byte_counts)) / seconds / viewers
        broker_us: dict[bool, list[float]] = {False: [], True: []}
        rates: dict[bool, list[float]] = {False: [], True: []}
        busy_bytes = 0

        async def window(is_watched: bool) -> None:
            before_s = cpu_s(servers.broker_pid)
            found = await writers.write(seconds)
            broker_us[is_watched].append(
                1e6 * (cpu_s(servers.broker_pid) - before_s) / found.committed
            )
            rates[is_watched].append(found.rate)

        for _ in range(rounds):
            await window(False)
            async with looking(address, viewers, OPEN_TOPIC) as some:
                await asyncio.sleep(2 * seconds)
                before = sum((await some.viewed()).byte_counts)
                await window(True)
                busy_bytes += sum((await some.viewed()).byte_counts) - before
    return Measured(
        quiet,
        watched,
        (quiet_bytes, watched_bytes),
        sum(began.byte_counts) / viewers,
        per_s,
        busy_bytes / seconds / rounds / viewers,
        broker_us[False],
        broker_us[True],
        rates[False],
        rates[True],
    )


@click.group()
def main() -> None:
    """Measure the costs of viewers of the console."""


@main.command()
@click.argument("address")
@click.argument("streams", nargs=-1)
def view(address: str, streams: tuple[str, ...]) -> None:
    """Look at views, and print the bytes of each for each line of standard input."""
    run(view_for_lines(address, list(streams)))


@main.command("measure")
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    type=(int, int),
    default=((100, 10), (1_000, 1_000), (99_000, 10_000)),
    help="Partitions, and open transactions.",
)
@click.option("--viewers", default=100, show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="Of each window.")
@click.option("--rounds", default=2, show_default=True, help="Windows with and without viewers.")
def measure_all(
    clusters: tuple[tuple[int, int], ...], viewers: int, seconds: float, rounds: int
) -> None:
    """Measure clusters with so many partitions and open transactions."""
    table = Table(
        *("partitions", "open", "console MB", "console ms/s", "broker ms/s", "coordinator ms/s"),
        *("first KB", "KB/s", "KB/s busy", "broker us/txn", "ratio", "txn/s"),
    )
    for partitions, transactions in clusters:
        with started() as servers:
            found = run(
                measure(
                    servers,
                    partitions=partitions,
                    transactions=transactions,
                    viewers=viewers,
                    seconds=seconds,
                    rounds=rounds,
                )
            )
        row = [f"{partitions:,}", f"{transactions:,}", *_cells(found)]
        click.echo("  ".join(row))
        table.add_row(*row)
    Console(width=180).print(table)


def _cells(found: Measured) -> list[str]:
    without, with_viewers = map(statistics.median, (found.without_us, found.with_us))
    ratio = statistics.median(
        seen / unseen for seen, unseen in zip(found.with_us, found.without_us, strict=True)
    )
    rates = (statistics.median(found.without_per_s), statistics.median(found.with_per_s))
    return [
        " -> ".join(f"{size / 1e6:.0f}" for size in found.console_bytes),
        *(
            f"{statistics.median(quiet):.1f} {statistics.median(map(sub, watched, quiet)):+.1f}"
            for quiet, watched in zip(
                zip(*found.quiet, strict=True), zip(*found.watched, strict=True), strict=True
            )
        ),
        f"{found.state_bytes / 1e3:.0f}",
        f"{found.bytes_per_s / 1e3:.2f}",
        f"{found.busy_bytes_per_s / 1e3:.1f}",
        f"{without:.0f} -> {with_viewers:.0f}",
        f"{ratio:.3f}",
        " -> ".join(f"{one:,.0f}" for one in rates),
    ]


if __name__ == "__main__":
    main()
