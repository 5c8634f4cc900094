"""docs/spark.md, How it works: what tasks write and their driver commits, on real servers.

Without Spark: a task and a commit are functions, which Spark calls in processes of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.system.processes import Servers

from magnetar import blocking
from magnetar.enums import TransactionAction
from magnetar_core.ids import TxnID
from magnetar_spark.clients import close_all
from magnetar_spark.errors import SinkError
from magnetar_spark.options.sink import SinkOptions, sink_options
from magnetar_spark.sink import TaskMessage, commit_tasks, write_task
from magnetar_spark.work import Work

pytestmark = pytest.mark.chaos

TOPICS = ("out", "out-too")
OTHER_ROWS = "is committed with other rows"
WORK, AGAIN = "first run", "second run"


class Sink:
    """A batch's tasks, and who commits them."""

    def __init__(self, client: blocking.Client, options: SinkOptions, name: str) -> None:
        self.client = client
        self.options = options
        self.name = name

    def task(self, run: str, *rows: str) -> TaskMessage:
        """Args: rows: as "topic/value"."""
        work = Work(self.name, 0, run)
        table = [dict(zip(("topic", "value"), row.split("/"), strict=True)) for row in rows]
        batches = [pa.RecordBatch.from_pylist(table)]
        return write_task(self.options, work, iter(batches if rows else []))

    def commit(self, *messages: TaskMessage) -> None:
        commit_tasks(self.options, messages)

    def found(self) -> Counter[str]:
        return Counter(
            f"{topic}/{message.value.decode()}"
            for topic in TOPICS
            for message in self.client.read(topic, 0)
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, blocking.Client]]:
    servers = Servers(tmp_path_factory.mktemp("servers"))
    servers.start()
    with blocking.connect(servers.address) as client:
        yield servers.address, client
    close_all()
    servers.stop()


@pytest.fixture
def sink(cluster: tuple[str, blocking.Client], request: pytest.FixtureRequest) -> Iterator[Sink]:
    address, client = cluster
    options = {"magnetar.bootstrap.servers": address}
    for topic in TOPICS:
        client.admin.topics.create(topic, partitions=1)
    yield Sink(client, sink_options(options, streaming=True), f"spark/{request.node.name}")
    for topic in TOPICS:
        client.admin.topics.delete(topic, force=True)


def test_a_batch_of_tasks_without_rows_is_committed(sink: Sink) -> None:
    """What feeds a query may drop all rows of a batch, and Spark goes on to the next one."""
    sink.commit(sink.task(WORK), sink.task(WORK))
    assert sink.task(AGAIN).txn_id is None
    assert not sink.found()


def test_tasks_that_wrote_in_two_transactions_do_not_count(sink: Sink) -> None:
    first = sink.task(WORK, "out/a")
    assert first.txn_id is not None
    sink.client.admin.transactions.end(TxnID.parse(first.txn_id), TransactionAction.ABORT)
    second = sink.task(AGAIN, "out/b")
    with pytest.raises(SinkError, match="wrote in several transactions"):
        sink.commit(first, second)
    sink.client.admin.transactions.end(TxnID.parse(str(second.txn_id)), TransactionAction.ABORT)
    assert not sink.found()


def test_some_tasks_hear_that_it_is_committed(sink: Sink) -> None:
    """Two queries on one checkpoint: one commits while the other one's tasks are at work."""
    early = sink.task(WORK, "out/a"), sink.task(WORK, "out-too/b")
    sink.commit(*early)
    late = sink.task(AGAIN, "out-too/b")
    assert late.txn_id is None
    sink.commit(early[0], late)
    with pytest.raises(SinkError, match=OTHER_ROWS):
        sink.commit(early[0], sink.task(AGAIN, "out-too/c"))
    assert sink.found() == Counter(["out/a", "out-too/b"])


def test_an_attempt_that_failed_takes_nothing_from_the_others(sink: Sink) -> None:
    """Its process ends in order and closes its client before the others' rows are committed."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"topic": "out", "value": "void"}])
        raise RuntimeError("the source failed")

    first = sink.task(WORK, "out/a")
    with pytest.raises(RuntimeError, match="the source failed"):
        write_task(sink.options, Work(sink.name, 0, WORK), rows())
    close_all()
    sink.commit(first, sink.task(WORK, "out-too/b"))
    assert sink.found() == Counter(["out/a", "out-too/b"])


@pytest.mark.parametrize(
    "rows",
    [
        ["out/x", "out-too/b"],
        ["out/a", "out-too/x"],
        ["out/a", "out/b"],
        ["out/a"],
        ["out/a", "out-too/b", "out-too/b"],
        [],
    ],
)
def test_a_replay_with_other_rows_is_refused(sink: Sink, rows: list[str]) -> None:
    sink.commit(sink.task(WORK, "out/a", "out-too/b"))
    sink.commit(sink.task(AGAIN, "out-too/b"), sink.task(AGAIN, "out/a"))
    with pytest.raises(SinkError, match=OTHER_ROWS):
        sink.commit(sink.task(AGAIN, *rows))
    assert sink.found() == Counter(["out/a", "out-too/b"])
