"""Spark Connect: source and sink on a server, driven by sessions in other processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from tests.spark.conftest import ROOT, environment_of_a_user
from tests.system.processes import Servers
from tests.waiting import wait_until

from magnetar import blocking

pytestmark = pytest.mark.chaos

START_S = 120.0
STOP_S = 30.0

# A format that the server cannot find by itself.
REGISTERS = """
import sys

from pyspark.sql import SparkSession

from magnetar_spark import MagnetarDataSource


class Renamed(MagnetarDataSource):
    @classmethod
    def name(cls):
        return "renamed"


remote, broker = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
spark.dataSource.register(Renamed)
frame = spark.read.format("renamed").option("magnetar.bootstrap.servers", broker)
print("count:", frame.option("subscribe", "shouts").load().count())
"""


@pytest.fixture
def has_pandas() -> bool:
    """Whether the server has it."""
    return False


@pytest.fixture
def remote(java: None, tmp_path: Path, has_pandas: bool) -> Iterator[str]:
    """A Connect server, started by Spark's own script; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = Path(pyspark.__file__).parent / "sbin" / "start-connect-server.sh"
    settings = [
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.sql.shuffle.partitions=2"),
    ]
    log = tmp_path / "connect.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [str(script), "--wait", "--master", "local[2]", "--driver-memory", "700m", *settings],
            cwd=tmp_path,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={
                **environment_of_a_user(pandas=has_pandas),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOG_DIR": str(tmp_path),
                "SPARK_PID_DIR": str(tmp_path),
            },
        )
    try:
        _wait_for(port, server, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        # It removes what it has in /tmp.
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    def listens() -> bool:
        assert server.poll() is None, log.read_text()[-4000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens, START_S)


def client(*arguments: str) -> str:
    """What a client in a process of its own prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment_of_a_user(pandas=True),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-4000:])
    return done.stdout


def values(servers: Servers, topic: str) -> Counter[str]:
    with blocking.connect(servers.address) as reader:
        return Counter(
            message.value.decode()
            for partition in range(2)
            for message in reader.read(topic, partition)
        )


@pytest.fixture
def example(servers: Servers, remote: str, tmp_path: Path) -> list[str]:
    return [
        str(ROOT / "examples" / "spark_connect.py"),
        *("--remote", remote, "--broker", servers.address),
        *("--checkpoint", str(tmp_path / "checkpoint")),
    ]


def test_the_example(example: list[str]) -> None:
    """Batch and streaming, source and sink."""
    assert client(*example).splitlines() == [
        "shouts: {'BE': 2, 'NOT': 1, 'OR': 1, 'TO': 2}",
        "behind by 0",
    ]


# Minutes; and Spark gives the process of foreachBatch ten seconds to start, however busy we are.
@pytest.mark.soak
@pytest.mark.parametrize("has_pandas", [True])
def test_later_sessions_go_on(servers: Servers, remote: str, example: list[str]) -> None:
    """With the same checkpoint; and a third one registers what the server does not find."""
    first = client(*example, "--in-batches").splitlines()
    assert first[-1] == "in batches: {'BE': 2, 'NOT': 1, 'OR': 1, 'TO': 2}"
    client(*example, "--in-batches", "that", "is")
    expected = Counter(BE=2, NOT=1, OR=1, TO=2, THAT=1, IS=1)
    assert values(servers, "shouts") == expected
    assert values(servers, "shouts-in-batches") == expected
    registered = client("-c", REGISTERS, remote, servers.address)
    assert registered == f"count: {expected.total()}\n"
