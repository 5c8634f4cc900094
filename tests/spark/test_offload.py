"""Offload to Parquet and back: nothing twice, nothing missing, nothing half, whatever crashes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.json_output import read_json
from tests.spark.damages import Store, damage
from tests.spark.offloads import (
    LARGE_BYTES,
    Seen,
    add,
    by_partition,
    files,
    fill,
    read_files,
    read_topic,
)
from tests.system.processes import BROKER, Servers
from tests.waiting import wait_until

from magnetar import PartitionOffsets, blocking
from magnetar.blocking.admin import TopicAdmin
from magnetar_cli.program import cli
from magnetar_core.errors import TopicNotFound
from magnetar_spark.clients import close_all
from magnetar_spark.jobs.failures import JobError
from magnetar_spark.jobs.offloading import offload as offloading
from magnetar_spark.jobs.offloading import restore as restoring
from magnetar_spark.jobs.offloading.directory import HadoopDirectory, LocalDirectory, open_directory
from magnetar_spark.jobs.offloading.manifest import HIDDEN, file_name
from magnetar_spark.jobs.offloading.offload import _Run, offload
from magnetar_spark.jobs.offloading.offload_goal import Request
from magnetar_spark.jobs.offloading.offload_log import OffloadLog
from magnetar_spark.jobs.offloading.restore import _Restoring, restore

pytestmark = pytest.mark.chaos


class World:
    """One cluster for all tests of the module; each has a topic and a directory of its own."""

    def __init__(self, spark: SparkSession, servers: Servers, directory: Path) -> None:
        self.spark = spark
        self.servers = (servers.address,)
        self.address = servers.address
        self.directory = directory
        self.client = blocking.connect(servers.address)
        self._number = 0

    def new(self, *, filled: bool = True) -> tuple[str, Path]:
        self._number += 1
        topic = f"topic-{self._number}"
        if filled:
            fill(self.client, topic)
        return topic, self.directory / topic

    def offload(self, topic: str, directory: Path, **more: object) -> offloading.Report:
        return offload(self.spark, Request(self.servers, topic, str(directory), **more))  # type: ignore[arg-type]

    def restore(self, directory: Path, topic: str, **more: object) -> restoring.Report:
        return restore(
            self.spark,
            restoring.Request(self.servers, str(directory), topic, **more),  # type: ignore[arg-type]
        )

    def seen(self, topic: str) -> list[Seen]:
        return read_topic(self.client, topic)


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("offloads")
    servers = Servers(directory, {"MAGNETAR_RETENTION_CHECK_INTERVAL_MS": "100"})
    servers.start()
    made = World(spark, servers, directory)
    yield made
    made.client.close()
    close_all()
    servers.stop()


class Killed(BaseException):
    """In place of SIGKILL: what is in the directory stays there."""


def kill_at(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, call: int, *, after: bool = False
) -> None:
    """End a run at the n-th call of a method, before or after it; nothing is tidied up then."""
    real = getattr(owner, method)
    calls = []

    def planted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == call and not after:
            monkeypatch.setattr(LocalDirectory, "remove", lambda *_: None)
            raise Killed
        result = real(*arguments, **options)
        if len(calls) == call:
            monkeypatch.setattr(LocalDirectory, "remove", lambda *_: None)
            raise Killed
        return result

    monkeypatch.setattr(owner, method, planted)


def everything(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): path.stat().st_mtime_ns
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_there_and_back_and_what_is_new(world: World) -> None:
    """Files hold what readers see, by name in their order; so does what is restored."""
    topic, directory = world.new()
    first = world.offload(topic, directory)
    seen = world.seen(topic)
    assert any(one.headers for one in seen)
    assert any(one.event_time_ms for one in seen)
    assert max(len(one.value) for one in seen) > LARGE_BYTES
    assert len({one.txn_id for one in seen}) > 2
    assert not any(b"lost" in one.value or one.value == b"open" for one in seen)
    assert read_files(directory) == seen
    assert first.messages == first.new_messages == len(seen)
    assert len(files(directory)) == 3
    frame = world.spark.read.parquet(str(directory))
    assert frame.columns == [
        *("key", "value", "headers", "event_time", "timestamp", "offset", "txn_id", "partition")
    ]
    found = {(one.partition, one.offset) for one in frame.select("partition", "offset").collect()}
    assert found == {(one.partition, one.offset) for one in seen}
    arrow = pyarrow.dataset.dataset(directory, format="parquet", partitioning="hive")
    assert arrow.count_rows() == len(seen)

    again = f"{topic}-again"
    assert world.restore(directory, again).messages == len(seen)
    assert by_partition(world.seen(again)) == by_partition(seen)

    before = everything(directory)
    assert world.offload(topic, directory).new_messages == 0
    assert world.restore(directory, again).messages == 0
    assert everything(directory) == before

    add(world.client, topic, 3, "second")
    report = world.offload(topic, directory)
    more = world.seen(topic)
    assert report.new_messages == len(more) - len(seen)
    assert read_files(directory) == more
    assert world.restore(directory, again).messages == report.new_messages
    assert by_partition(world.seen(again)) == by_partition(more)


def test_ranges_are_cut_anywhere(world: World) -> None:
    """In the middle of a transaction, and of a message that was sent in parts."""
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic)
    producer = world.client.create_producer(
        topic, whole_bytes_max=64 << 10, batch_bytes_max=64 << 10
    )
    producer.send_many([b"a", b"b"])
    producer.send(b"large" + bytes(200 << 10))
    producer.send(b"c")
    report = world.offload(topic, directory, rows_per_file=1, compression="none")
    seen = world.seen(topic)
    (partition,) = report.partitions
    assert partition.end_offset > len(seen) == report.messages == report.new_files == 4
    assert read_files(directory) == seen
    again = f"{topic}-again"
    # One offset each: the large message has several, and stays one message.
    assert world.restore(directory, again, transaction_messages=1).transactions >= 4
    assert by_partition(world.seen(again)) == by_partition(seen)


@pytest.mark.parametrize(
    ("owner", "method", "call", "after"),
    [
        (OffloadLog, "add", 1, True),  # The run has begun.
        (_Run, "_write_staged", 1, True),  # All is staged.
        (LocalDirectory, "move", 2, True),  # Some files are in place.
        (OffloadLog, "add", 2, False),  # All files of the portion are, and do not count.
        (OffloadLog, "add", 2, True),  # The first portion counts.
    ],
    ids=["begun", "staged", "moving", "moved", "committed"],
)
def test_a_run_is_killed(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, call: int, after: bool
) -> None:
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic, partitions=2)
    producer = world.client.create_producer(topic)
    for partition in range(2):
        producer.send_many([b"%d" % number for number in range(60)], partition=partition)
    producer.flush()
    with monkeypatch.context() as planted:
        kill_at(planted, owner, method, call, after=after)
        with pytest.raises(Killed):
            world.offload(topic, directory, rows_per_file=10)
    # Whoever reads the directory meanwhile sees nothing twice.
    assert len(set(read_files(directory))) == len(read_files(directory))
    with pytest.raises(JobError, match="was interrupted: run it again"):
        world.restore(directory, f"{topic}-again")
    producer.send(b"later", partition=1)
    world.offload(topic, directory, rows_per_file=10)
    assert read_files(directory) == world.seen(topic)
    assert not list((directory / HIDDEN).glob("staging-*"))
    manifest = OffloadLog(open_directory(world.spark, str(directory))).latest()
    assert manifest is not None
    assert [(one.partition, file.name) for one in manifest.partitions for file in one.files] == [
        (int(one.parent.name.removeprefix("partition=")), one.name) for one in files(directory)
    ]


@pytest.mark.parametrize("method", ["move", "entries"])
def test_a_run_that_was_overtaken_ends(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Another one begins and ends while it moves files, or before it does: that one counts."""
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic)
    world.client.create_producer(topic).send(b"once")
    real = getattr(LocalDirectory, method)
    reports: list[Any] = []

    def planted(self: LocalDirectory, *arguments: str) -> Any:
        result = real(self, *arguments)
        if not reports and "staging" in "".join(arguments):
            reports.append(None)
            reports[0] = world.offload(topic, directory)
        return result

    monkeypatch.setattr(LocalDirectory, method, planted)
    with pytest.raises(JobError, match="another offload writes into"):
        world.offload(topic, directory)
    assert reports[0].new_messages == 1
    manifest = OffloadLog(open_directory(world.spark, str(directory))).latest()
    assert manifest is not None
    assert manifest.number == reports[0].manifest
    assert read_files(directory) == world.seen(topic)
    world.offload(topic, directory)
    assert read_files(directory) == world.seen(topic)


