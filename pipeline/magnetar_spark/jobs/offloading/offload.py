"""Offloads a topic to Parquet in commit order, without aborted messages.

The broker serves committed messages in commit order. Tasks write ranges of them as files into a
staging directory. The driver checks each file, moves it into place, and then writes a manifest that
names it. A run takes only new messages, in portions that are committed separately.
Source: PIP-31, Compacting Transaction Log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from magnetar_core.clock import SystemClock
from magnetar_spark.clients import client_of
from magnetar_spark.jobs.failures import JobError, one_line
from magnetar_spark.jobs.offloading.directory import Directory, open_directory
from magnetar_spark.jobs.offloading.manifest import (
    Manifest,
    OffloadFile,
    file_name,
    partition_directory,
    portions,
    without,
)
from magnetar_spark.jobs.offloading.offload_goal import Goal, Request, continued, goal_at, goal_of
from magnetar_spark.jobs.offloading.offload_log import (
    NumberTaken,
    OffloadError,
    OffloadLog,
    staging_of,
)
from magnetar_spark.jobs.offloading.parquet_footers import Footer, read_footer
from magnetar_spark.jobs.offloading.whole_ranges import losses_in, messages_of
from magnetar_spark.jobs.spark_session import settings
from magnetar_spark.planning import Range
from magnetar_spark.sink import new_run_token

COLUMNS = ("key", "value", "headers", "event_time", "timestamp", "offset", "txn_id")
# What a task holds in memory before it writes: a row group.
ROW_GROUP_BYTES = 32 << 20
# Tasks of a portion for each that can run at once, so that few wait for the slowest.
TASKS_PER_SLOT = 4
SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.session.timeZone": "UTC",
}
# By partition: first offset, and the one behind the last.
Losses = dict[int, list[tuple[int, int]]]
# As Spark names a task's file.
_PART = re.compile(r"part-(\d{5,})-.*\.parquet")


@dataclass(frozen=True)
class Progress:
    """Progress of a run, in offsets."""

    done: int
    total: int
    files: int
    byte_count: int


@dataclass(frozen=True)
class PartitionReport:
    """Messages that a run has added to a partition.

    Attributes:
        lost: how many offsets were gone before this run could offload them.
    """

    partition: int
    first_offset: int
    end_offset: int
    messages: int
    new_messages: int
    new_files: int
    new_bytes: int
    lost: int


@dataclass(frozen=True)
class Report:
    """Result of an offload of a topic."""

    topic: str
    topic_id: int
    directory: str
    manifest: int
    messages: int
    new_messages: int
    new_files: int
    new_bytes: int
    partitions: tuple[PartitionReport, ...]


def offload(
    spark: SparkSession, request: Request, on_progress: Callable[[Progress], None] | None = None
) -> Report:
    """Offload a topic to its present end, or to that of a cut.

    Args:
        spark: the session.
        request: what to offload.
        on_progress: called with the progress.
    Raises:
        OffloadError: the directory cannot be continued, offsets are lost, or a task failed.
        JobError: the topic cannot be offloaded at this cut.
        DirectoryError: the file system refuses.
        TopicNotFound: the topic does not exist.
        MagnetarError: the servers cannot be reached.
    """
    client = client_of(request.servers)
    if request.at is None:
        goal = goal_of(client, request.topic)
    else:
        goal = goal_at(client, request.topic, request.at)
    directory = open_directory(spark, request.directory)
    log = OffloadLog(directory)
    before = log.latest()
    if before is None:
        log.check_new()
    run = new_run_token()
    manifest = continued(before, goal, request, run)
    left = log.check_files(manifest)
    staging = log.left_behind()
    done = manifest.with_ends(goal.ends()).with_settled(goal.unfinished, 0)
    is_new = (
        before is None
        or not before.settled_at_ms
        or (done.partitions, done.unfinished) != (before.partitions, before.unfinished)
    )
    if is_new or left or staging:
        log.add(manifest)
        # They were there before this run's own manifest, which is still the last one.
        log.remove([*left, *staging])
        with settings(spark, SETTINGS):
            writing = _Run(spark, request, log, directory, run)
            manifest = writing.write(manifest, goal, on_progress)
    return _report(request, directory, before, manifest)


class _Run:
    """Writes portions, each with a manifest behind it."""

    def __init__(
        self,
        spark: SparkSession,
        request: Request,
        log: OffloadLog,
        directory: Directory,
        run: str,
    ) -> None:
        self._spark = spark
        self._request = request
        self._log = log
        self._directory = directory
        self._run = run
        self._staging = staging_of(run)
        self._clock = SystemClock()

    def write(
        self, manifest: Manifest, goal: Goal, on_progress: Callable[[Progress], None] | None
    ) -> Manifest:
        begin = manifest.ends()
        end = goal.ends()
        total = sum(end.values()) - sum(begin.values())
        files = byte_count = 0
        slots = self._spark.sparkContext.defaultParallelism
        try:
            for ranges in portions(
                self._request.topic,
                goal.topic_id,
                begin,
                end,
                rows_per_file=self._request.rows_per_file,
                files_per_portion=max(TASKS_PER_SLOT * slots, self._request.tasks_min),
                tasks_min=self._request.tasks_min,
            ):
                added, losses = self._portion_of(manifest, ranges)
                ends = {one.partition: one.end for one in ranges}
                manifest = self._next(manifest.with_added(added, losses).with_ends(ends))
                if manifest.ends() == end:
                    manifest = manifest.with_settled(goal.unfinished, manifest.written_at_ms)
                self._add(manifest, added)
                files += sum(len(one) for one in added.values())
                byte_count += sum(file.byte_count for one in added.values() for file in one)
                if on_progress is not None:
                    done = sum(manifest.ends().values()) - sum(begin.values())
                    on_progress(Progress(done, total, files, byte_count))
        finally:
            self._directory.remove(self._staging)
        if not total:
            manifest = self._next(manifest)
            manifest = manifest.with_settled(goal.unfinished, manifest.written_at_ms)
            self._log.add(manifest)
        return manifest

    def _add(self, manifest: Manifest, added: dict[int, list[OffloadFile]]) -> None:
        try:
            self._log.add(manifest)
        except NumberTaken:
            # No manifest will ever name them: only this run's would have.
            self._log.remove(
                f"{partition_directory(partition)}/{file.name}"
                for partition, some in added.items()
                for file in some
            )
            raise

    def _next(self, manifest: Manifest) -> Manifest:
        return replace(manifest, number=manifest.number + 1, written_at_ms=self._clock.wall_ms())

    def _portion_of(
        self, manifest: Manifest, ranges: Sequence[Range]
    ) -> tuple[dict[int, list[OffloadFile]], Losses]:
        try:
            return self._portion(manifest, ranges)
        except JobError:
            # What fails when another run has taken over fails because of that.
            self._log.check_last(manifest)
            raise

    def _portion(
        self, manifest: Manifest, wanted: Sequence[Range]
    ) -> tuple[dict[int, list[OffloadFile]], Losses]:
        """Write files, and put them into place. They do not count yet.

        Returns:
            The files by partition; and what could not be read, if that is accepted.
        """
        ranges, losses = wanted, Losses()
        try:
            self._write_staged(ranges)
        except OffloadError:
            if not self._request.accept_loss:
                raise
            client = client_of(self._request.servers)
            for one in wanted:
                losses.setdefault(one.partition, []).extend(losses_in(client, one))
            ranges = without(wanted, losses)
            if ranges == wanted:
                raise
            self._write_staged(ranges)
        staged = self._staged(ranges)
        self._log.check_last(manifest)
        added: dict[int, list[OffloadFile]] = {}
        for number, one in enumerate(ranges):
            if number not in staged:
                continue  # In the middle of one message: it begins before.
            name, footer = staged[number]
            file = OffloadFile(
                file_name(one.start, one.end, self._run),
                *(one.start, one.end, footer.row_count, footer.byte_count),
            )
            parent = partition_directory(one.partition)
            self._directory.make(parent)
            self._directory.move(name, f"{parent}/{file.name}")
            added.setdefault(one.partition, []).append(file)
        return added, losses

    def _write_staged(self, ranges: Sequence[Range]) -> None:
        self._directory.remove(self._staging)
        frame = messages_of(self._spark, self._request.servers, ranges).select(*COLUMNS)
        writer = frame.write.options(
            **{
                "compression": self._request.compression,
                "maxRecordsPerFile": "0",
                "parquet.block.size": str(ROW_GROUP_BYTES),
                # Only the attempt that Spark lets win leaves a file.
                "mapreduce.fileoutputcommitter.algorithm.version": "1",
            }
        )
        try:
            writer.parquet(self._directory.path(self._staging))
        except (PySparkException, Py4JJavaError) as error:
            raise OffloadError(f"a task failed: {one_line(str(error))}") from error

    def _staged(self, ranges: Sequence[Range]) -> dict[int, tuple[str, Footer]]:
        """The file of each range that has messages, by its place.

        Raises:
            OffloadError: they do not hold what they should.
        """
        staged: dict[int, tuple[str, Footer]] = {}
        for entry in self._directory.entries(self._staging) or ():
            found = _PART.fullmatch(entry.name)
            if found is None or entry.name.startswith(("_", ".")):
                continue
            name = f"{self._staging}/{entry.name}"
            footer = read_footer(self._spark, self._directory.path(name), entry.byte_count)
            if footer.row_count == 0:
                continue
            number = int(found[1])
            wanted = ranges[number] if number < len(ranges) else None
            if number in staged or wanted is None or not footer.fits(wanted.start, wanted.end):
                raise OffloadError(
                    f"{self._directory.path(name)} is not what a task was to write, but {footer}"
                )
            staged[number] = (name, footer)
        self._check_missing([one for at, one in enumerate(ranges) if at not in staged])
        return staged

    def _check_missing(self, missing: Sequence[Range]) -> None:
        """A range without a file lies within one message that was sent in parts.

        Raises:
            OffloadError: it does not.
        """
        for one in missing:
            frame = messages_of(self._spark, self._request.servers, [one])
            if frame.limit(1).count():
                raise OffloadError(
                    f"what a task has written of {one.topic} partition {one.partition}, offsets"
                    f" {one.start} to {one.end - 1}, is not in {self._directory.url}: the driver"
                    " and all executors have to see the same directory"
                )


def _report(
    request: Request, directory: Directory, before: Manifest | None, manifest: Manifest
) -> Report:
    old = {one.partition: one for one in before.partitions} if before is not None else {}
    partitions = []
    for one in manifest.partitions:
        was = old.get(one.partition)
        added = one.files[len(was.files) if was else 0 :]
        partitions.append(
            PartitionReport(
                one.partition,
                one.first_offset,
                one.end_offset,
                one.row_count,
                sum(file.row_count for file in added),
                len(added),
                sum(file.byte_count for file in added),
                one.lost - (was.lost if was else 0),
            )
        )
    return Report(
        manifest.topic,
        manifest.topic_id,
        directory.url,
        manifest.number,
        sum(partition.messages for partition in partitions),
        sum(partition.new_messages for partition in partitions),
        sum(partition.new_files for partition in partitions),
        sum(partition.new_bytes for partition in partitions),
        tuple(partitions),
    )
