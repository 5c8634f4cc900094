"""The transform of flights equals a direct computation, whatever comes late, broken or breaks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.cli.running import wait_until_gone
from tests.spark.conftest import ROOT
from tests.spark.faults import FaultySource, Planted
from tests.spark.flights import (
    NOT_FLIGHTS,
    START,
    Direct,
    Flight,
    damaged_rows,
    last_of_each,
    odd_rows,
    some_flights,
)
from tests.system.processes import Servers

from magnetar import blocking
from magnetar_core.errors import TopicNotFound
from magnetar_flights import transform as job
from magnetar_flights.program import main
from magnetar_flights.transform import Emit, Request, TransformFailed
from magnetar_spark.clients import close_all
from magnetar_spark.jobs.transforming.checkpoint import CheckpointRefused
from magnetar_spark.jobs.transforming.progress import Batch, Summary

pytestmark = pytest.mark.chaos

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
LONG = timedelta(days=400)


class World:
    """A cluster for all tests of this file: topics of its own for each of them."""

    def __init__(self, spark: SparkSession, servers: Servers) -> None:
        self.spark = spark
        self.servers = servers
        self.client = blocking.connect(servers.address)

    def topics(self, name: str, partitions: int = 1) -> None:
        for topic in (name, *(f"{name}-{what}" for what in ("windows", "late", "errors"))):
            self.client.admin.topics.create(topic, partitions=partitions)

    def send(self, topic: str, rows: Iterable[bytes], partitions: int = 1) -> None:
        producer = self.client.create_producer(topic)
        rows = list(rows)
        for partition in range(partitions):
            producer.send_many(rows[partition::partitions], partition=partition)
        producer.flush()
        producer.close()

    def read(self, topic: str) -> list[Any]:
        count = len(self.client.admin.topics.describe(topic).partitions)
        return [one for at in range(count) for one in self.client.read(topic, at)]

    def windows(self, name: str) -> dict[str, dict[str, object]]:
        """Of updates. Fails when a batch was written twice."""
        return last_of_each((one.key, one.value) for one in self.read(f"{name}-windows"))

    def values(self, topic: str) -> list[bytes]:
        return [one.value for one in self.read(topic)]

    def request(self, name: str, checkpoint: Path, **changed: Any) -> Request:
        return Request(
            **{
                "servers": (self.servers.address,),
                "input": name,
                "output": f"{name}-windows",
                "checkpoint": str(checkpoint),
                "window_ms": DAY // timedelta(milliseconds=1),
                "late_by_ms": LONG // timedelta(milliseconds=1),
                "emit": Emit.UPDATES,
                **changed,
            }
        )

    def run(self, request: Request) -> tuple[Summary, list[Batch]]:
        batches: list[Batch] = []
        stop = threading.Event()
        summary = job.transform(self.spark, request, stop=stop, on_batch=batches.append)
        return summary, batches


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    servers = Servers(tmp_path_factory.mktemp("servers"))
    servers.start()
    made = World(spark, servers)
    # A job's times have nothing to do with where it runs.
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield made
    spark.conf.set("spark.sql.session.timeZone", zone)
    made.client.close()
    close_all()
    servers.stop()


def test_windows_equal_the_direct_computation(world: World, tmp_path: Path) -> None:
    """Flights in no order, and among them what is none: it is counted, and nothing else happens."""
    random = Random(5)
    rows = [one.row() for one in some_flights(3_000, random, days=9, shuffle_minutes=20_000)]
    bad = [*NOT_FLIGHTS, *damaged_rows()]
    rows += [*odd_rows(), *bad]
    random.shuffle(rows)
    world.topics("all", partitions=2)
    world.send("all", rows, partitions=2)
    direct = Direct(DAY, LONG)
    direct.batch(rows)
    assert sorted(direct.malformed) == sorted(bad)
    summary, batches = world.run(world.request("all", tmp_path, rows_per_batch_max=1_000))
    expected = direct.messages()
    assert len(expected) == 9 * 6
    assert world.windows("all") == expected
    assert sum(int(str(one["flights"])) for one in expected.values()) == 3_002
    assert (summary.rows, summary.malformed) == (len(rows), len(bad))
    assert (summary.late, summary.late_groups) == (None, 0)
    assert [batch.number for batch in batches] == list(range(len(batches)))
    assert len(batches) == 4
    assert batches[0].rows <= 1_000
    assert batches[0].behind == len(rows) - batches[0].rows
    assert summary.windows == len(world.read("all-windows"))


class Fault:
    """Between the transaction's commit and Spark's own note of it, once, in the third batch."""

    BATCH = 2

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, emit: str) -> None:
        if emit == "straight":
            made = job._Job._sink_options
            options = {
                "fault": "raises_after",
                "fault.batch": str(self.BATCH),
                "fault.dir": str(directory),
            }
            monkeypatch.setattr(job, "FORMAT", FaultySource.name())
            monkeypatch.setattr(job._Job, "_sink_options", lambda one: made(one) | options)
            return
        write = job._Job._write
        left = [True]

        def failing(one: Any, frame: Any, batch: int) -> None:
            write(one, frame, batch)
            if batch == self.BATCH and left:
                left.clear()
                raise Planted("after a commit that succeeded")

        monkeypatch.setattr(job._Job, "_write", failing)


@pytest.mark.parametrize(
    "way",
    ["final", *(pytest.param(one, marks=pytest.mark.soak) for one in ("updates", "straight"))],
)
def test_late_rows_crashes_and_restarts(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A crash after the commit, a restart, and more flights later: nothing is lost or twice."""
    random = Random(11)
    flights = some_flights(2_400, random, days=12, shuffle_minutes=8_000)
    rows = [flight.row() for flight in flights]
    for place, one in enumerate(damaged_rows()):
        rows.insert(100 * place, one)
    later = [Flight(START, number=one).row() for one in range(7)]
    later += [Flight(START + timedelta(days=30), number=one).row() for one in range(5)]
    direct = Direct(DAY, HOUR)
    direct.batches(rows, 600)
    final = way != "updates"
    topics = {} if way == "straight" else {"late_topic": f"{way}-late"}
    world.topics(way)
    world.send(way, rows)
    request = world.request(
        way,
        tmp_path / "checkpoint",
        late_by_ms=3_600_000,
        emit=Emit.FINAL if final else Emit.UPDATES,
        error_topic=f"{way}-errors",
        rows_per_batch_max=600,
        **topics,
    )
    with monkeypatch.context() as planted:
        Fault(planted, tmp_path, way)
        with pytest.raises(TransformFailed, match="Planted: after a commit that succeeded") as told:
            world.run(request)
    assert "\n" not in str(told.value)
    written = len(world.read(f"{way}-windows"))
    assert written
    _, batches = world.run(request)
    assert batches[0].number == Fault.BATCH
    check(world, way, direct, final=final, has_late=bool(topics))
    direct.batches(later, 600)
    world.send(way, later)
    summary, batches = world.run(request)
    check(world, way, direct, final=final, has_late=bool(topics))
    assert summary.rows == len(later)
    if topics:
        assert summary.late == 7
    assert summary.late_groups == 1
    assert len(direct.late) > 107