def test_what_a_lost_attempt_has_left(world: World) -> None:
    """A file that an offload may have written goes; what somebody else put there stays."""
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic)
    world.client.create_producer(topic).send(b"once")
    world.offload(topic, directory)
    (own,) = files(directory)
    stray = own.with_name(file_name(0, 1, "f" * 32))
    shutil.copy(own, stray)
    (directory / HIDDEN / "staging-0" / "_temporary").mkdir(parents=True)
    (directory / HIDDEN / ".manifest-0000000009.json.0").write_text("{")
    world.offload(topic, directory)
    assert files(directory) == [own]
    assert all(one.name.startswith("manifest-") for one in (directory / HIDDEN).iterdir())
    foreign = own.with_name("part-00000.parquet")
    shutil.copy(own, foreign)
    before = everything(directory)
    with pytest.raises(JobError, match=r"part-00000\.parquet is not of this offload"):
        world.offload(topic, directory)
    assert everything(directory) == before


def test_retention_was_faster(world: World) -> None:
    # With its header, a fourth one would be too much.
    RETAINED = 3
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic, retention_bytes=200_000, retain_unconsumed=False)
    producer = world.client.create_producer(topic)

    def place() -> PartitionOffsets:
        (found,) = world.client.admin.topics.list_offsets(topic).partitions
        return found

    def send_and_wait(first_offset: int) -> int:
        """Until retention has removed what lies before, and rests; where the partition begins."""
        while place().end_offset < first_offset + RETAINED:
            producer.send(bytes(50_000))
        wait_until(lambda: place().end_offset - place().first_offset == RETAINED)
        return place().first_offset

    begun = send_and_wait(3)
    report = world.offload(topic, directory)
    before = world.seen(topic)
    assert report.partitions[0].first_offset == begun
    gone = send_and_wait(report.partitions[0].end_offset + 3)
    with pytest.raises(JobError, match="gone before they were offloaded: --accept-loss"):
        world.offload(topic, directory)
    (partition,) = world.offload(topic, directory, accept_loss=True).partitions
    assert partition.lost == gone - report.partitions[0].end_offset >= 3
    assert partition.first_offset == begun
    assert read_files(directory) == before + world.seen(topic)


