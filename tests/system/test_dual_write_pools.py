"""Pools of dual writers on real databases: whose the ids are, and what the dead have left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests import fork_server
from tests.system.databases import postgresql, postgresql_programs
from tests.system.dual_writer import RECOVERY
from tests.system.pool_stores import (
    ASYNC,
    BLOCKING,
    create_table,
    insert,
    is_sqlite,
    open_async_store,
    open_store,
    query,
)
from tests.system.pool_worker import POOL
from tests.system.processes import Servers
from tests.waiting import turns, wait_until

import magnetar
from magnetar import blocking
from magnetar.dual_write import AsyncDualWriterPool, DualWriterPool, Step

SETTINGS = {"MAGNETAR_TWO_PHASE_COMMIT_ENABLED": "1"}
HOLDERS = "SELECT transactional_id, holder FROM magnetar_transaction_state ORDER BY 1"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    running = Servers(tmp_path_factory.mktemp("servers"), SETTINGS)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    programs = postgresql_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with postgresql(programs) as url:
        yield url


class Case:
    """An empty database of a kind, and a topic."""

    def __init__(self, servers: Servers, kind: str, database: str, topic: str) -> None:
        self.address = servers.address
        self.kind, self.database, self.topic = kind, database, topic
        create_table(database)
        with blocking.connect(servers.address) as client:
            client.admin.topics.create(topic)

    def pool(self, client: blocking.Client, size: int = 4) -> DualWriterPool[Any]:
        store = partial(open_store, self.kind, self.database)
        return DualWriterPool(client, POOL, store, size=size)

    def async_pool(self, client: magnetar.Client, size: int = 4) -> AsyncDualWriterPool[Any]:
        store = partial(open_async_store, self.kind, self.database)
        return AsyncDualWriterPool(client, POOL, store, size=size)

    def write(self, pool: DualWriterPool[Any], number: int, then: Callable[[], object]) -> None:
        with pool.unit() as unit:
            unit.send(self.topic, b"%d" % number)
            insert(unit.store, self.kind, number)
            then()

    def work(self, first: int, count: int, step: Step | None = None) -> list[str]:
        """Have a process write numbers; with a step it dies. Returns what it says of failures."""
        arguments = [self.address, self.kind, self.database, self.topic, str(first), str(count)]
        done = fork_server.run(
            *arguments, step.name if step else "", module="tests.system.pool_worker"
        )
        assert done.returncode == (-signal.SIGKILL if step else 0), done.stderr.decode()
        return done.stdout.decode().splitlines()

    def agreed(self) -> list[int]:
        """The numbers that both have."""
        numbers = sorted(row[0] for row in query(self.database, "SELECT number FROM numbers"))
        with blocking.connect(self.address) as client:
            # The last ends may be under way for a moment.
            found: list[int] = []

            def are_there() -> bool:
                found[:] = sorted(int(message.value) for message in client.read(self.topic))
                return len(found) >= len(numbers)

            wait_until(are_there)
        assert found == numbers
        return numbers

    def holders(self) -> dict[str, str]:
        return dict(query(self.database, HOLDERS))


@pytest.fixture
def case(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Case:
    kind: str = request.param
    database = str(tmp_path / "numbers.db")
    if not is_sqlite(kind):
        database = request.getfixturevalue("url")
    return Case(servers, kind, database, f"numbers-{tmp_path.name.replace('_', '-')}"[:60])


def nothing() -> None:
    return


kinds = partial(pytest.mark.parametrize, "case", indirect=True)


@kinds(argvalues=[*BLOCKING, *ASYNC])
def test_units_of_processes_that_are_killed_are_settled_by_others(case: Case) -> None:
    case.work(0, 10)
    for first, step in ((100, Step.COMMIT_DATABASE), (200, Step.COMMIT), (300, Step.UPDATE_STATE)):
        case.work(first, 10, step)
    assert any(case.holders().values())
    case.work(900, 10)
    # All that lived has released what it held.
    assert set(case.holders().values()) == {""}
    numbers = case.agreed()
    assert [each for each in numbers if each < 100 or each >= 900] == [
        *range(10),
        *range(900, 910),
    ]


@kinds(argvalues=["sqlite3", "psycopg"])
def test_a_pool_passes_over_what_a_living_process_holds(case: Case) -> None:
    with blocking.connect(case.address) as client, case.pool(client) as first:
        case.write(first, 1, nothing)
        with case.pool(client) as second:
            case.write(second, 2, nothing)
            held = case.holders()
            assert list(held) == [f"{POOL}-1", f"{POOL}-2"]
            assert all(each.endswith(f"process {os.getpid()}") for each in held.values())
            # None of them was left by a process that has died.
            assert second.settle() == 0
    assert set(case.holders().values()) == {""}
    case.agreed()


KILL_SESSIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    " AND backend_type = 'client backend'"
)


@kinds(argvalues=["psycopg", "sqlalchemy"])
def test_a_pool_replaces_writers_whose_connections_were_lost(case: Case) -> None:
    """Later units were told to call start(), and the service had to be started again."""
    with blocking.connect(case.address) as client, case.pool(client) as pool:
        case.write(pool, 1, nothing)
        query(case.database, KILL_SESSIONS)
        # Lost while nothing was open: this unit does not notice.
        case.write(pool, 2, nothing)
        with pytest.raises(Exception, match=r"(?i)terminat|closed|lost"):
            case.write(pool, 3, lambda: query(case.database, KILL_SESSIONS))
        case.write(pool, 4, nothing)
    assert case.agreed() == [1, 2, 4]


@kinds(argvalues=["psycopg", "asyncpg", "sqlalchemy"])
def test_workers_that_begin_at_the_same_time_create_one_table(case: Case) -> None:
    """PostgreSQL told all but one that the table exists, in spite of IF NOT EXISTS."""
    with ThreadPoolExecutor(4) as workers:
        for done in [workers.submit(case.work, 10 * number, 5) for number in range(4)]:
            assert done.result() == []
    assert len(case.agreed()) == 20


@kinds(argvalues=["psycopg"])
def test_a_writer_that_slept_longer_than_its_lock_cannot_commit(case: Case) -> None:
    with blocking.connect(case.address) as client, case.pool(client) as pool:

        def sleep() -> None:
            # The server has ended its session meanwhile, and another process has its id.
            query(case.database, KILL_SESSIONS)
            case.work(100, 3)

        with pytest.raises(Exception, match=r"(?i)terminat|closed|lost"):
            case.write(pool, 1, sleep)
        case.write(pool, 2, nothing)
    assert case.agreed() == [2, 100, 101, 102]


@kinds(argvalues=["psycopg-async"])
def test_a_cancelled_unit_is_undone_and_the_pool_goes_on(case: Case) -> None:
    async def main() -> None:
        async with (
            await magnetar.connect(case.address) as client,
            case.async_pool(client, size=1) as pool,
        ):
            reached = asyncio.Event()

            async def write(number: int, *, waits: bool) -> None:
                async with pool.unit() as unit:
                    await unit.send(case.topic, b"%d" % number)
                    await insert(unit.store, case.kind, number)
                    if waits:
                        reached.set()
                        await asyncio.Event().wait()

            doomed = asyncio.create_task(write(1, waits=True))
            await reached.wait()
            # It waits for the writer, and is cancelled before it gets it.
            waiting = asyncio.create_task(write(2, waits=False))
            await turns(1)
            waiting.cancel()
            doomed.cancel()
            await asyncio.wait([doomed, waiting])
            assert doomed.cancelled()
            assert waiting.cancelled()
            await write(3, waits=False)

    asyncio.run(main())
    assert case.agreed() == [3]


@kinds(argvalues=["psycopg"])
def test_a_unit_that_only_a_person_can_settle_stops_no_other(case: Case) -> None:
    with blocking.connect(case.address) as client:
        with case.pool(client) as pool:
            case.write(pool, 1, nothing)
        store = open_store(case.kind, case.database)
        # As if the data of the cluster had been removed since.
        store.execute(
            "UPDATE magnetar_transaction_state SET prepared_transaction_state ="
            " regexp_replace(prepared_transaction_state, ':[0-9]+$', ':999999'), holder = 'gone'"
        )
        store.commit()
        store.close()
        with case.pool(client) as pool:
            case.write(pool, 2, nothing)
            assert case.holders()[f"{POOL}-2"] != ""
    assert case.agreed() == [1, 2]


def test_a_database_in_memory_is_refused(servers: Servers) -> None:
    with (
        blocking.connect(servers.address) as client,
        pytest.raises(magnetar.InvalidArgument, match="in memory"),
        DualWriterPool(client, POOL, partial(open_store, "sqlite3", ":memory:")) as pool,
        pool.unit(),
    ):
        pass
    with blocking.connect(servers.address) as client:
        with pytest.raises(magnetar.InvalidArgument, match="name of a pool"):
            DualWriterPool(client, "", partial(open_store, "sqlite3", ":memory:"))
        with pytest.raises(magnetar.InvalidArgument, match="size"):
            DualWriterPool(client, POOL, partial(open_store, "sqlite3", ":memory:"), size=0)


@pytest.mark.soak
@kinds(argvalues=["psycopg", "asyncpg"])
def test_workers_that_come_and_go_and_lose_their_connections(case: Case) -> None:
    """4 workers; some die at a step, and all sessions of the database are ended now and then."""
    requests = int(os.environ.get("DUAL_WRITE_REQUESTS", "10000"))
    each = 50
    # UPDATE_DATA is a step of the caller.
    steps = [step for step in Step if step not in {*RECOVERY, Step.UPDATE_DATA}]
    random = Random(7)
    failures: list[str] = []
    drops = 0

    def supervised(first: int, step: Step | None) -> list[str]:
        """As a supervisor does: start a worker again whose pool could not start."""
        while True:
            try:
                return case.work(first, each, step)
            except AssertionError as error:
                if "self.start()" not in str(error):
                    raise

    with ThreadPoolExecutor(4) as workers:
        running = [
            workers.submit(
                supervised, first, random.choice(steps) if random.random() < 0.3 else None
            )
            for first in range(0, requests, each)
        ]
        for number, future in enumerate(running):
            failures += future.result()
            if number % 10 == 9:
                query(case.database, KILL_SESSIONS)
                drops += 1
    case.work(requests, each)
    assert set(case.holders().values()) == {""}
    numbers = case.agreed()
    # Each of the sessions that were ended may have had a unit open; no other unit fails.
    assert len(failures) <= drops * 4 * 4, failures
    print(f"{len(numbers)} of {requests} units count, {len(failures)} failed, {drops} drops")