def check(world: World, way: str, direct: Direct, *, final: bool, has_late: bool) -> None:
    if final:
        messages = [
            (one.key.decode(), json.loads(one.value)) for one in world.read(f"{way}-windows")
        ]
        assert len(messages) == len(dict(messages)), "a window was written twice"
        assert dict(messages) == direct.messages(closed_only=True)
    else:
        assert world.windows(way) == direct.messages()
    assert Counter(world.values(f"{way}-errors")) == Counter(direct.malformed)
    if has_late:
        assert Counter(world.values(f"{way}-late")) == Counter(direct.late)
    assert world.values(f"{way}-late") == [] or has_late
    for topic, reason in ((f"{way}-errors", "malformed"), (f"{way}-late", "late")):
        for one in world.read(topic):
            assert one.properties[job.REASON] == reason
            name, partition, offset = one.properties[job.SOURCE].split("/")
            (source,) = world.client.read(name, int(partition), int(offset), int(offset) + 1)
            assert (source.value, source.key) == (one.value, one.key)


def test_a_checkpoint_belongs_to_one_job(world: World, tmp_path: Path) -> None:
    world.topics("owned")
    checkpoint = tmp_path / "checkpoint"
    request = world.request("owned", checkpoint)
    world.run(request)
    for changed in ({"window_ms": 3_600_000}, {"emit": Emit.FINAL}, {"late_topic": "owned-late"}):
        with pytest.raises(
            CheckpointRefused,
            match=r"was begun with --(window 1d|emit updates|late-topic left out): go on so",
        ):
            world.run(world.request("owned", checkpoint, **changed))
    (checkpoint / "magnetar-job.json").unlink()
    with pytest.raises(CheckpointRefused, match="name another directory"):
        world.run(request)
    with pytest.raises(CheckpointRefused, match="cannot use the checkpoint nowhere://"):
        world.run(replace(request, checkpoint="nowhere://x/y"))
    with pytest.raises(TopicNotFound):
        world.run(world.request("owned", tmp_path / "other", output="nowhere"))
    assert not (tmp_path / "other").exists()
    with pytest.raises(TransformFailed, match=r"^OptionError: startingOffsets is not JSON") as told:
        world.run(world.request("owned", tmp_path / "third", starting_offsets="soon"))
    assert "\n" not in str(told.value)


