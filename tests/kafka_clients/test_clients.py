"""Clients of others against a real server: kcat, librdkafka in Python, and one in Python alone.

What is not installed is left out.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.core.ports import free_ports
from tests.system.processes import BROKER, COORDINATOR, Servers

from magnetar import OutOfRange, blocking


def installed() -> list[str]:
    """Return the names of installed distributions, as modules have them."""
    names = (one.metadata["Name"] for one in importlib.metadata.distributions())
    return [name.replace("-", "_").lower() for name in names if name]


needs_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
needs_confluent = pytest.mark.skipif(
    importlib.util.find_spec("confluent_kafka") is None, reason="confluent-kafka is not installed"
)
needs_kafka_python = pytest.mark.skipif(
    not any(name.startswith("kafka_python") for name in installed()),
    reason="kafka-python is not installed",
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 500
SECONDS_MAX = 60


class KafkaServers(Servers):
    """A broker with a port for Kafka's clients, and a coordinator."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self.kafka = f"127.0.0.1:{port}"
        settings = {"MAGNETAR_KAFKA_PORT": str(port)}
        super().__init__(directory, settings, {BROKER: 1, COORDINATOR: 1})


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    made = KafkaServers(tmp_path_factory.mktemp("kafka"))
    with made.running():
        yield made
        made.stop()


def topic_of(servers: Servers, name: str, partitions: int = 1) -> str:
    with blocking.connect(servers.address) as client:
        client.admin.topics.create(name, partitions=partitions)
    return name


def values_of(servers: Servers, topic: str) -> list[bytes]:
    """All values of a topic, as our own reader sees them."""
    with blocking.connect(servers.address) as client:
        return [message.value for message in client.read(topic)]


