"""A database and a topic that never disagree, wherever their writer dies (KIP-939, Motivation)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.order_service import open_store
from tests import fork_server
from tests.system.databases import postgresql, postgresql_programs
from tests.system.dual_writer import RECOVERY
from tests.system.processes import CommandLine, Servers
from tests.waiting import wait_until

import magnetar
from magnetar import blocking
from magnetar.dual_write import DualWriter, RocksStore, SqlAlchemyStore, Step

SETTINGS = {"MAGNETAR_TWO_PHASE_COMMIT_ENABLED": "1"}
ROOT = Path(__file__).parents[2]
STEPS = [step for step in Step if step not in RECOVERY]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    running = Servers(tmp_path_factory.mktemp("servers"), SETTINGS)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path_factory.mktemp('database') / 'numbers.db'}"
        return
    programs = postgresql_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with postgresql(programs) as url:
        yield url


def write(servers: Servers, database: str, topic: str, first: int, step: Step | None) -> None:
    """Write four numbers, or die trying."""
    arguments = [servers.address, database, topic, str(first), "4"]
    done = fork_server.run(*arguments, step.name if step else "", module="tests.system.dual_writer")
    expected = -signal.SIGKILL if step else 0
    assert done.returncode == expected, done.stderr


def agree(servers: Servers, database: str, topic: str) -> list[int]:
    """The numbers that both hold, in order."""

    store = open_store(database)
    table = f"numbers_{topic.replace('-', '_')}"
    rows = store.execute(f"SELECT number FROM {table} ORDER BY number").fetchall()
    store.connection.close()
    numbers = [int(row[0]) for row in rows]
    assert [int(value) for value in in_topic(servers, topic, len(numbers))] == numbers
    return numbers


def in_topic(servers: Servers, topic: str, count: int) -> list[bytes]:
    """What is committed there; the last ends may be under way for a moment."""
    with blocking.connect(servers.address) as client:
        values: list[bytes] = []

        def are_there() -> bool:
            values[:] = [message.value for message in client.read(topic)]
            return len(values) >= count

        wait_until(are_there)
        return values


def create(servers: Servers, topic: str) -> None:
    with blocking.connect(servers.address) as client:
        client.admin.topics.create(topic)


def killed_at(servers: Servers, database: str, step: Step, round_number: int) -> None:
    topic = f"{step.name.lower().replace('_', '-')}-{database[:6]}-{round_number}"
    create(servers, topic)
    if step in RECOVERY:
        write(servers, database, topic, 0, Step.COMMIT if round_number % 2 else Step.UPDATE_STATE)
    write(servers, database, topic, 10, step)
    write(servers, database, topic, 20, None)
    numbers = agree(servers, database, topic)
    assert numbers[-4:] == [20, 21, 22, 23]
    decided = 11 in numbers if step not in RECOVERY else (1 in numbers)
    # The database had committed, so the topic does: before that, neither.
    left_committed = step is Step.COMMIT or (step in RECOVERY and round_number % 2 == 1)
    assert decided is left_committed


@pytest.mark.parametrize(
    ("database", "step"),
    [
        *(("sqlite", step) for step in Step),
        # Another database takes the same steps: those around its commit, and the soak has all.
        *(("postgresql", step) for step in (Step.UPDATE_STATE, Step.COMMIT_DATABASE, Step.COMMIT)),
    ],
    indirect=["database"],
)
def test_killed_before_each_step(servers: Servers, database: str, step: Step) -> None:
    for round_number in (1, 2) if step in RECOVERY else (1,):
        killed_at(servers, database, step, round_number)


@pytest.mark.soak
@pytest.mark.parametrize("step", list(Step), ids=[step.name for step in Step])
def test_killed_before_each_step_many_times(servers: Servers, database: str, step: Step) -> None:
    for round_number in range(10, 10 + int(os.environ.get("DUAL_WRITE_ROUNDS", "100"))):
        killed_at(servers, database, step, round_number)


def one_unit(writer: DualWriter[Any], topic: str, number: int, statement: Any) -> None:
    with writer.unit() as unit:
        unit.send(topic, b"%d" % number)
        unit.store.execute(statement)


def failing_unit(writer: DualWriter[Any], topic: str, statement: Any) -> None:
    with writer.unit() as unit:
        unit.send(topic, b"666")
        unit.store.execute(statement)
        raise ZeroDivisionError


def failing_put(writer: DualWriter[RocksStore]) -> None:
    with writer.unit() as unit:
        unit.send("rocks", b"3")
        unit.store.put(b"number/3", b"here")
        raise ZeroDivisionError


def test_an_exception_leaves_neither_and_the_writer_goes_on(
    servers: Servers, database: str
) -> None:
    topic = f"exceptions-{database[:6]}"
    create(servers, topic)
    write(servers, database, topic, 0, None)
    store = open_store(database)
    insert = f"INSERT INTO numbers_exceptions_{database[:6]} VALUES "
    with blocking.connect(servers.address) as client:
        producer = client.transactional_producer(f"writer-{topic}", two_phase_commit=True)
        writer = DualWriter(producer, store)
        with pytest.raises(magnetar.InvalidTxnState, match="start"), writer.unit():
            pass
        assert writer.start() is False
        with pytest.raises(ZeroDivisionError):
            failing_unit(writer, topic, insert + "(100)")
        with pytest.raises(Exception, match=r"(?i)syntax|near"):
            failing_unit(writer, topic, "nonsense")
        with writer.unit() as unit:
            unit.send(topic, b"102")
            unit.store.execute(insert + "(102)")
        producer.close()
    store.connection.close()
    assert agree(servers, database, topic) == [0, 1, 2, 3, 102]


def test_a_commit_that_failed_may_have_happened(servers: Servers, database: str) -> None:
    """The database decides: an error of its commit says nothing."""
    topic = f"commits-{database[:6]}"
    create(servers, topic)
    write(servers, database, topic, 0, None)
    insert = f"INSERT INTO numbers_commits_{database[:6]} VALUES "

    for number, happens in ((100, True), (101, False)):
        store = open_store(database)
        commit = store.commit

        def failing(happens: bool = happens, commit: object = commit) -> None:
            if happens:
                assert callable(commit)
                commit()
            raise OSError("the connection broke")

        with blocking.connect(servers.address) as client:
            producer = client.transactional_producer(f"writer-{topic}", two_phase_commit=True)
            writer = DualWriter(producer, store)
            writer.start()
            store.commit = failing  # type: ignore[method-assign]
            with pytest.raises(OSError, match="broke"):
                one_unit(writer, topic, number, f"{insert} ({number})")
            producer.close()
        store.connection.close()
    assert agree(servers, database, topic) == [0, 1, 2, 3, 100]


def left_prepared(servers: Servers, database: str, topic: str, step: Step) -> tuple[str, str]:
    """A writer that dies before a step; returns its transactional id, and what its table has."""
    create(servers, topic)
    write(servers, database, topic, 10, step)
    store = open_store(database)
    state = store.read(f"writer-{topic}")
    store.connection.close()
    return f"writer-{topic}", state


def test_a_writer_that_never_comes_back_and_had_committed_is_completed(
    servers: Servers, database: str
) -> None:
    """The page had force-terminate for it, and the message was lost."""
    topic = f"gone-{database[:6]}"
    name, state = left_prepared(servers, database, topic, Step.COMMIT)
    command = CommandLine(servers)
    (listed,) = command.json("transactions", "list", "--id", name)
    txn_id = listed["txn_id"]
    for refused in (
        ("commit", txn_id),
        ("abort", txn_id, "--yes"),
        ("force-terminate", name, "--yes"),
    ):
        assert "transactions complete" in command.run("transactions", *refused, status=12)
    described = command.run("transactions", "describe", "--transactional-id", name)
    assert f"prepared state    {state}" in described
    complete = ("transactions", "complete", name, "--yes", "--state")
    assert "empty state" in command.run(*complete, "", status=1)
    assert "1/2/three" in command.run(*complete, "1/2/three", status=1)
    assert state in command.run(*complete, f"1/77/0/{txn_id}", status=1)
    other = ("transactions", "complete", "writer-nobody", "--yes", "--state", state)
    assert name in command.run(*other, status=1)
    assert in_topic(servers, topic, 1) == [b"10"]
    done = command.run(*complete, state)
    assert f"transaction       {txn_id}\n" in done
    assert done.endswith(f"{txn_id} is committed\n")
    assert command.run(*complete, state) == f"{txn_id} was committed before\n"
    assert agree(servers, database, topic) == [10, 11]
    write(servers, database, topic, 20, None)
    assert agree(servers, database, topic) == [10, 11, 20, 21, 22, 23]


def test_a_writer_that_never_comes_back_and_had_not_committed_is_terminated(
    servers: Servers, database: str
) -> None:
    topic = f"lost-{database[:6]}"
    name, state = left_prepared(servers, database, topic, Step.COMMIT_DATABASE)
    command = CommandLine(servers)
    (listed,) = command.json("transactions", "list", "--id", name)
    text = command.run("transactions", "complete", name, "--yes", "--state", state)
    assert text.endswith(f"{listed['txn_id']} is still open: the state does not name it\n")
    command.run("transactions", "force-terminate", name, "--abort-prepared", "--yes")
    assert agree(servers, database, topic) == [10]
    write(servers, database, topic, 20, None)
    assert agree(servers, database, topic) == [10, 20, 21, 22, 23]


def test_an_abort_of_what_the_database_had_committed_is_noticed(
    servers: Servers, database: str
) -> None:
    topic = f"torn-{database[:6]}"
    name, state = left_prepared(servers, database, topic, Step.COMMIT)
    command = CommandLine(servers)
    command.run("transactions", "force-terminate", name, "--abort-prepared", "--yes")
    assert "was aborted" in command.run(
        "transactions", "complete", name, "--yes", "--state", state, status=16
    )
    store = open_store(database)
    with blocking.connect(servers.address) as client:
        producer = client.transactional_producer(name, two_phase_commit=True)
        with pytest.raises(magnetar.DataLoss, match=state):
            DualWriter(producer, store).start()
    # What the page says: the row is removed, and the table says that this is settled.
    store.execute(f"DELETE FROM numbers_{topic.replace('-', '_')} WHERE number = 11")
    store.execute(
        "UPDATE magnetar_transaction_state SET prepared_transaction_state = ''"
        f" WHERE transactional_id = '{name}'"
    )
    store.commit()
    store.connection.close()
    write(servers, database, topic, 20, None)
    assert agree(servers, database, topic) == [10, 20, 21, 22, 23]


def test_of_two_instances_only_the_later_one_writes(servers: Servers, database: str) -> None:
    """The first one has prepared; the second one reads the state before the first one commits."""
    topic = f"rivals-{database[:6]}"
    create(servers, topic)
    write(servers, database, topic, 0, None)
    insert = f"INSERT INTO numbers_rivals_{database[:6]} VALUES "
    stores = [open_store(database), open_store(database)]
    with blocking.connect(servers.address) as client:
        producers = [
            client.transactional_producer(f"writer-{topic}", two_phase_commit=True)
            for _ in range(2)
        ]

        def take_over(step: Step) -> None:
            if step is Step.PREPARE:
                assert second.start() is False

        second = DualWriter(producers[1], stores[1])
        first = DualWriter(producers[0], stores[0], on_step=take_over)
        first.start()
        # SQLite's lock lets nobody else write: there the data comes after the takeover.
        with pytest.raises(magnetar.MagnetarError), first.unit() as unit:
            unit.send(topic, b"100")
        one_unit(second, topic, 101, f"{insert} (101)")
    for store in stores:
        store.connection.close()
    assert agree(servers, database, topic) == [0, 1, 2, 3, 101]


def test_sqlalchemy(servers: Servers, database: str) -> None:
    import sqlalchemy

    url = database.replace("sqlite:", "sqlite:///").replace("postgresql:", "postgresql+psycopg:")
    topic = f"alchemy-{database[:6]}"
    create(servers, topic)
    engine = sqlalchemy.create_engine(url)
    table = sqlalchemy.Table(
        f"numbers_alchemy_{database[:6]}",
        sqlalchemy.MetaData(),
        sqlalchemy.Column("number", sqlalchemy.Integer),
    )
    table.create(engine)
    for first in (0, 10):
        store = SqlAlchemyStore(engine)
        with blocking.connect(servers.address) as client:
            producer = client.transactional_producer(f"writer-{topic}", two_phase_commit=True)
            writer = DualWriter(producer, store)
            writer.start()
            for number in (first, first + 1):
                with writer.unit() as unit:
                    unit.send(topic, b"%d" % number)
                    unit.store.execute(table.insert().values(number=number))
            with pytest.raises(ZeroDivisionError):
                failing_unit(writer, topic, table.insert().values(number=100))
            producer.close()
        store.close()
    assert agree(servers, database, topic) == [0, 1, 10, 11]


def test_rocksdb(servers: Servers, tmp_path: Path) -> None:
    import rocksdict

    create(servers, "rocks")
    database = rocksdict.Rdict(str(tmp_path / "rocks"), rocksdict.Options(raw_mode=True))

    class Died(BaseException):
        pass

    def die(step: Step) -> None:
        if step is Step.COMMIT:
            raise Died

    for number, on_step in ((1, die), (2, lambda step: None)):
        with blocking.connect(servers.address) as client:
            producer = client.transactional_producer("rocks", two_phase_commit=True)
            writer = DualWriter(producer, RocksStore(database), on_step=on_step)
            assert writer.start() is (number == 2)
            try:
                with writer.unit() as unit:
                    unit.send("rocks", b"%d" % number)
                    unit.store.put(b"number/%d" % number, b"here")
            except Died:
                pass
            else:
                with pytest.raises(ZeroDivisionError):
                    failing_put(writer)

    assert in_topic(servers, "rocks", 2) == [b"1", b"2"]
    assert [database.get(b"number/%d" % number) for number in (1, 2, 3)] == [
        b"here",
        b"here",
        None,
    ]
    database.close()


def test_the_example_and_the_page(servers: Servers, database: str, tmp_path: Path) -> None:
    if database.startswith("sqlite"):
        page = (ROOT / "docs" / "dual_write.md").read_text()
        program = page.split("```python\n")[1].split("```")[0]
        (tmp_path / "page.py").write_text(program.replace("127.0.0.1:6650", servers.address))
        for _ in range(2):
            done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, stdout=subprocess.PIPE)
            assert (done.returncode, done.stdout.count(b"order 7")) == (0, 1)
        assert in_topic(servers, "orders", 2) == [b"tea", b"tea"]
    topic = f"orders-{database[:6]}"
    create(servers, topic)
    command = [sys.executable, str(ROOT / "examples" / "order_service.py"), database]
    options = ["--broker", servers.address, "--topic", topic]
    for orders in (["1=tea", "2=cake"], ["3=milk"]):
        done_there = subprocess.run([*command, *orders, *options], capture_output=True, text=True)
        assert done_there.returncode == 0, done_there.stderr
    again = subprocess.run([*command, "3=milk", *options], capture_output=True, text=True)
    assert again.returncode != 0, "the database has that order"
    assert in_topic(servers, topic, 3) == [b"tea", b"cake", b"milk"]
