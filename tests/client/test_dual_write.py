"""A dual writer that cannot go on, or must not begin: what its caller is told."""

from __future__ import annotations

import dataclasses
import logging
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from tests.client.fakes import BROKER_ADDRESS, COORDINATOR_ADDRESS, FAST, FakeCluster
from tests.playbook import BREAK

from magnetar import InvalidTxnState, OutcomeUnknown, blocking
from magnetar.dual_write import DbApiStore, DualWriter, SqlAlchemyStore, Step
from magnetar.dual_write.state_table import TABLE
from magnetar_core.errors import DataLoss, InvalidArgument, TxnForgotten, TxnNotFound
from magnetar_core.wire import common_pb2

# A coordinator that is away is given up soon.
IMPATIENT = dataclasses.replace(
    FAST, operation_timeout_ms=100, commit_timeout_ms=100, abort_timeout_ms=100, close_timeout_ms=50
)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.topic("t")
    return cluster


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[blocking.TransactionalProducer]:
    with blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=IMPATIENT) as client:
        yield client.transactional_producer("2pc-app", two_phase_commit=True)


class Database(sqlite3.Connection):
    """Commits, or says that it does not know."""

    fails = False
    is_lost = False

    def commit(self) -> None:
        if self.fails or self.is_lost:
            raise sqlite3.OperationalError("the connection is lost")
        super().commit()

    def rollback(self) -> None:
        if self.is_lost:
            raise sqlite3.OperationalError("the connection is lost")
        super().rollback()


def ready(
    producer: blocking.TransactionalProducer, on_step: Callable[[Step], None] = lambda step: None
) -> tuple[DualWriter[DbApiStore], Database]:
    database = sqlite3.connect(":memory:", factory=Database, check_same_thread=False)
    writer = DualWriter(producer, DbApiStore(database, "qmark"), on_step=on_step)
    writer.start()
    database.execute("CREATE TABLE numbers (number INTEGER)")
    return writer, database


def take_coordinator_away(cluster: FakeCluster) -> None:
    cluster.net.dead.add(COORDINATOR_ADDRESS)
    for link in [one for one in cluster.net.links if one.address == COORDINATOR_ADDRESS]:
        link.half_open = True


def one_unit(writer: DualWriter[DbApiStore], number: int, then: Callable[[], object]) -> None:
    with writer.unit() as unit:
        unit.send("t", b"%d" % number)
        unit.store.execute("INSERT INTO numbers VALUES (?)", (number,))
        then()


def divide() -> float:
    return 1 / 0


def nothing() -> None:
    return


def test_the_exception_of_the_block_is_what_is_raised(
    cluster: FakeCluster, producer: blocking.TransactionalProducer
) -> None:
    """OutcomeUnknown of the abort was, and the caller's own error was lost behind it."""
    writer, database = ready(producer)

    def fail() -> None:
        take_coordinator_away(cluster)
        divide()

    with pytest.raises(ZeroDivisionError) as raised:
        one_unit(writer, 0, fail)
    (note,) = raised.value.__notes__
    assert "could not be settled" in note
    assert database.execute("SELECT number FROM numbers").fetchall() == []
    # It must not go on as if nothing were open.
    with pytest.raises(InvalidTxnState, match=r"OutcomeUnknown.*start\(\) of a new writer"):
        one_unit(writer, 1, nothing)
    with pytest.raises(InvalidTxnState, match="a new writer"):
        writer.start()


def test_the_exception_of_the_database_is_what_is_raised(
    cluster: FakeCluster, producer: blocking.TransactionalProducer
) -> None:
    def on_step(step: Step) -> None:
        if step is Step.COMMIT_DATABASE:
            take_coordinator_away(cluster)
            database.fails = True

    writer, database = ready(producer, on_step)
    with pytest.raises(sqlite3.OperationalError, match="lost") as raised:
        one_unit(writer, 0, nothing)
    assert "could not be settled" in raised.value.__notes__[0]
    with pytest.raises(InvalidTxnState, match="start"):
        one_unit(writer, 1, nothing)


