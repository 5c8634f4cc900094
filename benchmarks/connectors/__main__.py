"""`python -m benchmarks.connectors`: Spark's source and sink for Magnetar beside those for Kafka.

Both servers run, and one works at a time. The same queries run in the same Spark session in turn,
and what a first turn measures is not counted: the JVM compiles then.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

import click
from rich.console import Console
from rich.table import Table

import magnetar
from benchmarks.peers import kafka
from benchmarks.peers.fetch import (
    ROOT,
    VENV_PYTHON,
    NotFetched,
    fetch,
    fetch_archives,
    make_environment,
)
from benchmarks.peers.processes import NotRunning, ended_by_signals, signal_session
from benchmarks.peers.system import DURABILITIES, LEFT_TO_THE_OS, SYNCED
from benchmarks.servers import started

# The newest one that has a connector for Kafka; maven/spark_kafka.xml has that.
SPARK = "pyspark==4.2.0"
# Of each query: they wait for its programs to start, at first, and those are not counted.
BATCHES = 8
BATCHES_COUNTED = 5
PARTITIONS = 2
CHUNK_MESSAGES = 10_000
SYSTEMS = ("magnetar", "kafka")
KILLS = 5
COPIED_BYTES = 100
COPIED_ROWS = 200_000
# Makes topics in Kafka, with its Python client.
_CREATE = """
import sys
from confluent_kafka.admin import AdminClient, NewTopic
address, partitions, *names = sys.argv[1:]
topics = [NewTopic(name, int(partitions), 1) for name in names]
client = AdminClient({"bootstrap.servers": address})
for one in client.create_topics(topics).values():
    one.result()