NAMES = ("--input", "a", "--output", "b", "--checkpoint", "c")


def test_who_stands_by_goes_on_where_the_other_one_ended(world: World, tmp_path: Path) -> None:
    """It looks at the checkpoint when it is let go, and not before."""
    world.topics("handed-over")
    world.send("handed-over", [Flight(START, number=one).row() for one in range(20)])
    request = world.request("handed-over", tmp_path / "checkpoint")
    stop = threading.Event()
    batches: list[Batch] = []

    def ready() -> None:
        assert not (tmp_path / "checkpoint").exists()
        assert world.run(request)[0].rows == 20
        world.send("handed-over", [Flight(START, number=one).row() for one in range(20, 50)])

    summary = job.transform(
        world.spark, request, stop=stop, on_batch=batches.append, on_ready=ready
    )
    assert summary.rows == 30
    assert sum(batch.rows for batch in batches) == 30
    (one,) = world.windows("handed-over").values()
    assert one["flights"] == 50


def test_who_stands_by_and_is_told_to_stop_does_nothing(world: World, tmp_path: Path) -> None:
    world.topics("never")
    world.send("never", [Flight(START).row()])
    stop = threading.Event()
    summary = job.transform(
        world.spark,
        world.request("never", tmp_path / "checkpoint"),
        stop=stop,
        on_batch=lambda batch: pytest.fail(f"it did {batch}"),
        on_ready=stop.set,
    )
    assert summary == Summary()
    assert not (tmp_path / "checkpoint").exists()
    assert world.windows("never") == {}


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (NAMES[:4], "Missing option '--checkpoint'"),
        ((*NAMES, "--window", "0s"), "whole minutes"),
        ((*NAMES, "--window", "90s"), "whole minutes"),
        ((*NAMES, "--window", "1.5m"), "whole minutes"),
        ((*NAMES, "--window", "soon"), "is not a duration"),
        ((*NAMES, "--emit", "all"), "'updates', 'final'"),
        ((*NAMES, "--late-topic", "a"), "it would read what it writes"),
        ((*NAMES, "--error-topic", "b"), "b is for windows only"),
        ((*NAMES, "--rows-per-batch", "0"), "--rows-per-batch"),
    ],
)
def test_wrong_usage_is_told_without_spark(arguments: tuple[str, ...], advice: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output
    assert advice in " ".join(result.output.split())


@pytest.mark.parametrize("way", ["ctrl-c", pytest.param("parent gone", marks=pytest.mark.soak)])
def test_the_program_ends_in_order(java: None, world: World, tmp_path: Path, way: str) -> None:
    """Ctrl-C as a terminal sends it: to all processes of the group. What has come counts."""
    name = way.replace(" ", "-")
    world.topics(name)
    world.send(name, [Flight(START, number=one).row() for one in range(40)])
    command = [
        *(sys.executable, "-m", "magnetar_flights", "--master", "local[1]"),
        *("--broker", world.servers.address, "--json", "--interval", "200ms"),
        *("--input", name, "--output", f"{name}-windows"),
        *("--checkpoint", str(tmp_path / "checkpoint")),
        *(["--supervised", "--standby"] if way == "parent gone" else []),
    ]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        if way == "parent gone":
            assert json.loads(process.stdout.readline()) == {"ready": True}
            assert not (tmp_path / "checkpoint").exists()
            process.stdin.write("\n")
            process.stdin.flush()
        first = json.loads(process.stdout.readline())
        family = psutil.Process(process.pid).children(recursive=True)
        assert first["batch"]["rows"] == 40
        if way == "ctrl-c":
            os.killpg(process.pid, signal.SIGINT)
        rest, log = process.communicate(timeout=60)  # It closes standard input, too.
        assert process.returncode == 0, log[-3_000:]
        assert json.loads(rest.splitlines()[-1])["summary"]["rows"] == 40
        assert "Traceback" not in log
        wait_until_gone(family)
    (one,) = world.windows(name).values()
    assert one["flights"] == 40
