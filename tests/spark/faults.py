"""The source and sink with faults planted in them: format("magnetar-faulty").

Options: fault (which), fault.batch (in which batch; -1: in each), fault.dir (files by which the
fault meet: each fault happens once, unless it says otherwise).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType
from tests.waiting import wait_until

from magnetar.link.session import LinkSession
from magnetar_core.errors import MagnetarError
from magnetar_spark import MagnetarDataSource, sink
from magnetar_spark.options.sink import SinkOptions, sink_options
from magnetar_spark.options.source import SourceOptions, source_options
from magnetar_spark.sink import StreamWriter, TaskMessage
from magnetar_spark.source import StreamReader

PATIENCE_S = 120.0
# A driver that has no batch left does not come.
MEETING_S = 15.0
EVERY_BATCH = -1


class Planted(Exception):
    """What a planted fault raises."""


class FaultySource(MagnetarDataSource):
    @classmethod
    def name(cls) -> str:
        return "magnetar-faulty"

    def streamReader(self, schema: StructType) -> StreamReader:
        options, fault = self._taken_apart()
        return FaultyReader(source_options(options, streaming=True), fault)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        options, fault = self._taken_apart()
        return FaultyWriter(sink_options(options, streaming=True), schema, fault)

    def _taken_apart(self) -> tuple[dict[str, str], Fault]:
        options = dict(self.options)
        fault = Fault(
            options.pop("fault", "none"),
            int(options.pop("fault.batch", "1")),
            options.pop("fault.dir", ""),
        )
        return options, fault


class Fault:
    def __init__(self, kind: str, batch: int, directory: str) -> None:
        self.kind = kind
        self.batch = batch
        self.directory = directory

    def hits(self, batch: int) -> bool:
        return self.batch in (batch, EVERY_BATCH)

    def path(self, name: str) -> Path:
        return Path(self.directory) / name

    def first(self, name: str = "done") -> bool:
        """Whether nobody has asked before."""
        try:
            self.path(name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def note(self, name: str, text: str) -> None:
        with self.path(name).open("a") as file:
            file.write(f"{text}\n")

    def wait_for(self, name: str) -> None:
        wait_until(self.path(name).exists, PATIENCE_S)

    def kill_driver(self) -> None:
        """The driver's Python, its JVM, and this process."""
        os.killpg(int(self.path("driver").read_text()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class FaultyReader(StreamReader):
    """On the driver; Spark logs where a batch ends between the two calls."""

    def __init__(self, options: SourceOptions, fault: Fault) -> None:
        super().__init__(options)
        self._fault = fault
        self._plans = 0
        self._planned_ends: set[str] = set()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._plans += 1
        found = super().latestOffset(start, limit)
        if self._fault.kind == "driver_killed_planning" and self._fault.hits(self._plans - 1):
            self._kill_once()
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._planned_ends.add(json.dumps(end, sort_keys=True))
        batch = len(self._planned_ends) - 1
        if self._fault.kind == "driver_killed_planned" and self._fault.hits(batch):
            self._kill_once()
        number = {"source_killed": signal.SIGKILL, "source_told_to_end": signal.SIGTERM}
        if self._fault.kind in number and self._fault.hits(batch) and self._fault.first():
            os.kill(os.getpid(), number[self._fault.kind])
        return super().partitions(start, end)

    def _kill_once(self) -> None:
        if self._fault.first():
            self._fault.kill_driver()


class FaultyWriter(StreamWriter):
    def __init__(self, options: SinkOptions, schema: StructType, fault: Fault) -> None:
        super().__init__(options, schema)
        self._fault = fault

    # On executors.

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        # Rows leave as they come, so that a fault finds some of them sent.
        sink.GATHER_BYTES = 1
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty(sink.BATCH_ID) or -1)
        planted: Callable[..., TaskMessage] | None = getattr(
            self, f"_write_{self._fault.kind}", None
        )
        if planted is None or not self._fault.hits(batch):
            return super().write(iterator)
        return planted(iterator, context)

    def _write_task_raises(
        self, iterator: Iterator[pa.RecordBatch], context: TaskContext
    ) -> TaskMessage:
        """Once with some of the rows sent, and once with all of them."""
        self._fault.note("attempts", f"{context.partitionId()} {context.attemptNumber()}")
        if context.attemptNumber() == 0:
            return super().write(_then(iterator, 1, _raise))
        message = super().write(iterator)
        if context.attemptNumber() == 1:
            raise Planted("after all rows")
        return message

    def _write_worker_exits(
        self, iterator: Iterator[pa.RecordBatch], context: TaskContext
    ) -> TaskMessage:
        self._fault.note("attempts", f"{context.partitionId()} {context.attemptNumber()}")
        if context.attemptNumber() == 0:
            return super().write(_then(iterator, 1, lambda: os._exit(1)))
        message = super().write(iterator)
        if context.attemptNumber() == 1:
            os._exit(1)
        return message

    def _write_stage_fails(
        self, iterator: Iterator[pa.RecordBatch], context: TaskContext
    ) -> TaskMessage:
        """For good, until the test removes the file."""
        message = super().write(iterator)
        if context.partitionId() == 0 and self._fault.path("fails").exists():
            raise Planted("for good")
        return message

    def _write_driver_killed(
        self, iterator: Iterator[pa.RecordBatch], context: TaskContext
    ) -> TaskMessage:
        def kill() -> None:
            if self._fault.first():
                self._fault.kill_driver()

        return super().write(_then(iterator, 1, kill))

    def _write_server_killed(
        self, iterator: Iterator[pa.RecordBatch], context: TaskContext
    ) -> TaskMessage:
        def meet() -> None:
            if self._fault.first("reached"):
                self._fault.wait_for("killed")

        return super().write(_then(iterator, 1, meet))

    def _write_two_drivers(
        self, iterator: Iterator[pa.RecordBatch], context: TaskContext
    ) -> TaskMessage:
        """Both are within the batch before either of them ends it."""

        def meet() -> None:
            self._fault.note("inside", self._run_token)
            inside = self._fault.path("inside")
            try:
                wait_until(lambda: len(set(inside.read_text().split())) > 1, MEETING_S)
            except TimeoutError:
                pass  # The other has ended its batch already.

        return super().write(_then(iterator, 1, meet))

    def _write_zombie(
        self, iterator: Iterator[pa.RecordBatch], context: TaskContext
    ) -> TaskMessage:
        """An attempt that Spark has given up goes on sending, after the commit too.

        As one that speculation has overtaken, or an executor that the driver has lost.
        """
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            told = {
                "server": self._options.servers[0],
                "topic": self._options.topic,
                "name": f"spark/{context.getLocalProperty(sink.QUERY_ID)}",
                "sequence": self._fault.batch,
                "run_token": self._run_token,
                "directory": self._fault.directory,
            }
            subprocess.Popen([sys.executable, "-m", "tests.spark.zombie", json.dumps(told)])
            self._fault.wait_for("zombies")
            _raise()
        return super().write(iterator)

    def _write_speculated(
        self, iterator: Iterator[pa.RecordBatch], context: TaskContext
    ) -> TaskMessage:
        """The first attempt at the first task stalls until its batch is committed without it."""
        if context.partitionId() != 0:
            return super().write(iterator)
        batch = context.getLocalProperty(sink.BATCH_ID)
        self._fault.note("attempts", f"{batch} {context.attemptNumber()}")
        if context.attemptNumber() != 0:
            # It may well be there before the other one has written anything.
            self._fault.wait_for(f"stalled {batch}")
            return super().write(iterator)

        def stall() -> None:
            self._fault.first(f"stalled {batch}")
            self._fault.wait_for(f"committed {batch}")

        # The JVM feeds nothing to an attempt that it has given up.
        rows = list(iterator)
        try:
            super().write(_then(iter(rows), 1, stall))
            self._fault.note("late", f"{batch} accepted")
        except MagnetarError as error:
            self._fault.note("late", f"{batch} refused")
            # The send says InvalidTxnState, the end of an attempt with such a send CommitRefused.
            self._fault.note("errors", type(error).__name__)
        # One that begins as late has nothing to write.
        again = super().write(iter(rows))
        self._fault.note("late", f"{batch} wrote {'nothing' if again.txn_id is None else 'again'}")
        self._fault.first(f"late {batch}")
        return again

    # On the driver.

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        planted = getattr(self, f"_commit_{self._fault.kind}", None)
        if planted is None or not self._fault.hits(batchId):
            super().commit(messages, batchId)
        else:
            planted(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._fault.note("aborts", str(batchId))
        super().abort(messages, batchId)

    def _commit_raises_after(self, messages: Any, batch: int) -> None:
        super().commit(messages, batch)
        if self._fault.first():
            raise Planted("after a commit that succeeded")

    def _commit_driver_killed_before(self, messages: Any, batch: int) -> None:
        if self._fault.first():
            self._fault.kill_driver()
        super().commit(messages, batch)

    def _commit_driver_killed_after(self, messages: Any, batch: int) -> None:
        super().commit(messages, batch)
        if self._fault.first():
            self._fault.kill_driver()

    def _commit_reply_lost(self, messages: Any, batch: int) -> None:
        with replies_lost(1, self._fault):
            super().commit(messages, batch)

    def _commit_reply_lost_twice(self, messages: Any, batch: int) -> None:
        with replies_lost(2, self._fault):
            super().commit(messages, batch)

    def _commit_zombie(self, messages: Any, batch: int) -> None:
        super().commit(messages, batch)
        self._fault.first("committed")
        self._fault.wait_for("zombie ended")

    def _commit_speculated(self, messages: Any, batch: int) -> None:
        super().commit(messages, batch)
        self._fault.first(f"committed {batch}")
        self._fault.wait_for(f"late {batch}")


class replies_lost:
    """The links break before so many answers to EndTxn are heard."""

    def __init__(self, count: int, fault: Fault) -> None:
        self._left = count
        self._fault = fault

    def __enter__(self) -> None:
        heard = self._heard = LinkSession._replied

        def replied(session: LinkSession, request_id: int, name: str | None, one: Any) -> None:
            if name == "end_txn_response" and self._left:
                self._left -= 1
                self._fault.note("lost", "a reply")
                session.close("the link broke, as planned")
                return
            heard(session, request_id, name, one)

        LinkSession._replied = replied  # type: ignore[assignment, method-assign]

    def __exit__(self, *_: object) -> None:
        LinkSession._replied = self._heard  # type: ignore[method-assign]


def _then(
    iterator: Iterator[pa.RecordBatch], count: int, act: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    """Do something after so many record batches were taken and handled."""
    for number, batch in enumerate(iterator):
        if number == count:
            act()
        yield batch


def _raise() -> None:
    raise Planted("after some rows")
