"""`magnetar pipeline tables` as people start it, killed with SIGKILL, and read by another program.

DuckDB reads the tables by its own code for Iceberg, from an environment that is made for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

import pytest
from tests.spark.cut_world import TOPICS, Bank
from tests.spark.killed_jobs import job_of_a_user
from tests.system.processes import Servers
from tests.waiting import wait_until

from magnetar_spark.jobs.iceberg.catalogs import CatalogChoice, open_catalog

pytestmark = [pytest.mark.chaos, pytest.mark.soak]

KILLS = int(os.environ.get("TABLES_KILLS", "5"))
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


def job(servers: Servers, directory: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    given = [
        *("tables", *TOPICS, "--json", "--file-size", "1MiB"),
        *("--warehouse", str(directory / "warehouse")),
        *("--format", "json", "--schema", str(directory / "transfer.ddl")),
    ]
    return job_of_a_user(servers.address, given, directory / "log", pandas=True)


class NumberedTransfers(Bank):
    """Of different amounts; the values say to which transfer they belong."""

    def transfer(self, amount: int = 1) -> None:
        super().transfer(amount * (self.transfers % 97 + 1))

    def value(self, amount: int) -> bytes:
        return json.dumps({"number": self.transfers, "amount": amount}).encode()


def test_each_message_is_a_row_once_and_each_cut_is_one_moment_whenever_it_is_killed(
    java: None, servers: Servers, duckdb: Path, tmp_path: Path
) -> None:
    (tmp_path / "transfer.ddl").write_text("number BIGINT NOT NULL, amount BIGINT NOT NULL")
    seed = int(os.environ.get("SEED", "2024"))
    random = Random(seed)
    bank = NumberedTransfers(servers.address)
    log = tmp_path / "log"
    with bank.busy():
        bank.wait_for_more(100)
        with job(servers, tmp_path) as first:
            assert first.wait(300) == 0, log.read_text()[-3_000:]
        for _ in range(KILLS):
            seen = log.stat().st_size
            with job(servers, tmp_path):
                # From the first word on: it reads, writes, commits and joins files within a second.
                wait_until(lambda: log.stat().st_size > seen, 300)  # noqa: B023
                threading.Event().wait(random.uniform(0, 3))
    bank.close()
    with job(servers, tmp_path) as last:
        assert last.wait(300) == 0, log.read_text()[-3_000:]
    catalog = open_catalog(CatalogChoice(warehouse=str(tmp_path / "warehouse")))
    tables = [catalog.load_table(("magnetar", topic)) for topic in TOPICS]
    cuts = [{one for one in table.refs() if one != "main"} for table in tables]
    assert cuts[0] == cuts[1]
    for tag in cuts[0]:
        rows = [table.scan().use_ref(tag).to_arrow() for table in tables]
        numbers = [sorted(row["number"].to_pylist()) for row in rows]
        assert numbers[0] == numbers[1] == [*range(len(numbers[0]))], (seed, tag)
        assert sum(sum(row["amount"].to_pylist()) for row in rows) == 0, (seed, tag)
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
        assert count == distinct == places == bank.transfers
        assert amount == sign * sum(one % 97 + 1 for one in range(bank.transfers))
