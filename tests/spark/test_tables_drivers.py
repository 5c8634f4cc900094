"""`magnetar pipeline tables` as people start it, killed with SIGKILL, and read by another program.

DuckDB reads the tables by its own code for Iceberg, from an environment that is made for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from tests.spark.conftest import environment_of_a_user
from tests.system.processes import Servers
from tests.waiting import wait_until

from magnetar import blocking

pytestmark = [pytest.mark.chaos, pytest.mark.soak]

KILLS = int(os.environ.get("TABLES_KILLS", "5"))
TOPICS = ("current", "savings")
DUCKDB = ("duckdb==1.5.5", "duckdb-extension-avro==1.5.5", "duckdb-extension-iceberg==1.5.5")
# Extensions are files of packages: nothing is fetched.
QUERY = """
import json, sys, duckdb, duckdb_extension_avro, duckdb_extension_iceberg
from pathlib import Path
connection = duckdb.connect()
for package in (duckdb_extension_avro, duckdb_extension_iceberg):
    (file,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
    connection.load_extension(str(file))
metadata, snapshot = sys.argv[1:]
found = connection.execute(
    "SELECT count(*), count(DISTINCT number), sum(amount)::BIGINT,"
    " count(DISTINCT (_partition, _offset))"
    f" FROM iceberg_scan('{metadata}', snapshot_from_id => {snapshot})"
).fetchone()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("duckdb")
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = directory / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *DUCKDB], check=True)
    return python


@contextmanager
def job(servers: Servers, directory: Path) -> Iterator[subprocess.Popen[str]]:
    given = [
        *("--broker", servers.address, "pipeline", "tables", *TOPICS, "--json"),
        *("--warehouse", str(directory / "warehouse"), "--file-size", "1MiB"),
        *("--format", "json", "--schema", str(directory / "transfer.ddl")),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "magnetar_cli", *given],
        env=environment_of_a_user(pandas=True),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=(directory / "log").open("a"),
        text=True,
    )
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()


class Transfers:
    """From an account of one topic to one of the other, in a thread, until it is told to stop."""

    def __init__(self, address: str) -> None:
        self.count = 0
        self._end = threading.Event()
        self._client = blocking.connect(address)
        for topic in TOPICS:
            self._client.admin.topics.create(topic, partitions=2)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        producers = [self._client.create_producer(topic) for topic in TOPICS]
        while not self._end.is_set():
            with self._client.transaction() as txn:
                for sign, producer in zip((-1, 1), producers, strict=True):
                    value = {"number": self.count, "amount": sign * (self.count % 97 + 1)}
                    producer.send(json.dumps(value).encode(), partition=self.count % 2, txn=txn)
            self.count += 1

    def stop(self) -> None:
        self._end.set()
        self._thread.join()
        self._client.close()


def catalog_of(directory: Path) -> Catalog:
    return load_catalog(
        "warehouse",
        type="sql",
        uri=f"sqlite:///{directory / 'catalog.db'}",
        warehouse=directory.as_uri(),
    )


def test_each_message_is_a_row_once_and_each_cut_is_one_moment_whenever_it_is_killed(
    java: None, servers: Servers, duckdb: Path, tmp_path: Path
) -> None:
    (tmp_path / "transfer.ddl").write_text("number BIGINT NOT NULL, amount BIGINT NOT NULL")
    seed = int(os.environ.get("SEED", "2024"))
    random = Random(seed)
    transfers = Transfers(servers.address)
    try:
        wait_until(lambda: transfers.count >= 100, 60)
        with job(servers, tmp_path) as first:
            assert first.wait(300) == 0, (tmp_path / "log").read_text()[-3_000:]
        log = tmp_path / "log"
        for _ in range(KILLS):
            seen = log.stat().st_size
            with job(servers, tmp_path):
                # From the first word on: it reads, writes, commits and joins files within a second.
                wait_until(lambda: log.stat().st_size > seen, 300)  # noqa: B023
                after_s = random.uniform(0, 3)
                threading.Event().wait(after_s)
    finally:
        transfers.stop()
    with job(servers, tmp_path) as last:
        assert last.wait(300) == 0, (tmp_path / "log").read_text()[-3_000:]
    catalog = catalog_of(tmp_path / "warehouse")
    tables = [catalog.load_table(("magnetar", topic)) for topic in TOPICS]
    cuts = [{one for one in table.refs() if one != "main"} for table in tables]
    assert cuts[0] == cuts[1]
    for tag in cuts[0]:
        rows = [table.scan().use_ref(tag).to_arrow() for table in tables]
        numbers = [sorted(one["number"].to_pylist()) for one in rows]
        assert numbers[0] == numbers[1] == [*range(len(numbers[0]))], (seed, tag)
        assert sum(sum(one["amount"].to_pylist()) for one in rows) == 0, (seed, tag)
    for sign, table in zip((-1, 1), tables, strict=True):
        current = table.current_snapshot()
        assert current is not None
        told = subprocess.run(
            [duckdb, "-c", QUERY, table.metadata_location, str(current.snapshot_id)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        count, distinct, amount, places = json.loads(told)
        assert count == distinct == places == transfers.count
        assert amount == sign * sum(one % 97 + 1 for one in range(transfers.count))
