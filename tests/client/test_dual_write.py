"""A dual writer whose coordinator goes away: what its caller is told."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Iterator

import pytest
from tests.client.fakes import BROKER_ADDRESS, COORDINATOR_ADDRESS, FAST, FakeCluster

from magnetar import InvalidTxnState, blocking
from magnetar.dual_write import DbApiStore, DualWriter, Step

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

    def commit(self) -> None:
        if self.fails:
            raise sqlite3.OperationalError("the connection is lost")
        super().commit()


def ready(
    producer: blocking.TransactionalProducer, on_step: Callable[[Step], None] = lambda step: None
) -> tuple[DualWriter[DbApiStore], Database]:
    database = sqlite3.connect(":memory:", factory=Database)
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
    with pytest.raises(InvalidTxnState, match="start"):
        one_unit(writer, 1, nothing)


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