"""


@dataclass(frozen=True)
class Servers:
    """Addresses of both systems, the Python that has Spark, and the place of Kafka's connector."""

    magnetar: str
    kafka: str
    python: Path
    archives: Path

    def task(self, what: str, **more: Any) -> list[str]:
        """Return the command of Spark's half that does this."""
        told = {"what": what, "magnetar": self.magnetar, "kafka": self.kafka, **more}
        told["class_path"] = str(self.archives / "*")
        return [str(self.python), "-m", "benchmarks.connectors.job", json.dumps(told)]

    def create(self, *topics: str) -> None:
        """Make topics in both."""
        asyncio.run(self._create(topics))
        command = [str(VENV_PYTHON), "-c", _CREATE, self.kafka, str(PARTITIONS), *topics]
        subprocess.run(command, check=True)

    async def _create(self, topics: tuple[str, ...]) -> None:
        async with await magnetar.connect(self.magnetar) as client:
            for name in topics:
                await client.admin.topics.create(name, partitions=PARTITIONS)

    def fill(self, topic: str, message_bytes: int, count: int) -> None:
        """Write messages to Magnetar's topic; Spark writes those of Kafka's."""
        asyncio.run(self._fill(topic, message_bytes, count))

    async def _fill(self, topic: str, message_bytes: int, count: int) -> None:
        async with (
            await magnetar.connect(self.magnetar) as client,
            await client.create_producer(topic) as producer,
        ):
            for _ in range(count // CHUNK_MESSAGES):
                await producer.send_many([bytes(message_bytes)] * CHUNK_MESSAGES)


@contextmanager
def both(durability: str) -> Iterator[Servers]:
    """Run both systems for the time of the block."""
    fetch(["kafka"])
    archives = fetch_archives("spark_kafka")
    python = make_environment("spark", "Spark", [SPARK, "--editable", f"{ROOT}[spark]"])
    (system,) = (one for one in kafka.SYSTEMS if one.durability == durability)
    settings = {"MAGNETAR_DURABILITY": "os"} if durability == LEFT_TO_THE_OS else {}
    with (
        TemporaryDirectory(prefix="magnetar-connectors-") as directory,
        started(settings=settings) as own,
        system.start(Path(directory)) as peer,
    ):
        yield Servers(own.address, peer.settings()["address"], python, archives)


def answers(task: list[str]) -> Iterator[dict[str, Any]]:
    """Run Spark's half to its end, and yield what it says."""
    with TemporaryFile("w+") as log, process(task, log) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("{"):
                yield json.loads(line)
        if running.wait():
            log.seek(0)
            raise click.ClickException(f"Spark's half failed: {log.read()[-3_000:]}")


@contextmanager
def process(task: list[str], log: IO[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run Spark's half, which is gone with its JVM when the block ends."""
    running = subprocess.Popen(
        task, cwd=ROOT, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}, stdout=subprocess.PIPE,
        stderr=log or subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield running
    finally:
        signal_session(running, signal.SIGKILL)
        running.wait()


def speed(servers: Servers, sizes: tuple[int, ...], stream_bytes: int, repeat: int) -> None:
    """Measure, and print a table of medians."""
    queries, fill = [], []
    for size in sizes:
        chunk = CHUNK_MESSAGES
        count = max(stream_bytes // size // chunk, BATCHES) * chunk
        topic = f"values-{size}"
        servers.create(topic, f"{topic}-out")
        servers.fill(topic, size, count)
        fill.append({"topic": topic, "message_bytes": size, "rows": count})
        for variant, source, values_only, sink in (
            ("source, all columns", topic, False, None),
            ("source, values", topic, True, None),
            ("sink", None, True, f"{topic}-out"),
            ("source to sink, values", topic, True, f"{topic}-out"),
        ):
            queries += [
                {
                    "variant": variant, "system": system, "message_bytes": size, "source": source,
                    "values_only": values_only, "sink": sink, "rows_per_batch": count // BATCHES,
                }
                for system in SYSTEMS
            ]  # fmt: skip
    rates: defaultdict[tuple[int, str, str], list[float]] = defaultdict(list)
    with TemporaryDirectory(prefix="magnetar-connectors-") as directory:
        task = servers.task(
            "speed",
            fill=fill,
            queries=queries,
            repeat=repeat + 1,
            directory=directory,
            batches=BATCHES,
            batches_counted=BATCHES_COUNTED,
        )
        for one in answers(task):
            print(json.dumps(one), flush=True)
            if one["repetition"]:
                key = one["message_bytes"], one["variant"], one["system"]
                rates[key].append(one["rows"] / one["seconds"])
    table = Table("bytes", "query", "Magnetar, rows/s", "Kafka, rows/s", "ratio", "of pairs")
    for size, variant in dict.fromkeys((size, variant) for size, variant, _ in rates):
        own, other = (rates[size, variant, system] for system in SYSTEMS)
        pairs = [a / b for a, b in zip(own, other, strict=True)]
        table.add_row(
            *(str(size), variant, f"{median(own):,.0f}", f"{median(other):,.0f}"),
            f"{median(own) / median(other):.2f}",
            f"{min(pairs):.2f}-{max(pairs):.2f}",
        )
    Console().print(table)


def kills(servers: Servers) -> None:
    """Kill a query in the middle of its batches, and print what its output has in the end."""
    servers.create("numbers")
    written = servers.task(
        "numbers",
        topics=dict.fromkeys(SYSTEMS, "numbers"),
        rows=COPIED_ROWS,
        message_bytes=COPIED_BYTES,
    )
    list(answers(written))
    servers.create("copied")
    table = Table("sink", "rows that were read", "rows in the output", "of them duplicates")
    for system in SYSTEMS:
        query = {
            "system": system, "source": "numbers", "values_only": True, "sink": "copied",
            "rows_per_batch": COPIED_ROWS // 40, "message_bytes": COPIED_BYTES,
        }  # fmt: skip
        with TemporaryDirectory(prefix="magnetar-connectors-") as directory:
            checkpoint = Path(directory) / "checkpoint"
            task = servers.task("copy", query=query, checkpoint=str(checkpoint))
            for _ in range(KILLS):
                _copy_until_killed(task, checkpoint)
            list(answers(task))
        (found,) = answers(servers.task("count", system=system, topic="copied"))
        duplicates = found["rows"] - found["different"]
        table.add_row(system, f"{COPIED_ROWS:,}", f"{found['rows']:,}", f"{duplicates:,}")
    Console().print(table)


def _copy_until_killed(task: list[str], checkpoint: Path) -> None:
    """Kill the query between a batch's beginning and its end."""
    before = _begun(checkpoint)
    with process(task) as running:
        while _begun(checkpoint) < before + 3:
            if running.poll() is not None:
                raise click.ClickException("the query ended before it was killed")
            time.sleep(0.01)
        # A batch has begun: its rows are on their way.
        time.sleep(0.15)


def _begun(checkpoint: Path) -> int:
    """Return the number of batches whose end offsets are in the checkpoint."""
    return sum(one.name.isdecimal() for one in (checkpoint / "offsets").glob("*"))


@click.command(context_settings={"show_default": True})
@click.option("--size", "sizes", type=int, multiple=True, default=[100, 1024])
@click.option("--stream-bytes", type=int, default=200_000_000, help="Payload of each stream.")
@click.option("--repeat", type=click.IntRange(1), default=3, help="Turns that count.")
@click.option("--durability", type=click.Choice(list(DURABILITIES)), default=SYNCED)
@click.option("--only", type=click.Choice(["speed", "kills"]), help="Measure this alone.")
def main(
    sizes: tuple[int, ...], stream_bytes: int, repeat: int, durability: str, only: str | None
) -> None:
    """Measure the source and the sink beside those for Kafka, and what a kill leaves."""
    try:
        with ended_by_signals(), both(durability) as servers:
            if only != "kills":
                speed(servers, sizes, stream_bytes, repeat)
            if only != "speed":
                kills(servers)
    except (NotFetched, NotRunning) as error:
        raise click.ClickException(str(error)) from error


main()
