"""`magnetar pipeline transform` as people start it, killed with SIGKILL, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.spark.killed_jobs import job_of_a_user
from tests.system.processes import Servers
from tests.waiting import wait_until

from magnetar import blocking

pytestmark = [pytest.mark.chaos, pytest.mark.soak]

KILLS = 4
MESSAGES = 40_000


def job(
    servers: Servers, directory: Path, *more: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    given = [
        *("transform", "orders", "bills", *more),
        *("--format", "json", "--schema", str(directory / "orders.ddl"), "--errors", "bad"),
        *("--checkpoint", str(directory / "checkpoint"), "--offsets-per-batch", "1000"),
    ]
    return job_of_a_user(servers.address, given, directory / "log")


def test_every_message_once_whenever_it_is_killed(
    java: None, servers: Servers, tmp_path: Path
) -> None:
    (tmp_path / "orders.ddl").write_text("id BIGINT NOT NULL")
    with blocking.connect(servers.address) as client:
        for topic in ("orders", "bills", "bad"):
            client.admin.topics.create(topic, partitions=2)

        def count() -> int:
            partitions = client.admin.topics.list_offsets("bills").partitions
            return sum(partition.end_offset for partition in partitions)

        # Every tenth is none.
        values = [
            b"tea %d" % number if number % 10 == 9 else b'{"id": %d}' % number
            for number in range(MESSAGES)
        ]
        with client.create_producer("orders") as producer:
            for partition in range(2):
                producer.send_many(values[partition::2], partition=partition)
        for _ in range(KILLS):
            before = count()
            with job(servers, tmp_path, "--follow"):
                wait_until(lambda: count() > before, 300)  # noqa: B023
        with job(servers, tmp_path, "--json") as last:
            said = last.communicate(timeout=300)[0]
            assert last.returncode == 0, (tmp_path / "log").read_text()[-3_000:]
        assert json.loads(said)["read"] < MESSAGES
        bills = [
            json.loads(one.value)["id"]
            for partition in range(2)
            for one in client.read("bills", partition)
        ]
        bad = [one.value for partition in range(2) for one in client.read("bad", partition)]
    assert sorted(bills) == [number for number in range(MESSAGES) if number % 10 != 9]
    assert sorted(bad) == sorted(values[9::10])


def test_ctrl_c_ends_what_follows(java: None, servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "orders.ddl").write_text("id BIGINT NOT NULL")
    with blocking.connect(servers.address) as client:
        for topic in ("orders", "bills", "bad"):
            client.admin.topics.create(topic)
        with client.create_producer("orders") as producer:
            producer.send(b'{"id": 1}')
        with job(servers, tmp_path, "--follow", "--json") as process:
            wait_until(lambda: list(client.read("bills", 0)), 300)
            os.killpg(process.pid, signal.SIGINT)
            said = process.communicate(timeout=300)[0]
    log = (tmp_path / "log").read_text()
    assert process.returncode == 0, log[-3_000:]
    assert json.loads(said)["written"] <= 1
    assert "Traceback" not in log
