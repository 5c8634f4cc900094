"""Kafka: one node, broker and controller in one process, as its quick start has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.peers.fetch import VENV_PYTHON, class_path
from benchmarks.peers.processes import NotRunning, Process, free_ports, listens, running
from benchmarks.peers.properties import rendered
from benchmarks.peers.system import LEFT_TO_THE_OS, SYNCED, Running, System

HEAP = ("-Xms1536m", "-Xmx1536m")
# Those of kafka-run-class.sh.
COLLECTOR = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel="
START_WITHIN_S = 120.0
# What `kafka-storage.sh random-uuid` would give: any 16 bytes in this form.
CLUSTER_ID = "bWFnbmV0YXItcGVlcnMtMQ"


def configuration(
    directory: Path, durability: str, *, port: int, controller_port: int
) -> dict[str, str]:
    """The settings of the node; those that differ from its defaults, and why.

    Internal topics have a single replica, as there is a single node. When a producer's next
    transaction meets the markers of its last one, the broker asks again after 20 ms by default,
    which limits small transactions: here after 1 ms. Synced: each append to each topic, internal
    ones too, is followed by fsync.
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@localhost:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / "data"),
        "num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "add.partitions.to.txn.retry.backoff.ms": "1",
        "auto.create.topics.enable": "false",
    }
    if durability == SYNCED:
        settings["log.flush.interval.messages"] = "1"
    return settings


class _Node(Running):
    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._port = port
        self._process: Process | None = None

    def settings(self) -> dict[str, str]:
        return {"address": f"127.0.0.1:{self._port}"}

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
        properties = str(self._directory / "server.properties")
        command = [*_java(*HEAP, *COLLECTOR), "kafka.Kafka", properties]
        self._process = Process(command, self._directory / "server.log")

    def wait(self) -> None:
        assert self._process is not None
        self._process.wait_until(lambda: listens(self._port), START_WITHIN_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


@contextmanager
def _started(durability: str, directory: Path) -> Iterator[Running]:
    port, controller_port = free_ports(2)
    settings = configuration(directory, durability, port=port, controller_port=controller_port)
    properties = directory / "server.properties"
    properties.write_text(rendered(settings))
    format_command = [
        *_java(), "kafka.tools.StorageTool",
        "format", "-t", CLUSTER_ID, "-c", str(properties),
    ]  # fmt: skip
    with running(format_command, directory / "format.log") as formatting:
        if formatting.status() != 0:
            raise NotRunning((directory / "format.log").read_text()[-3_000:])
    node = _Node(directory, port)
    try:
        node.launch()
        node.wait()
        yield node
    finally:
        node.stop()


def _client(language: str) -> list[str]:
    if language == "python":
        return [str(VENV_PYTHON), "-m", "benchmarks.peers.clients.kafka_client"]
    # It warns of each request that it repeats, as transactions do all the time.
    return [*_java("-Xmx1g", "-XX:+UseG1GC", log_level="error"), "KafkaPeer"]


def _java(*options: str, log_level: str = "warn") -> list[str]:
    return ["java", *options, LOG_LEVEL + log_level, "-cp", class_path("kafka")]


SYSTEMS = tuple(
    System(name="kafka", durability=one, start=partial(_started, one), client=_client)
    for one in (SYNCED, LEFT_TO_THE_OS)
)
