"""An offload and a restore whose drivers are killed for good, JVM and all; and 10^7 messages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from tests.sessions import kill_session
from tests.spark.conftest import ROOT
from tests.spark.offloads import by_partition, files, read_files, read_topic
from tests.system.processes import Servers

from magnetar import blocking

pytestmark = [pytest.mark.chaos, pytest.mark.soak]

KILLED = -signal.SIGKILL
MESSAGES = int(os.environ.get("SOAK_OFFLOAD_MESSAGES", "10000000"))
MESSAGE_BYTES = 100
PARTITIONS = 4
HEAP = "1g"
# The heap, and what the JVM itself needs beside it.
JVM_BYTES_MAX = (1 << 30) + (512 << 20)
CHUNK = 100_000
# Of ten times as many messages.
GROWTH_MAX = 1.25


def drive(*work: dict[str, object]) -> int:
    told = {"master": "local[2]", "work": work}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.offload_driver", json.dumps(told)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(300)
    finally:
        kill_session(process)


@pytest.mark.parametrize(
    "kill",
    [
        ("OffloadLog", "add", 1),
        ("LocalDirectory", "move", 3),
        ("LocalDirectory", "move", 8),
        ("OffloadLog", "add", 2),
    ],
    ids=["begun", "moving", "moved", "committed"],
)
def test_an_offload_is_killed(
    java: None, servers: Servers, tmp_path: Path, kill: tuple[str, str, int]
) -> None:
    directory = tmp_path / "offload"
    with blocking.connect(servers.address) as client:
        _fill(client, "in", 160)
        work = {
            "job": "offload",
            "servers": [servers.address],
            "topic": "in",
            "directory": str(directory),
            "rows_per_file": 10,
        }
        assert drive({**work, "kill": kill}) == KILLED
        assert len(set(read_files(directory))) == len(read_files(directory))
        assert drive(work) == 0
        assert read_files(directory) == read_topic(client, "in")


@pytest.mark.parametrize("method", ["_planned", "_write"])
def test_a_restore_is_killed(java: None, servers: Servers, tmp_path: Path, method: str) -> None:
    directory = tmp_path / "offload"
    with blocking.connect(servers.address) as client:
        _fill(client, "in", 160)
        both: dict[str, object] = {"servers": [servers.address], "directory": str(directory)}
        offload = {"job": "offload", "topic": "in", **both}
        restore = {"job": "restore", "topic": "out", "transaction_messages": 50, **both}
        assert drive(offload, {**restore, "kill": ("_Restoring", method, 2)}) == KILLED
        assert 0 < len(read_topic(client, "out")) < 160
        assert drive(restore) == 0
        assert by_partition(read_topic(client, "out")) == by_partition(read_topic(client, "in"))


def _fill(client: blocking.Client, topic: str, count: int) -> None:
    """Every tenth chunk plain, the others a transaction each over all partitions."""
    client.admin.topics.create(topic, partitions=PARTITIONS)
    producer = client.create_producer(topic)
    random = Random(count)
    chunk = min(CHUNK, count // 10)
    for number in range(0, count, chunk):
        txn = client.begin_transaction(600) if number // chunk % 10 else None
        noise = random.randbytes(MESSAGE_BYTES * chunk)
        values = [noise[at : at + MESSAGE_BYTES] for at in range(0, len(noise), MESSAGE_BYTES)]
        for partition in range(PARTITIONS):
            producer.send_many(values[partition::PARTITIONS], partition=partition, txn=txn)
        if txn is not None:
            txn.commit(wait_finished=True)
    producer.flush()
    producer.close()


class Use:
    """Of the driver, its JVM, its Python workers and the servers: memory at its peak, and time.

    Workers are forked: of a page that several have, each counts its share.
    """

    def __init__(self, driver: int, servers: Servers) -> None:
        self.bytes: Counter[str] = Counter()
        self._cpu_s: dict[tuple[str, int], float] = {}
        self._driver = psutil.Process(driver)
        self._servers = servers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Use:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def cpu_s(self) -> dict[str, float]:
        """Processor time, in seconds, of all processes that there were."""
        found: dict[str, float] = {}
        for (kind, _), seconds in self._cpu_s.items():
            found[kind] = found.get(kind, 0.0) + seconds
        return {kind: round(seconds, 1) for kind, seconds in found.items()}

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            now: Counter[str] = Counter()
            try:
                now["driver"] += self._driver.memory_info().rss
                self._note("driver", self._driver)
                for one in self._driver.children(recursive=True):
                    if one.name() == "java":
                        now["jvm"] += one.memory_info().rss
                        self._note("jvm", one)
                    else:
                        now["workers"] += one.memory_full_info().pss
                        self._note("workers", one)
            except psutil.NoSuchProcess:
                continue
            now["servers"] = self._servers.peak_memory_bytes()
            self.bytes |= now

    def _note(self, kind: str, process: psutil.Process) -> None:
        times = process.cpu_times()
        self._cpu_s[kind, process.pid] = times.user + times.system


def test_ten_million_messages_in_bounded_memory(
    java: None,
    servers: Servers,
    tmp_path: Path,
    figure: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    peaks = {}
    for count in (MESSAGES // 10, MESSAGES):
        topic = f"of-{count}"
        with blocking.connect(servers.address) as client:
            _fill(client, topic, count)
        directory = tmp_path / topic
        runs = {
            "offload": (topic, str(directory)),
            "restore": (str(directory), f"{topic}-again"),
        }
        for job, arguments in runs.items():
            began = time.monotonic()
            report, use = _run(job, arguments, servers)
            peaks[job, count] = use.bytes
            seconds = time.monotonic() - began
            assert (report.get("new_messages") or report["messages"]) == count
            told = {name: f"{peak >> 20} MiB" for name, peak in peaks[job, count].items()}
            text = f"{job} of {count:,}: {seconds:.1f} s, processor s {use.cpu_s()}, {told}"
            if job == "offload":
                text += f", {report['new_bytes'] / 1e6:.1f} MB in {report['new_files']} files"
            with capsys.disabled():
                print(text)
            figure(f"{job} {count}", text)
        _check(servers, topic, directory, count)
        for job in runs:
            # A JVM takes what its heap may be, sooner or later.
            assert peaks[job, count]["jvm"] <= JVM_BYTES_MAX, (job, count)
    for job in ("offload", "restore"):
        for kind in ("driver", "workers"):
            few, many = (peaks[job, count][kind] for count in (MESSAGES // 10, MESSAGES))
            assert many <= GROWTH_MAX * few, (job, kind, few, many)


def _run(job: str, arguments: tuple[str, ...], servers: Servers) -> tuple[dict[str, Any], Use]:
    """As a program of its own, with a small heap."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "magnetar_cli.pipeline", job, *arguments),
            *("--broker", servers.address, "--master", "local[2,4]", "--json"),
        ],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"--driver-memory {HEAP} pyspark-shell"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with Use(process.pid, servers) as use:
        out, errors = process.communicate(timeout=3_600)
    assert process.returncode == 0, (out, errors[-2000:])
    assert re.search(r"of [\d,]+ offsets \(100 %\)", errors)
    return json.loads(out), use


def _check(servers: Servers, topic: str, directory: Path, count: int) -> None:
    """Files and both topics, partition by partition, value by value."""
    with blocking.connect(servers.address) as client:
        total = 0
        for partition in range(PARTITIONS):
            of_files = _values(files(directory), partition)
            again = _read(client, f"{topic}-again", partition)
            for value in _read(client, topic, partition):
                assert value == next(of_files) == next(again)
                total += 1
            assert next(of_files, None) is next(again, None) is None
    assert total == count


def _read(client: blocking.Client, topic: str, partition: int) -> Iterator[bytes]:
    for columns in client.read_columns(topic, partition):
        yield from columns.values()


def _values(paths: list[Path], partition: int) -> Iterator[bytes]:
    for path in paths:
        if path.parent.name == f"partition={partition}":
            for batch in pq.ParquetFile(path).iter_batches(columns=["value"]):
                yield from batch.column(0).to_pylist()
