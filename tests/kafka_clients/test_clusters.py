"""Several brokers, and shards that move: librdkafka finds partitions, and nothing is lost."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.core.ports import free_ports
from tests.kafka_clients.test_clients import needs_confluent, needs_kcat
from tests.system.moving_servers import MovingServers
from tests.system.processes import BROKER, COORDINATOR, Servers
from tests.waiting import wait_until

from magnetar import blocking

PARTITIONS = 6
SECONDS_MAX = 120
IDEMPOTENT = {
    "enable.idempotence": True,
    "linger.ms": 1,
    "batch.num.messages": 50,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "message.timeout.ms": SECONDS_MAX * 1_000,
}


class ThreeBrokers(Servers):
    """Three brokers of a list, each with a port for Kafka's clients."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(3)
        self.kafka = [f"127.0.0.1:{port}" for port in ports]
        listed = ",".join(f"broker-{number}={one}" for number, one in enumerate(self.kafka))
        super().__init__(
            directory, {"MAGNETAR_KAFKA_ADDRESSES": listed}, {BROKER: 3, COORDINATOR: 1}
        )

    def kill_and_start(self, number: int) -> None:
        """Kill a broker, and start it again."""
        name = f"broker-{number}"
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        process.stdout.close()
        self._begin(BROKER, number, name)
        self._await_ready(BROKER, name)


class MovingBrokers(MovingServers):
    """Three brokers whose shards move, each with a port for Kafka's clients."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(3)
        self.kafka = [f"127.0.0.1:{port}" for port in ports]
        super().__init__(directory)

    def _command(self, kind: str, number: int, name: str) -> list[str]:
        command = super()._command(kind, number, name)
        if kind == BROKER:
            command += ["--kafka-port", self.kafka[number].rpartition(":")[2]]
        return command

    def kill_and_start(self, number: int) -> None:
        """Kill a broker, and start it again."""
        name = f"broker-{number}"
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        process.stdout.close()
        self._begin(BROKER, number, name)
        self._await_ready(BROKER, name)


def sent_through(
    bootstrap: str, topic: str, count: int, turns: Mapping[int, Callable[[], object]]
) -> dict[int, list[bytes]]:
    """Send with an idempotent producer; return the values of each partition, in order.

    Args:
        turns: what is done when so many messages are confirmed.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, **IDEMPOTENT})
    values: dict[int, list[bytes]] = defaultdict(list)
    failed: list[Any] = []
    confirmed = sent = 0
    waiting = sorted(turns)

    def on_delivery(error: Any, message: Any) -> None:
        nonlocal confirmed
        confirmed += 1
        if error is not None:
            failed.append((error, message.value()))

    while confirmed < count:
        if sent < count and sent - confirmed < 2_000:
            value, partition = b"%d" % sent, sent % PARTITIONS
            producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
            values[partition].append(value)
            sent += 1
        producer.poll(0 if sent < count and sent - confirmed < 2_000 else 0.1)
        if waiting and confirmed >= waiting[0]:
            turns[waiting.pop(0)]()
    assert failed == []
    return dict(values)


def consumed(bootstrap: str, topic: str, count: int) -> dict[int, list[bytes]]:
    """Read all partitions from their beginning."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not used",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.fast.interval.ms": 50,
            "reconnect.backoff.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    values: dict[int, list[bytes]] = defaultdict(list)
    ends_s = time.monotonic() + SECONDS_MAX
    while sum(map(len, values.values())) < count and time.monotonic() < ends_s:
        for message in consumer.consume(1_000, timeout=1):
            if message.error() is None:
                values[message.partition()].append(message.value())
    consumer.close()
    return dict(values)


def create_topic(servers: Servers, topic: str) -> None:
    with blocking.connect(servers.address) as client:
        client.admin.topics.create(topic, partitions=PARTITIONS)


@needs_confluent
@needs_kcat
def test_three_brokers_under_kills(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

    count = 6_000
    servers = ThreeBrokers(tmp_path)
    with servers.running():
        # From each broker: a follower passes topics on to the first one.
        admin = AdminClient({"bootstrap.servers": servers.kafka[2]})
        new = NewTopic("t", num_partitions=PARTITIONS, replication_factor=3)
        admin.create_topics([new])["t"].result(SECONDS_MAX)
        told = admin.list_topics("t", timeout=SECONDS_MAX)
        assert {one.id: f"{one.host}:{one.port}" for one in told.brokers.values()} == dict(
            enumerate(servers.kafka, 1)
        )
        leaders = [one.leader for one in told.topics["t"].partitions.values()]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
        turns = {
            1_000: lambda: servers.kill_and_start(1),
            2_500: lambda: servers.kill_and_start(2),
            4_000: lambda: servers.kill_and_start(0),
        }
        sent = sent_through(servers.kafka[1], "t", count, turns)
        assert consumed(servers.kafka[0], "t", count) == sent
        with blocking.connect(servers.address) as client:
            read = [message.value for message in client.read("t")]
        assert sorted(read) == sorted(value for values in sent.values() for value in values)
        admin.create_partitions([NewPartitions("t", PARTITIONS + 3)])["t"].result(SECONDS_MAX)
        told = admin.list_topics("t", timeout=SECONDS_MAX)
        assert len(told.topics["t"].partitions) == PARTITIONS + 3
        assert all(one.leader > 0 for one in told.topics["t"].partitions.values())
        missing = admin.list_topics("missing", timeout=SECONDS_MAX).topics["missing"]
        assert missing.error is not None
        assert missing.error.name() == "UNKNOWN_TOPIC_OR_PART"
        servers.stop()


@needs_confluent
@pytest.mark.chaos
def test_shards_that_move_and_a_broker_that_is_killed(tmp_path: Path) -> None:
    count = 12_000
    servers = MovingBrokers(tmp_path)
    with servers.running():
        create_topic(servers, "t")

        def moved(times: int) -> Callable[[], None]:
            def wait() -> None:
                assert servers._mover is not None
                mover = servers._mover
                wait_until(lambda: mover.move_count >= times, SECONDS_MAX)

            return wait

        turns = {
            2_000: moved(2),
            4_000: moved(4),
            6_000: lambda: servers.kill_and_start(1),
            9_000: moved(7),
        }
        sent = sent_through(",".join(servers.kafka), "t", count, turns)
        assert consumed(",".join(servers.kafka), "t", count) == sent
        with blocking.connect(servers.address) as client:
            read = [message.value for message in client.read("t")]
        assert sorted(read) == sorted(value for values in sent.values() for value in values)
        servers.stop()