def test_with_the_coordinator_there_the_writer_goes_on(
    cluster: FakeCluster, producer: blocking.TransactionalProducer
) -> None:
    writer, database = ready(producer)
    with pytest.raises(ZeroDivisionError) as raised:
        one_unit(writer, 0, divide)
    assert not hasattr(raised.value, "__notes__")
    one_unit(writer, 1, nothing)
    assert cluster.topics["t"][1][0].messages == [b"1"]
    assert database.execute("SELECT number FROM numbers").fetchall() == [(1,)]


def test_a_second_unit_is_told_that_the_first_one_is_open(
    cluster: FakeCluster, producer: blocking.TransactionalProducer
) -> None:
    """It was told to call start(), which would have taken over from itself."""
    writer, database = ready(producer)
    told: list[str] = []

    def meanwhile() -> None:
        for call in (lambda: one_unit(writer, 1, nothing), writer.start):
            with pytest.raises(InvalidTxnState) as raised:
                call()
            told.append(str(raised.value))

    def in_another_thread() -> None:
        thread = threading.Thread(target=meanwhile)
        thread.start()
        thread.join()
        meanwhile()

    one_unit(writer, 0, in_another_thread)
    assert len(told) == 4
    assert all("another unit" in one and "start()" not in one for one in told)
    one_unit(writer, 2, nothing)
    assert cluster.topics["t"][1][0].messages == [b"0", b"2"]
    assert database.execute("SELECT number FROM numbers").fetchall() == [(0,), (2,)]


def test_units_after_a_lost_connection_say_what_was_lost(
    cluster: FakeCluster, producer: blocking.TransactionalProducer
) -> None:
    writer, database = ready(producer)

    def lose() -> None:
        database.is_lost = True
        database.execute("nonsense")

    with pytest.raises(sqlite3.OperationalError, match="syntax") as raised:
        one_unit(writer, 0, lose)
    assert "the connection is lost" in raised.value.__notes__[0]
    with pytest.raises(InvalidTxnState, match=r"OperationalError: the connection is lost.*store"):
        one_unit(writer, 1, nothing)


def test_a_unit_that_finds_the_connection_lost_raises_what_the_database_says(
    cluster: FakeCluster, producer: blocking.TransactionalProducer
) -> None:
    """Nothing has begun: the writer is as it was, and goes on if the connection does."""
    writer, database = ready(producer)
    database.is_lost = True
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="lost"):
            one_unit(writer, 0, nothing)
    database.is_lost = False
    one_unit(writer, 1, nothing)
    assert cluster.topics["t"][1][0].messages == [b"1"]


def test_a_commit_without_an_answer_is_the_reason_that_later_units_tell(
    cluster: FakeCluster, producer: blocking.TransactionalProducer
) -> None:
    def on_step(step: Step) -> None:
        if step is Step.COMMIT:
            take_coordinator_away(cluster)

    writer, _ = ready(producer, on_step)
    with pytest.raises(OutcomeUnknown):
        one_unit(writer, 0, nothing)
    with pytest.raises(InvalidTxnState, match="OutcomeUnknown"):
        one_unit(writer, 1, nothing)


class Successor:
    """The next instance of the program, on the database of an instance that has written a unit."""

    def __init__(self, cluster: FakeCluster, client: blocking.Client, path: Path) -> None:
        self.cluster = cluster
        self.connection = sqlite3.connect(path)
        self.connection.execute("CREATE TABLE numbers (number INTEGER)")
        one_unit(self.started(client), 0, nothing)
        (self.txn_id,) = cluster.transactions
        found = self.connection.execute("SELECT prepared_transaction_state FROM " + TABLE)
        (self.state,) = found.fetchone()
        self.producer = client.transactional_producer("2pc-app", two_phase_commit=True)
        self.writer = DualWriter(self.producer, DbApiStore(self.connection, "qmark"))

    def started(self, client: blocking.Client) -> DualWriter[DbApiStore]:
        producer = client.transactional_producer("2pc-app", two_phase_commit=True)
        writer = DualWriter(producer, DbApiStore(self.connection, "qmark"))
        assert writer.start() is False
        return writer