def test_what_cannot_be_read_is_left_out_only_when_accepted(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows of the broker's store that are gone, and changed."""
    servers = Servers(tmp_path)
    servers.start()
    with blocking.connect(servers.address) as client:
        topic_id = client.admin.topics.create("damaged", partitions=2)
        producer = client.create_producer("damaged")
        for number in range(6):
            for partition in range(2):
                producer.send_many([b"%d" % number] * 5, partition=partition)
                producer.flush()
    servers.stop()

    async def change(store: Store) -> None:
        await store.remove_entry(topic_id, 0, 2)
        await store.change_entry(topic_id, 1, 5)

    damage(tmp_path / BROKER, change)
    servers.start()
    try:
        request = Request((servers.address,), "damaged", str(tmp_path / "out"), 12)
        with pytest.raises(JobError, match=r"^a task failed: "):
            offload(spark, request)
        assert read_files(tmp_path / "out") == []
        report = offload(spark, replace(request, accept_loss=True))
        assert [(one.messages, one.lost) for one in report.partitions] == [(25, 5), (25, 5)]
        assert [one.offset for one in read_files(tmp_path / "out")] == [
            *(*range(10), *range(15, 30)),
            *range(25),
        ]
        manifest = OffloadLog(open_directory(spark, request.directory)).latest()
        assert manifest is not None
        assert [one.losses for one in manifest.partitions] == [((10, 15),), ((25, 30),)]
    finally:
        close_all()
        servers.stop()


def test_bad_input_is_one_line_and_changes_nothing(world: World, tmp_path: Path) -> None:
    topic, directory = world.new(filled=False)
    topic_id = world.client.admin.topics.create(topic)
    world.client.create_producer(topic).send(b"once")
    world.offload(topic, directory)

    def refused(what: str, run: Callable[[], object]) -> None:
        before = everything(tmp_path) | everything(directory)
        with pytest.raises(JobError, match=what) as caught:
            run()
        assert "\n" not in str(caught.value)
        assert everything(tmp_path) | everything(directory) == before

    def offload_to(name: str) -> Callable[[], object]:
        return lambda: world.offload(topic, tmp_path / name)

    with pytest.raises(TopicNotFound):
        world.offload("nowhere", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    refused("file is not a directory", offload_to("file"))
    refused("choose a path without any of", offload_to("a*b"))
    refused("No FileSystem for scheme", lambda: world.offload(topic, "nofs://a/b"))  # type: ignore[arg-type]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "data.parquet").write_text("")
    refused("has 'data.parquet' and no manifest", offload_to("full"))
    refused("there is no offload in", lambda: world.restore(tmp_path / "none", "x"))

    (manifest,) = sorted((directory / HIDDEN).glob("manifest-*.json"))[-1:]
    good = manifest.read_bytes()
    foreign = {
        "is not the manifest of an offload": b'{"format": "other"}',
        "is damaged: it is not JSON": good[:50],
        "is damaged: its checksum does not fit": good.replace(b'"row_count": 1', b'"row_count": 2'),
        "has format version 9": good.replace(b'"format_version": 1', b'"format_version": 9'),
    }
    for what, data in foreign.items():
        manifest.write_bytes(data)
        refused(what, lambda: world.offload(topic, directory))
        refused(what, lambda: world.restore(directory, "x"))
    manifest.write_bytes(good)

    (file,) = files(directory)
    aside = file.rename(tmp_path / file.name)
    refused(f"{file.name} is missing", lambda: world.offload(topic, directory))
    refused(f"{file.name} is missing", lambda: world.restore(directory, "x"))
    file.write_bytes(b"short")
    refused(f"{file.name} has 5 bytes", lambda: world.restore(directory, "x"))
    aside.rename(file)

    other, _ = world.new(filled=False)
    world.client.admin.topics.create(other)
    refused(f"is an offload of topic '{topic}'", lambda: world.offload(other, directory))
    world.client.admin.topics.delete(topic, force=True)
    anew = world.client.admin.topics.create(topic)
    refused(
        f"deleted and made anew \\(its id is {anew}, and was {topic_id}\\)",
        lambda: world.offload(topic, directory),
    )
    refused("has messages already", lambda: world.restore(directory, _used(world)))
    assert "x" not in {one.topic for one in world.client.admin.topics.list()}


def _used(world: World) -> str:
    topic, _ = world.new(filled=False)
    world.client.admin.topics.create(topic)
    world.client.create_producer(topic).send(b"first")
    return topic


def test_a_damaged_file_is_not_restored(world: World) -> None:
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic)
    producer = world.client.create_producer(topic)
    producer.send_many([b"a message %d" % number for number in range(1_000)])
    producer.flush()
    world.offload(topic, directory, compression="none")
    (file,) = files(directory)
    data = bytearray(file.read_bytes())
    data[data.index(b"a message 500")] ^= 1
    file.write_bytes(data)
    again = f"{topic}-again"
    with pytest.raises(JobError) as caught:
        world.restore(directory, again)
    assert "\n" not in str(caught.value)
    assert world.seen(again) == []


def test_whole_transactions_in_bounded_ones(world: World) -> None:
    """Of original transactions, none lies in two; and appended, behind what is there."""
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic, partitions=2)
    producer = world.client.create_producer(topic)
    for number in range(0, 12, 2):
        pair = [world.client.begin_transaction(), world.client.begin_transaction()]
        for at, txn in enumerate(pair):
            for partition in range(2):
                producer.send_many([b"%d" % (number + at)] * 3, partition=partition, txn=txn)
            producer.send(b"plain", partition=at)
        for txn in reversed(pair):
            txn.commit(wait_finished=True)
    world.offload(topic, directory, rows_per_file=20)
    again = f"{topic}-again"
    world.client.admin.topics.create(again, partitions=3)
    world.client.create_producer(again).send(b"first", partition=0)
    with pytest.raises(JobError, match="has messages already"):
        world.restore(directory, again)
    report = world.restore(directory, again, transaction_messages=20, append=True)
    assert report.messages == len(world.seen(topic))
    assert report.transactions >= 4
    assert report.split == 0
    restored = [one for one in world.seen(again) if one.value != b"first"]
    assert by_partition(restored) == by_partition(world.seen(topic))
    by_value: dict[bytes, set[str | None]] = {}
    for one in restored:
        if one.value != b"plain":
            by_value.setdefault(one.value, set()).add(one.txn_id)
    assert len(by_value) == 12
    assert all(len(found) == 1 for found in by_value.values())
    sizes = Counter(one.txn_id for one in restored)
    assert None not in sizes
    assert max(sizes.values()) <= 22

    split = f"{topic}-split"
    report = world.restore(directory, split, transaction_messages=60)
    assert (report.transactions, report.split) == (2, 0)
    shutil.rmtree(directory / HIDDEN / "restores")
    with pytest.raises(JobError, match="from another copy"):
        world.restore(directory, split)


