"""Pulsar: standalone, with broker, metadata and bookies in one process: one, or three."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.peers.fetch import SOURCES, VENV_PYTHON, class_path
from benchmarks.peers.processes import Process, free_ports
from benchmarks.peers.properties import rendered
from benchmarks.peers.system import CLUSTER, LEFT_TO_THE_OS, SYNCED, Running, System

MEMORY = ("-Xms1536m", "-Xmx1536m", "-XX:MaxDirectMemorySize=3g")
# The options of Pulsar's own scripts: it uses direct memory and internals of the JDK.
OPTIONS = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=10",
    "-XX:+ParallelRefProcEnabled",
    "-XX:+DisableExplicitGC",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.recycler.maxCapacityPerThread=4096",
)
OPENED = (
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
START_WITHIN_S = 180.0
CLUSTER_BOOKIES = 3
CLUSTER_CONFIRMED = 2
LOGGING_FILE = "log4j2.properties"
LOGGING = {
    "rootLogger.level": "warn",
    "rootLogger.appenderRef.console.ref": "console",
    "appender.console.type": "Console",
    "appender.console.name": "console",
    "appender.console.target": "SYSTEM_ERR",
    "appender.console.layout.type": "PatternLayout",
    "appender.console.layout.pattern": "%d{ISO8601} %-5p %c{1} - %m%n",
}


def configuration(durability: str, *, port: int, web_port: int) -> dict[str, str]:
    """The settings of standalone; those that differ from its defaults in code, and why.

    The first ones are those of the file that standalone comes with. Both logs of transactions write
    batches, which is faster with many transactions at once. Consumed messages are kept, as by the
    other systems, since the rows read them again. Synced: the bookie's journal, which has every
    entry of every topic and cursor, is synced before anything is acknowledged, as a cluster's
    bookies do by default. There each entry goes to three bookies, and counts when two have it.
    """
    copies, confirmed = (CLUSTER_BOOKIES, CLUSTER_CONFIRMED) if durability == CLUSTER else (1, 1)
    return {
        "clusterName": "standalone",
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "brokerServicePort": str(port),
        "webServicePort": str(web_port),
        "managedLedgerDefaultEnsembleSize": str(copies),
        "managedLedgerDefaultWriteQuorum": str(copies),
        "managedLedgerDefaultAckQuorum": str(confirmed),
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
        "loadBalancerEnabled": "false",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "journalMaxGroupWaitMSec": "1",
        "flushInterval": "60000",
        "gcWaitTime": "300000",
        "allowLoopback": "true",
        "diskUsageThreshold": "0.99",
        "diskUsageWarnThreshold": "0.99",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
        "transactionCoordinatorEnabled": "true",
        "transactionLogBatchedWriteEnabled": "true",
        "transactionPendingAckBatchedWriteEnabled": "true",
        "journalSyncData": "false" if durability == LEFT_TO_THE_OS else "true",
    }


class _Standalone(Running):
    def __init__(
        self, directory: Path, port: int, web_port: int, bookie_port: int, bookies: int
    ) -> None:
        self._directory = directory
        self._bookies = bookies
        self._port = port
        self._web_port = web_port
        self._bookie_port = bookie_port
        self._process: Process | None = None

    def settings(self) -> dict[str, str]:
        return {
            "address": f"pulsar://127.0.0.1:{self._port}",
            "admin": f"http://127.0.0.1:{self._web_port}",
        }

    def pids(self) -> Sequence[int]:
        return [] if self._process is None else [self._process.pid]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self.launch()

    def check(self) -> None:
        assert self._process is not None
        self._process.check()

    def launch(self) -> None:
        command = [
            *("java", *MEMORY, *OPTIONS, _logging(self._directory)),
            *(f"--add-opens={one}=ALL-UNNAMED" for one in OPENED),
            *("-cp", class_path("pulsar"), "org.apache.pulsar.PulsarStandaloneStarter"),
            *("--config", str(self._directory / "standalone.conf")),
            *("--no-functions-worker", "--no-stream-storage", "--num-bookies", str(self._bookies)),
            *("--bookkeeper-port", str(self._bookie_port)),
            *("--bookkeeper-dir", str(self._directory / "bookkeeper")),
            *("--metadata-dir", str(self._directory / "metadata")),
        ]
        self._process = Process(command, self._directory / "server.log")

    def wait(self) -> None:
        assert self._process is not None
        self._process.wait_until(self._is_ready, START_WITHIN_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def _is_ready(self) -> bool:
        """Whether the namespace of the topics is there, which is made last."""
        page = f"http://127.0.0.1:{self._web_port}/admin/v2/persistent/public/default"
        try:
            with urllib.request.urlopen(page, timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@contextmanager
def _started(durability: str, directory: Path) -> Iterator[Running]:
    port, web_port, bookie_port = free_ports(3)
    settings = configuration(durability, port=port, web_port=web_port)
    (directory / "standalone.conf").write_text(rendered(settings))
    (directory / LOGGING_FILE).write_text(rendered(LOGGING))
    bookies = CLUSTER_BOOKIES if durability == CLUSTER else 1
    standalone = _Standalone(directory, port, web_port, bookie_port, bookies)
    try:
        standalone.launch()
        standalone.wait()
        yield standalone
    finally:
        standalone.stop()


def _client(language: str) -> list[str]:
    if language == "python":
        return [str(VENV_PYTHON), "-m", "benchmarks.peers.clients.pulsar_client"]
    return [
        "java",
        "-Xmx1g",
        "-XX:+UseG1GC",
        _logging(SOURCES / "java"),
        "-cp",
        class_path("pulsar"),
        "PulsarPeer",
    ]


def _logging(directory: Path) -> str:
    return f"-Dlog4j2.configurationFile={directory / LOGGING_FILE}"


SYSTEMS = tuple(
    System(name="pulsar", durability=one, start=partial(_started, one), client=_client)
    for one in (SYNCED, LEFT_TO_THE_OS, CLUSTER)
)
