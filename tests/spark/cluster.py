"""A standalone cluster of Spark: a master, and a worker on each of two loopback addresses.

Spark starts no copy of a task on a host that has an attempt already, and a host is what a worker
calls itself.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pyspark
from tests.sessions import kill_session
from tests.waiting import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")
START_S = 120.0


class StandaloneCluster:
    """Each worker has one core; an application gets an executor on each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []
        with socket.create_server((HOSTS[0], 0)) as free:
            self._port = free.getsockname()[1]
        self.master = f"spark://{HOSTS[0]}:{self._port}"

    def start(self) -> None:
        """Returns when the master listens; workers come as they can."""
        master = self._launch("master.Master", HOSTS[0], "--port", str(self._port))

        def listens() -> bool:
            assert master.poll() is None, self.log()
            with socket.socket() as probe:
                return probe.connect_ex((HOSTS[0], self._port)) == 0

        wait_until(listens, START_S)
        for host in HOSTS:
            work = self._directory / f"work-{host}"
            resources = ("--cores", "1", "--memory", "600m", "--work-dir", str(work))
            self._launch("worker.Worker", host, *resources, self.master)

    def _launch(self, name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with self._log.open("a") as log:
            process = subprocess.Popen(
                [
                    *(str(spark_class), f"org.apache.spark.deploy.{name}"),
                    *("--host", host, "--webui-port", "0", *arguments),
                ],
                cwd=self._directory,
                stdout=log,
                stderr=log,
                # With its executors.
                start_new_session=True,
                env={
                    **os.environ,
                    "SPARK_LOCAL_IP": host,
                    "SPARK_LOCAL_DIRS": str(self._directory / "local"),
                    "SPARK_DAEMON_MEMORY": "256m",
                },
            )
        self._started.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self._started):
            kill_session(process)

    @property
    def _log(self) -> Path:
        return self._directory / "cluster.log"

    def log(self) -> str:
        return self._log.read_text()[-4000:]