@pytest.mark.parametrize(
    ("method", "after"),
    [("_planned", True), ("_write", True), ("_wait_finished", False)],
    ids=["planned", "written", "between"],
)
def test_a_restore_is_killed(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str, after: bool
) -> None:
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic, partitions=2)
    producer = world.client.create_producer(topic)
    for partition in range(2):
        producer.send_many([b"%d" % number for number in range(30)], partition=partition)
    producer.flush()
    world.offload(topic, directory)
    again = f"{topic}-again"
    with monkeypatch.context() as planted:
        kill_at(planted, _Restoring, method, 2, after=after)
        with pytest.raises(Killed):
            world.restore(directory, again, transaction_messages=20)
    some = len(world.seen(again))
    assert 0 < some < 60
    note = max((directory / HIDDEN / "restores").rglob("batch-*.json"))
    good = note.read_text()
    for damaged in (
        "[]",
        "{",
        good.replace('"end"', '"ends"'),
        good.replace('"end": [', '"end": [9'),
    ):
        note.write_text(damaged)
        with pytest.raises(JobError, match="is damaged"):
            world.restore(directory, again)
    note.write_text(good)
    # With another limit: what was planned stays as it was.
    report = world.restore(directory, again, transaction_messages=1_000)
    assert report.messages == 60 - some
    assert by_partition(world.seen(again)) == by_partition(world.seen(topic))


