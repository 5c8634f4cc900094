"""Groups of three client libraries against a real server: rebalances, kills, both worlds."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.kafka_clients.test_clients import (
    KafkaServers,
    needs_confluent,
    needs_kafka_python,
    topic_of,
)
from tests.system.processes import BROKER, Servers

from magnetar import blocking

needs_aiokafka = pytest.mark.skipif(
    importlib.util.find_spec("aiokafka") is None, reason="aiokafka is not installed"
)
LIBRARIES = (
    pytest.param("confluent", marks=needs_confluent),
    pytest.param("kafka-python", marks=needs_kafka_python),
    pytest.param("aiokafka", marks=needs_aiokafka),
)
PROGRAM = Path(__file__).with_name("group_worker.py")
PARTITIONS = 4
SECONDS_MAX = 90


class Told(NamedTuple):
    """A message that a worker has told."""

    worker: str
    partition: int
    offset: int
    value: str


class Workers:
    """Processes of a group's workers, and all that they tell."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._arguments = (bootstrap, group, topic)
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._changed = threading.Condition()
        self.told: list[Told] = []

    def start(self, library: str, name: str = "") -> None:
        command = (sys.executable, str(PROGRAM), library, *self._arguments)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._processes[name or library] = process
        threading.Thread(target=self._read, args=(name or library, process), daemon=True).start()

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            partition, offset, value = line.split()
            with self._changed:
                self.told.append(Told(name, int(partition), int(offset), value))
                self._changed.notify_all()

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(holds, SECONDS_MAX), what

    def stop(self) -> None:
        for name in list(self._processes):
            self.kill(name)


@contextmanager
def workers_of(bootstrap: str, group: str, topic: str) -> Iterator[Workers]:
    workers = Workers(bootstrap, group, topic)
    try:
        yield workers
    finally:
        workers.stop()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    made = KafkaServers(tmp_path_factory.mktemp("kafka"))
    with made.running():
        yield made
        made.stop()


def write(servers: Servers, topic: str, numbers: range) -> None:
    with blocking.connect(servers.address) as client, client.create_producer(topic) as producer:
        for number in numbers:
            producer.send(b"%d" % number, key=b"%d" % number)


def check(workers: Workers, count: int) -> None:
    """Every message was told, and each partition in its order but for what was told again."""
    assert {one.value for one in workers.told} == {str(number) for number in range(count)}
    ends: dict[int, int] = {}
    for one in workers.told:
        end = ends.get(one.partition, 0)
        assert one.offset <= end, "a message was skipped"
        ends[one.partition] = max(end, one.offset + 1)
    assert sum(ends.values()) == count


@needs_confluent
@needs_kafka_python
@needs_aiokafka
def test_a_group_of_three_libraries_survives_kills_of_members_and_of_the_broker(
    servers: KafkaServers,
) -> None:
    topic = topic_of(servers, "three", PARTITIONS)
    with workers_of(servers.kafka, "three", topic) as workers:
        for library in ("confluent", "kafka-python", "aiokafka"):
            workers.start(library)
        count = 0

        def round_of(more: int, what: str) -> None:
            nonlocal count
            write(servers, topic, range(count, count + more))
            count += more
            values = count
            workers.until(lambda: len({one.value for one in workers.told}) == values, what)

        round_of(200, "the members start")
        write(servers, topic, range(count, count + 200))
        count += 200
        servers.kill(BROKER)
        servers.start(BROKER)
        round_of(200, "the broker was killed")
        workers.kill("kafka-python")
        round_of(200, "a member was killed")
        workers.start("kafka-python", "again")
        mark = len(workers.told)
        while "again" not in {one.worker for one in workers.told[mark:]}:
            round_of(100, "a member came back")
        check(workers, count)
        assert len({one.worker for one in workers.told}) == 4


@pytest.mark.parametrize("library", LIBRARIES)
def test_workers_of_kafka_and_of_ours_take_over_from_each_other(
    servers: KafkaServers, library: str
) -> None:
    topic = topic_of(servers, f"over-{library}", PARTITIONS)
    write(servers, topic, range(100))
    with workers_of(servers.kafka, f"over-{library}", topic) as workers:
        workers.start(library)
        workers.until(lambda: len({one.value for one in workers.told}) == 100, "all are read")
        workers.kill(library)
        write(servers, topic, range(100, 150))
        # What was told, and not committed, comes again.
        seen = {one.value for one in workers.told}
        with (
            blocking.connect(servers.address) as client,
            client.subscribe(topic, subscription=f"over-{library}") as consumer,
        ):
            while len(seen) < 150:
                message = consumer.receive(SECONDS_MAX)
                seen.add(message.value.decode())
                consumer.ack(message)
        write(servers, topic, range(150, 200))
        before = len(workers.told)
        workers.start(library, "again")
        workers.until(lambda: len({one.value for one in workers.told[before:]}) == 50, "the rest")
        rest = {one.value for one in workers.told[before:]}
        assert rest == {str(number) for number in range(150, 200)}
