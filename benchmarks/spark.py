"""The Spark source and sink, beside Spark's own rate source and no-op sink."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from benchmarks.results import Result
from magnetar import Client

# The first ones of a query warm Java up, and are not counted.
BATCHES = 8
BATCHES_COUNTED = 5
TOPIC_PARTITIONS = 2
CHUNK_MESSAGES = 10_000
MASTER = "local[2]"


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What Spark's half says about a job, in a line of JSON."""

    name: str
    rows: int
    seconds: float


async def measure(
    client: Client, address: str, *, sizes: tuple[int, ...], total_bytes: int
) -> AsyncIterator[Result]:
    """Yield rows per second of streaming queries, each in a few large batches on two cores."""
    jobs: list[dict[str, object]] = []
    for message_bytes in sizes:
        count = max(total_bytes // message_bytes, CHUNK_MESSAGES)
        name = f"spark-{message_bytes}"
        await _fill(client, name, message_bytes, count)
        await client.admin.topics.create(f"{name}-out", partitions=TOPIC_PARTITIONS)
        servers = {"magnetar.bootstrap.servers": address}
        reading = {**servers, "subscribe": name, "startingOffsets": "earliest"}
        values = {**reading, "columns": "value"}
        for variant, source, sink in (
            ("source to no-op", reading, None),
            ("source of values to no-op", values, None),
            ("source of values to sink", values, {**servers, "topic": f"{name}-out"}),
        ):
            jobs.append(
                {
                    "name": f"{message_bytes} B, {variant}",
                    "source": source,
                    "sink": sink,
                    "rows_per_batch": -(-count // BATCHES),
                }
            )
    largest = max(total_bytes // min(sizes), CHUNK_MESSAGES)
    rate = {"name": "rate to no-op", "source": None, "sink": None}
    jobs.insert(0, {**rate, "rows_per_batch": -(-largest // BATCHES)})
    async for answer in _run(jobs):
        variant = answer.name
        size = int(variant.split()[0]) if " B, " in variant else None
        per_s = answer.rows / answer.seconds
        yield Result(
            workload="spark",
            variant=variant,
            scale=size,
            per_s=per_s,
            mb_per_s=None if size is None else per_s * size / 1e6,
        )


async def _fill(client: Client, topic: str, message_bytes: int, count: int) -> None:
    await client.admin.topics.create(topic, partitions=TOPIC_PARTITIONS)
    producer = await client.create_producer(topic)
    values = [bytes(message_bytes)] * CHUNK_MESSAGES
    for _ in range(-(-count // CHUNK_MESSAGES)):
        await producer.send_many(values)
    await producer.close()


async def _run(jobs: list[dict[str, object]]) -> AsyncIterator[_Answer]:
    with TemporaryDirectory(prefix="magnetar-spark-") as directory:
        told = {
            "master": MASTER,
            "jobs": jobs,
            "directory": directory,
            "batches": BATCHES,
            "batches_counted": BATCHES_COUNTED,
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.spark_job", json.dumps(told)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                if line.startswith(b"{"):
                    yield _Answer(**json.loads(line))
            await process.wait()
            if process.returncode:
                raise RuntimeError("Spark's half failed: run benchmarks.spark_job by itself")
        finally:
            if process.returncode is None:
                process.kill()