def test_a_transaction_that_was_offloaded_in_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends of partitions are not told at one moment: a commit may come in between."""
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic, partitions=2)
    producer = world.client.create_producer(topic)
    producer.send(b"before", partition=0)
    txn = world.client.begin_transaction(600)
    for partition in range(2):
        producer.send(b"both", partition=partition, txn=txn)
    real = TopicAdmin.list_offsets
    asked = []

    def torn(self: TopicAdmin, topic: str, **options: Any) -> Any:
        """Partition 0 answers after the commit, and partition 1 before it."""
        asked.append(topic)
        if len(asked) > 1:
            return real(self, topic, **options)
        before = real(self, topic, **options)
        txn.commit(wait_finished=True)
        producer.send(b"behind", partition=0)
        after = real(self, topic, **options)
        return replace(before, partitions=(after.partitions[0], before.partitions[1]))

    with monkeypatch.context() as planted:
        planted.setattr(TopicAdmin, "list_offsets", torn)
        world.offload(topic, directory)
    again = f"{topic}-again"
    report = world.restore(directory, again)
    assert (report.messages, report.left_out) == (1, 2)
    assert [one.value for one in world.seen(again)] == [b"before"]
    torn_up = f"{topic}-torn"
    assert world.restore(directory, torn_up, include_unfinished=True).messages == 3

    world.offload(topic, directory)
    report = world.restore(directory, again)
    assert (report.messages, report.left_out) == (3, 0)
    assert by_partition(world.seen(again)) == by_partition(world.seen(topic))
    assert len({one.txn_id for one in world.seen(again) if one.value == b"both"}) == 1


def test_on_another_file_system(world: World) -> None:
    """Through Hadoop's own interface, as on HDFS."""
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic, partitions=2)
    values = [b"%d" % number for number in range(50)]
    world.client.create_producer(topic).send_many(values, partition=0)
    directory.mkdir()
    context = world.spark.sparkContext
    context._jsc.hadoopConfiguration().set(
        "fs.viewfs.mounttable.offloads.link./mounted", f"file://{directory}"
    )
    url = "viewfs://offloads/mounted/here"
    assert isinstance(open_directory(world.spark, url), HadoopDirectory)
    world.offload(topic, url, rows_per_file=10)  # type: ignore[arg-type]
    world.client.create_producer(topic).send(b"more")
    stray = next((directory / "here" / "partition=0").glob("*.parquet"))
    shutil.copy(stray, stray.with_name(file_name(0, 10, "f" * 32)))
    assert world.offload(topic, url).new_messages == 1  # type: ignore[arg-type]
    assert read_files(directory / "here") == world.seen(topic)
    again = f"{topic}-again"
    assert world.restore(url, again).messages == 51  # type: ignore[arg-type]
    assert by_partition(world.seen(again)) == by_partition(world.seen(topic))


