"""Kafka's own client, in Java: version 4 has transactions of KIP-890, and 3.9 the older ones.

It is left out without Java, or if Maven has not fetched the client:
mvn dependency:get -Dartifact=org.apache.kafka:kafka-clients:4.1.0
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka_clients.test_clients import (
    SECONDS_MAX,
    KafkaServers,
    topic_of,
    values_of,
)
from tests.system.processes import BROKER, COORDINATOR

REPOSITORY = Path.home() / ".m2/repository/org"
SOURCE = Path(__file__).with_name("Transactions.java")
TRANSACTIONS = 12


def jars(major: str) -> list[Path]:
    """Return the newest client of a version, and what it needs; nothing if it is not there."""
    clients = sorted((REPOSITORY / "apache/kafka/kafka-clients").glob(f"{major}.*/*.jar"))
    logging = sorted((REPOSITORY / "slf4j/slf4j-api").glob("1.7.*/*.jar"))
    return [clients[-1], logging[-1]] if clients and logging else []


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    made = KafkaServers(tmp_path_factory.mktemp("kafka"))
    with made.running():
        yield made
        made.stop()


@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler")
@pytest.mark.parametrize("victim", ["", BROKER, COORDINATOR])
@pytest.mark.parametrize("major", ["4", "3"])
def test_transactions_of_kafkas_own_client(
    servers: KafkaServers, major: str, victim: str, request: pytest.FixtureRequest
) -> None:
    found = jars(major)
    if not found:
        pytest.skip(f"kafka-clients {major} is not there")
    name = f"java-{major}-{victim}"
    topics = [topic_of(servers, f"{name}{place}") for place in "ab"]
    command = ["java", "-cp", ":".join(map(str, found)), str(SOURCE), servers.kafka, name, *topics]
    with subprocess.Popen(
        [*command, str(TRANSACTIONS), *(["kills"] if victim else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as java:
        request.addfinalizer(java.kill)
        assert java.stdin is not None
        assert java.stdout is not None
        kills, last = 0, ""
        for line in java.stdout:
            last = line.strip()
            if last == "kill":
                servers.kill(victim)
                java.stdin.write("\n")
                java.stdin.flush()
                servers.start(victim)
                kills += 1
        assert java.wait(SECONDS_MAX) == 0
    assert last == "done"
    assert kills == (TRANSACTIONS // 3 if victim else 0)
    committed = [number for number in range(TRANSACTIONS) if number % 3]
    first = [b"%d%s" % (number, end) for number in committed for end in (b"", b".")]
    assert values_of(servers, topics[0]) == first
    assert values_of(servers, topics[1]) == [b"%d" % number for number in committed]
