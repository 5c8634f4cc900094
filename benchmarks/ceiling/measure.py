"""The ceilings: the bare conversation, the bare stream and the bare store."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.ceiling.bare import ROWS, Peer
from benchmarks.ceiling.server import (
    ACK,
    ACK_BYTES,
    ADD,
    ADD_SUBSCRIPTION,
    BYTES,
    END,
    NAME_BYTES,
    NEW,
    SEND,
)
from benchmarks.results import Result, latencies_ms
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import WriteBatch

WARM_UP_S = 0.5
FRAME_BYTES = 256 << 10
FRAMES_UNDER_WAY = 16
STREAM_VARIANT = f"{FRAME_BYTES >> 10} KiB frames"
# Rows of a group, and bytes of a row; the last is as a broker stores full batches.
GROUPS = ((1, 1 << 10), (100, 1 << 10), (4, 256 << 10))


def _group_variant(rows: int, row_bytes: int) -> str:
    return f"groups of {rows} x {row_bytes >> 10} KiB"


STORE_VARIANT = _group_variant(*GROUPS[-1])


@contextmanager
def bare_servers(parent: Path | None, *roles: str) -> Iterator[dict[str, str]]:
    """Run bare servers; gives their addresses by role."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in roles]
    ports = dict(zip(roles, (one.getsockname()[1] for one in sockets), strict=True))
    for one in sockets:
        one.close()
    addresses = {role: f"127.0.0.1:{port}" for role, port in ports.items()}
    processes: list[subprocess.Popen[str]] = []
    with TemporaryDirectory(prefix="magnetar-ceiling-", dir=parent) as directory:
        try:
            for role in roles:
                processes.append(
                    subprocess.Popen(
                        [
                            *(sys.executable, "-m", "benchmarks.ceiling.server", role),
                            *("--port", str(ports[role]), "--data-dir", f"{directory}/{role}"),
                            *("--broker", addresses.get("broker", "")),
                        ],
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
                stdout = processes[-1].stdout
                assert stdout is not None
                assert stdout.readline() == "ready\n"
            yield addresses
        finally:
            for process in processes:
                process.kill()
                process.wait()


async def measure_transactions(
    addresses: dict[str, str],
    *,
    concurrencies: tuple[int, ...],
    seconds: float,
    message_bytes: int,
    partitions: int,
    inputs: int,
) -> AsyncIterator[Result]:
    """NewTxn; AddPartition and AddSubscription; the messages and acks; EndTxn. All durable."""
    broker = await Peer.connect(addresses["broker"])
    coordinator = await Peer.connect(addresses["coordinator"])
    value = bytes(message_bytes)
    ack = bytes(ACK_BYTES)
    additions = [(ADD, bytes(NAME_BYTES * partitions))]
    if inputs:
        additions.append((ADD_SUBSCRIPTION, bytes(NAME_BYTES * inputs)))
    writes = [(SEND, value)] * partitions + [(ACK, ack)] * inputs
    latencies_s: list[float] = []
    deadline_s = 0.0

    async def transact() -> None:
        while time.perf_counter() < deadline_s:
            txn = await coordinator.wait(NEW, 0)
            began_s = time.perf_counter()
            await asyncio.gather(*(coordinator.wait(kind, txn, names) for kind, names in additions))
            await asyncio.gather(*(broker.wait(kind, txn, payload) for kind, payload in writes))
            await coordinator.wait(END, txn)
            latencies_s.append(time.perf_counter() - began_s)

    for concurrency in concurrencies:
        for duration_s in (WARM_UP_S, seconds):
            latencies_s.clear()
            began_s = time.perf_counter()
            deadline_s = began_s + duration_s
            await asyncio.gather(*(transact() for _ in range(concurrency)))
            elapsed_s = time.perf_counter() - began_s
        count = len(latencies_s)
        p50_ms, p99_ms = latencies_ms(latencies_s)
        yield Result(
            workload="bare transactions",
            variant=f"{concurrency} at once",
            scale=concurrency,
            per_s=count / elapsed_s,
            mb_per_s=count / elapsed_s * partitions * message_bytes / 1e6,
            latency_of="all but NewTxn",
            p50_ms=p50_ms,
            p99_ms=p99_ms,
        )
    broker.close()
    coordinator.close()


async def measure_stream(addresses: dict[str, str], *, total_bytes: int) -> AsyncIterator[Result]:
    """Bytes to a server that answers each frame and keeps nothing."""
    sink = await Peer.connect(addresses["sink"])
    frame = bytes(FRAME_BYTES)
    count = max(total_bytes // FRAME_BYTES, FRAMES_UNDER_WAY)
    left = iter(range(count))

    async def send() -> None:
        for _ in left:
            await sink.wait(BYTES, 0, frame)

    began_s = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(FRAMES_UNDER_WAY)))
    elapsed_s = time.perf_counter() - began_s
    sink.close()
    yield Result(
        workload="bare stream",
        variant=STREAM_VARIANT,
        per_s=count / elapsed_s,
        mb_per_s=count * FRAME_BYTES / elapsed_s / 1e6,
    )


async def measure_store(parent: Path | None, *, seconds: float) -> AsyncIterator[Result]:
    """Groups of rows, each written and synced."""
    with TemporaryDirectory(prefix="magnetar-ceiling-", dir=parent) as directory:
        store = RocksStore.open(directory, [ROWS], payload_families=[ROWS])
        number = 0
        for rows, row_bytes in GROUPS:
            value = bytes(row_bytes)
            latencies_s: list[float] = []
            deadline_s = time.perf_counter() + seconds
            while (began_s := time.perf_counter()) < deadline_s:
                batch = WriteBatch()
                for _ in range(rows):
                    number += 1
                    batch.put(ROWS, number.to_bytes(8, "big"), value)
                await store.write(batch)
                await store.sync()
                latencies_s.append(time.perf_counter() - began_s)
            per_s = len(latencies_s) / seconds
            p50_ms, p99_ms = latencies_ms(latencies_s)
            yield Result(
                workload="bare store",
                variant=_group_variant(rows, row_bytes),
                per_s=per_s,
                mb_per_s=per_s * rows * row_bytes / 1e6,
                latency_of="write and sync",
                p50_ms=p50_ms,
                p99_ms=p99_ms,
            )
        await store.close()