@pytest.fixture
def successor(cluster: FakeCluster, tmp_path: Path) -> Iterator[Successor]:
    with blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=IMPATIENT) as client:
        yield Successor(cluster, client, tmp_path / "numbers.db")


def test_a_start_finds_that_topics_have_aborted_what_the_database_has(
    successor: Successor,
) -> None:
    """It had started, and the row stayed without its message, in silence."""
    successor.cluster.transactions[successor.txn_id]["status"] = common_pb2.ABORTED
    ends = len(successor.cluster.play.commands("end_txn"))
    with pytest.raises(DataLoss, match=f"{successor.txn_id} .*{successor.state}"):
        successor.writer.start()
    assert len(successor.cluster.play.commands("end_txn")) == ends
    with pytest.raises(InvalidTxnState, match="DataLoss"):
        one_unit(successor.writer, 1, nothing)


def test_a_start_that_cannot_know_the_outcome_says_so_and_goes_on(
    successor: Successor, caplog: pytest.LogCaptureFixture
) -> None:
    successor.cluster.play.when("describe_txn").once(TxnForgotten("long ago"))
    with caplog.at_level(logging.WARNING, "magnetar"):
        assert successor.writer.start() is False
    assert (
        f"{successor.state} last: its coordinator no longer knows {successor.txn_id}" in caplog.text
    )
    one_unit(successor.writer, 1, nothing)


def test_a_start_with_a_database_of_another_cluster_is_refused(successor: Successor) -> None:
    successor.cluster.play.when("describe_txn").once(TxnNotFound())
    with pytest.raises(TxnNotFound, match="of another cluster"):
        successor.writer.start()


def test_a_start_where_both_agree_asks_until_it_knows(successor: Successor) -> None:
    successor.cluster.play.when("describe_txn").once(BREAK)
    assert successor.writer.start() is False
    one_unit(successor.writer, 1, nothing)
    assert successor.cluster.topics["t"][1][0].messages == [b"0", b"1"]


needs_3_12 = pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 of 3.12: autocommit")


def sqlite(path: Path, **options: Any) -> DbApiStore:
    return DbApiStore(sqlite3.connect(path, **options), "qmark")


def alchemy(path: Path, **options: Any) -> SqlAlchemyStore:
    return SqlAlchemyStore(sqlalchemy.create_engine(f"sqlite:///{path}", **options))


@pytest.mark.parametrize(
    ("open_store", "options", "is_refused"),
    [
        (sqlite, {}, False),
        (sqlite, {"isolation_level": "IMMEDIATE"}, False),
        (sqlite, {"isolation_level": None}, True),
        pytest.param(sqlite, {"autocommit": False}, False, marks=needs_3_12),
        pytest.param(sqlite, {"autocommit": True}, True, marks=needs_3_12),
        (alchemy, {}, False),
        (alchemy, {"isolation_level": "AUTOCOMMIT"}, True),
    ],
)
def test_a_connection_that_commits_by_itself_is_refused(
    cluster: FakeCluster,
    producer: blocking.TransactionalProducer,
    tmp_path: Path,
    open_store: Callable[..., Any],
    options: dict[str, Any],
    is_refused: bool,
) -> None:
    """The rows of units that fail stayed."""
    store = open_store(tmp_path / "numbers.db", **options)
    writer = DualWriter(producer, store)
    if is_refused:
        with pytest.raises(InvalidArgument, match="commits by itself"):
            writer.start()
        assert cluster.play.commands("init_producer") == []
    else:
        assert writer.start() is False
    store.connection.close()
    rows = sqlite3.connect(tmp_path / "numbers.db").execute("SELECT transactional_id FROM " + TABLE)
    assert rows.fetchall() == ([] if is_refused else [("2pc-app",)])


def test_a_start_does_not_commit_what_was_open_on_the_connection(
    cluster: FakeCluster, producer: blocking.TransactionalProducer
) -> None:
    """Of a unit that could not be rolled back, for example."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE numbers (number INTEGER)")
    database.commit()
    database.execute("INSERT INTO numbers VALUES (7)")
    DualWriter(producer, DbApiStore(database, "qmark")).start()
    assert database.execute("SELECT number FROM numbers").fetchall() == []
