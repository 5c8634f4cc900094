"""Kafka: nodes that are broker and controller in one process; one, or a cluster of three."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.peers.fetch import VENV_PYTHON, class_path
from benchmarks.peers.processes import NotRunning, Process, free_ports, listens, running
from benchmarks.peers.properties import rendered
from benchmarks.peers.system import CLUSTER, LEFT_TO_THE_OS, SYNCED, Running, System

HEAP = ("-Xms1536m", "-Xmx1536m")
# The options of kafka-run-class.sh.
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
CLUSTER_NODES = 3
# A message is confirmed when all nodes that are in sync have it; so many have to be.
CLUSTER_IN_SYNC_MIN = 2


def configuration(
    directory: Path, durability: str, *, ports: Sequence[int], controller_ports: Sequence[int]
) -> list[dict[str, str]]:
    """The settings of each node; those that differ from its defaults, and why.

    Everything has a copy at each node, internal topics too. When a producer's next transaction
    meets the markers of its last one, the broker asks again after 20 ms by default, which limits
    small transactions: here after 1 ms. Synced: each append to each topic, internal ones too, is
    followed by fsync. A cluster leaves its disks to the operating system, as Kafka advises.
    """
    numbered = list(enumerate(zip(ports, controller_ports, strict=True), 1))
    voters = ",".join(f"{node}@localhost:{controller}" for node, (_, controller) in numbered)
    copies = str(len(numbered))
    in_sync = str(min(len(numbered), CLUSTER_IN_SYNC_MIN))
    common = {
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "num.partitions": "1",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        "add.partitions.to.txn.retry.backoff.ms": "1",
        "auto.create.topics.enable": "false",
    }
    if durability == SYNCED:
        common["log.flush.interval.messages"] = "1"
    return [
        {
            **common,
            "node.id": str(node),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(directory / f"data-{node}"),
        }
        for node, (port, controller_port) in numbered
    ]


class _Nodes(Running):
    def __init__(self, directory: Path, ports: Sequence[int]) -> None:
        self._directory = directory
        self._ports = ports
        self._processes: list[Process] = []

    def settings(self) -> dict[str, str]:
        return {"address": ",".join(f"127.0.0.1:{port}" for port in self._ports)}

    def pids(self) -> Sequence[int]:
        return [process.pid for process in self._processes]

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
        self.launch()

    def check(self) -> None:
        for process in self._processes:
            process.check()

    def launch(self) -> None:
        self._processes = [
            Process(
                [*_java(*HEAP, *COLLECTOR), "kafka.Kafka", str(_properties(self._directory, node))],
                self._directory / f"server-{node}.log",
            )
            for node in range(1, len(self._ports) + 1)
        ]

    def wait(self) -> None:
        for process, port in zip(self._processes, self._ports, strict=True):
            process.wait_until(partial(listens, port), START_WITHIN_S)

    def stop(self) -> None:
        for process in self._processes:
            process.stop()


@contextmanager
def _started(durability: str, directory: Path) -> Iterator[Running]:
    count = CLUSTER_NODES if durability == CLUSTER else 1
    ports = free_ports(2 * count)
    settings = configuration(
        directory, durability, ports=ports[:count], controller_ports=ports[count:]
    )
    for node, one in enumerate(settings, 1):
        _properties(directory, node).write_text(rendered(one))
        _format(directory, node)
    nodes = _Nodes(directory, ports[:count])
    try:
        nodes.launch()
        nodes.wait()
        yield nodes
    finally:
        nodes.stop()


def _format(directory: Path, node: int) -> None:
    command = [
        *_java(), "kafka.tools.StorageTool",
        "format", "-t", CLUSTER_ID, "-c", str(_properties(directory, node)),
    ]  # fmt: skip
    log = directory / f"format-{node}.log"
    with running(command, log) as formatting:
        if formatting.status() != 0:
            raise NotRunning(log.read_text()[-3_000:])


def _properties(directory: Path, node: int) -> Path:
    return directory / f"server-{node}.properties"


def _client(language: str) -> list[str]:
    if language == "python":
        return [str(VENV_PYTHON), "-m", "benchmarks.peers.clients.kafka_client"]
    # It warns of each request that it repeats, as transactions do all the time.
    return [*_java("-Xmx1g", "-XX:+UseG1GC", log_level="error"), "KafkaPeer"]


def _java(*options: str, log_level: str = "warn") -> list[str]:
    return ["java", *options, LOG_LEVEL + log_level, "-cp", class_path("kafka")]


SYSTEMS = tuple(
    System(name="kafka", durability=one, start=partial(_started, one), client=_client)
    for one in (SYNCED, LEFT_TO_THE_OS, CLUSTER)
)