def test_commands(world: World) -> None:
    """Tables for people, JSON for programs, and errors of one line."""
    topic, directory = world.new(filled=False)
    world.client.admin.topics.create(topic, partitions=2)
    producer = world.client.create_producer(topic)
    producer.send_many([b"%d" % number for number in range(20)], partition=1)
    producer.flush()

    def run(*arguments: str, status: int = 0) -> Any:
        done = CliRunner().invoke(cli, ["--broker", world.address, "pipeline", *arguments])
        assert done.exit_code == status, done.output
        return done

    done = run("offload", topic, str(directory), "--rows-per-file", "10")
    assert "offloaded 20 of 20 offsets (100 %), 2 files" in done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["new", "messages", "20"] in lines
    assert any(line[:6] == ["1", "0", "20", "20", "20", "2"] for line in lines)
    report = read_json("pipeline offload", run("offload", topic, str(directory), "--json").stdout)
    assert (report["messages"], report["new_messages"]) == (20, 0)
    done = run("restore", str(directory), "again", "--json")
    assert "restored 20 of 20 offsets (100 %), 1 transactions" in done.stderr
    assert read_json("pipeline restore", done.stdout)["messages"] == 20
    assert "new messages" in run("restore", str(directory), "again").stdout
    done = run("restore", str(directory / "nothing"), "again", status=1)
    assert done.stderr.count("\n") == 1
    assert "there is no offload in" in done.stderr