def kcat(servers: KafkaServers, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", servers.kafka, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_kcat
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_writes_and_both_worlds_read(servers: KafkaServers, codec: str) -> None:
    topic = topic_of(servers, f"kcat-{codec}")
    lines = [f"k{number}:value {number}" for number in range(COUNT)]
    compression = () if codec == "none" else ("-z", codec)
    kcat(servers, "-P", "-t", topic, "-K:", *compression, stdin="\n".join(lines) + "\n")
    read = kcat(servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%o %k:%s\n")
    assert read.splitlines() == [f"{number} {line}" for number, line in enumerate(lines)]
    assert values_of(servers, topic) == [line.partition(":")[2].encode() for line in lines]


@needs_kcat
def test_kcat_reads_what_our_clients_wrote_in_transactions(servers: KafkaServers) -> None:
    topic = topic_of(servers, "ours")
    with blocking.connect(servers.address) as client:
        with client.create_producer(topic) as producer:
            producer.send(b"plain", key=b"k", properties={"a": "b"})
        with client.transaction() as txn:
            txn.send(topic, b"in")
        aborted = client.begin_transaction()
        aborted.send(topic, b"aborted")
        aborted.abort()
    found = kcat(servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%o %k %s %h\n")
    assert found.splitlines() == ["0 k plain a=b", "1  in "]


def confluent_producer(servers: KafkaServers, **settings: Any) -> Any:
    import confluent_kafka

    return confluent_kafka.Producer({"bootstrap.servers": servers.kafka, **settings})


def confluent_values(servers: KafkaServers, topic: str, count: int) -> list[bytes]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers.kafka, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count, SECONDS_MAX)
        assert messages, f"{len(found)} of {count} came"
        for message in messages:
            assert message.error() is None, message.error()
            assert message.offset() == len(found)
            found.append(message.value())
    consumer.close()
    return found


@needs_confluent
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_confluent_kafka_writes_and_reads(servers: KafkaServers, acks: str) -> None:
    topic = topic_of(servers, f"confluent-{acks}")
    producer = confluent_producer(servers, acks=acks)
    values = [b"%d" % number for number in range(COUNT)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(SECONDS_MAX) == 0
    assert confluent_values(servers, topic, COUNT) == values
    assert values_of(servers, topic) == values


@needs_confluent
def test_confluent_kafka_administers_topics(servers: KafkaServers) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

    admin = AdminClient({"bootstrap.servers": servers.kafka})
    wanted = [
        NewTopic("good", 2, 3, config={"retention.ms": "60000"}),
        NewTopic("bad", 1, 1, config={"cleanup.policy": "compact"}),
    ]
    made = admin.create_topics(wanted)
    made["good"].result(SECONDS_MAX)
    with pytest.raises(KafkaException, match="there are no compacted topics"):
        made["bad"].result(SECONDS_MAX)
    resource = ConfigResource("topic", "good")
    told = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    assert told["retention.ms"].value == "60000"
    assert len(admin.list_topics("good", SECONDS_MAX).topics["good"].partitions) == 2
    admin.delete_topics(["good"])["good"].result(SECONDS_MAX)


@needs_confluent
def test_records_are_deleted_up_to_the_middle_of_a_batch(servers: KafkaServers) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic, first = topic_of(servers, "deleted"), 123
    producer = confluent_producer(servers, **{"linger.ms": 100})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number)
    producer.flush(SECONDS_MAX)
    place = TopicPartition(topic, 0, first)
    admin = AdminClient({"bootstrap.servers": servers.kafka})
    deleted = admin.delete_records([place])[place].result(SECONDS_MAX)
    assert deleted.low_watermark == first
    expected = [b"%d" % number for number in range(first, COUNT)]
    with blocking.connect(servers.address) as client:
        with pytest.raises(OutOfRange):
            next(iter(client.read(topic)))
        read = client.read(topic, 0, start=first)
        assert [message.value for message in read] == expected
        consumer = client.subscribe(topic, "s", initial_position="earliest")
        found = [consumer.receive().value for _ in expected]
        consumer.close()
    assert found == expected
    if shutil.which("kcat") is not None:
        printed = kcat(servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%s\n")
        assert printed.encode().splitlines() == expected


@needs_confluent
def test_an_idempotent_producer_outlives_kills_of_the_broker(tmp_path: Path) -> None:
    count, kills = 6_000, 3
    servers = KafkaServers(tmp_path)
    with servers.running():
        topic = topic_of(servers, "t")
        producer = confluent_producer(
            servers,
            **{
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
            },
        )
        failed: list[Any] = []
        delivered = 0
        turn = threading.Event()

        def on_delivery(error: Any, _: Any) -> None:
            nonlocal delivered
            if error is not None:
                failed.append(error)
            delivered += 1
            if delivered % (count // (kills + 1)) == 0:
                turn.set()

        sent = killed = 0
        while delivered < count:
            if sent < count:
                producer.produce(topic, b"%d" % sent, on_delivery=on_delivery)
                sent += 1
            producer.poll(0 if sent < count else 0.1)
            if turn.is_set() and killed < kills:
                turn.clear()
                servers.kill(BROKER)
                servers.start(BROKER)
                killed += 1
        assert (killed, failed) == (kills, [])
        assert values_of(servers, topic) == [b"%d" % number for number in range(count)]
        servers.stop()


KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

address, count = sys.argv[1], int(sys.argv[2])
admin = KafkaAdminClient(bootstrap_servers=address)
admin.create_topics([NewTopic("python", num_partitions=1, replication_factor=1)])
producer = KafkaProducer(bootstrap_servers=address, compression_type="gzip")
for number in range(count):
    producer.send("python", b"%d" % number, key=b"k", headers=[("h", b"x")])
producer.flush()
consumer = KafkaConsumer(bootstrap_servers=address, consumer_timeout_ms=60_000)
partition = TopicPartition("python", 0)
consumer.assign([partition])
consumer.seek_to_beginning(partition)
assert consumer.end_offsets([partition]) == {partition: count}
for number in range(count):
    message = next(consumer)
    assert (message.offset, message.value) == (number, b"%d" % number), message
    assert (message.key, list(message.headers)) == (b"k", [("h", b"x")])
consumer.close()
producer.close()
"""


@needs_kafka_python
def test_kafka_python_writes_and_reads(servers: KafkaServers) -> None:
    # In a process of its own: here the name of its package is that of this folder.
    done = subprocess.run(
        [sys.executable, "-c", KAFKA_PYTHON, servers.kafka, str(COUNT)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert values_of(servers, "python") == [b"%d" % number for number in range(COUNT)]
