"""Transactions of clients of others, against real servers that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.kafka_clients.test_clients import (
    SECONDS_MAX,
    KafkaServers,
    confluent_values,
    needs_confluent,
    needs_kafka_python,
    topic_of,
    values_of,
)
from tests.system.processes import BROKER, COORDINATOR

TRANSACTIONS = 20


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    made = KafkaServers(tmp_path_factory.mktemp("kafka"))
    with made.running():
        yield made
        made.stop()


def confluent_producer(servers: KafkaServers, name: str, **settings: Any) -> Any:
    import confluent_kafka

    return confluent_kafka.Producer(
        {"bootstrap.servers": servers.kafka, "transactional.id": name, **settings}
    )


@needs_confluent
def test_librdkafka_commits_and_aborts(servers: KafkaServers) -> None:
    topics = [topic_of(servers, f"confluent-{place}") for place in "ab"]
    producer = confluent_producer(servers, "confluent")
    producer.init_transactions(SECONDS_MAX)
    expected: list[bytes] = []
    for count in range(TRANSACTIONS):
        producer.begin_transaction()
        for topic in topics:
            producer.produce(topic, b"%d" % count)
            producer.produce(topic, b"%d." % count)
        if count % 3:
            producer.commit_transaction(SECONDS_MAX)
            expected += [b"%d" % count, b"%d." % count]
        else:
            producer.abort_transaction(SECONDS_MAX)
    for topic in topics:
        assert confluent_values(servers, topic, len(expected)) == expected
        assert values_of(servers, topic) == expected


@needs_confluent
def test_librdkafka_is_fenced_by_another_instance(servers: KafkaServers) -> None:
    import confluent_kafka

    topic = topic_of(servers, "fenced")
    first, second = (confluent_producer(servers, "one") for _ in range(2))
    first.init_transactions(SECONDS_MAX)
    first.begin_transaction()
    first.produce(topic, b"lost")
    first.flush(SECONDS_MAX)
    second.init_transactions(SECONDS_MAX)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        first.commit_transaction(SECONDS_MAX)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    second.begin_transaction()
    second.produce(topic, b"kept")
    second.commit_transaction(SECONDS_MAX)
    assert confluent_values(servers, topic, 1) == [b"kept"]


@needs_confluent
@pytest.mark.parametrize("victim", [BROKER, COORDINATOR])
def test_librdkafka_goes_on_when_a_server_is_killed(servers: KafkaServers, victim: str) -> None:
    import confluent_kafka

    topics = [topic_of(servers, f"killed-{victim}-{place}") for place in "ab"]
    producer = confluent_producer(servers, f"killed-{victim}")
    producer.init_transactions(SECONDS_MAX)
    expected: list[bytes] = []
    for count in range(6):
        values = [b"%d" % count, b"%d." % count]
        while True:
            producer.begin_transaction()
            try:
                for topic in topics:
                    producer.produce(topic, values[0])
                producer.flush(SECONDS_MAX)
                if count % 2:
                    servers.kill(victim)
                    servers.start(victim)
                for topic in topics:
                    producer.produce(topic, values[1])
                producer.commit_transaction(SECONDS_MAX)
            except confluent_kafka.KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(SECONDS_MAX)
                continue
            break
        expected += values
    for topic in topics:
        assert confluent_values(servers, topic, len(expected)) == expected


@needs_kafka_python
def test_kafka_python_commits_and_aborts(servers: KafkaServers) -> None:
    import kafka

    topic = topic_of(servers, "kafka-python")
    producer = kafka.KafkaProducer(bootstrap_servers=servers.kafka, transactional_id="python")
    producer.init_transactions()
    expected: list[bytes] = []
    for count in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.send(topic, b"%d" % count)
        if count % 3:
            producer.commit_transaction()
            expected.append(b"%d" % count)
        else:
            producer.abort_transaction()
    producer.close()
    assert values_of(servers, topic) == expected
