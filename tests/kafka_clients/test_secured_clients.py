"""librdkafka against servers with TLS, tokens and an access file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.access.world import write_access
from tests.certificates import Authority
from tests.core.ports import free_ports
from tests.kafka_clients.test_clients import needs_confluent
from tests.system.processes import BROKER, COORDINATOR, Servers
from tests.tokens import Maker, jwks

from magnetar_core.clock import SystemClock

SECONDS_MAX = 60
ROLES = """
[[roles.writer]]
transactional_id = "id-*"
allow = ["WRITE"]
[[roles.writer]]
group = "not used"
allow = ["READ"]
[[roles.writer]]
topic = "t-*"
allow = ["CREATE", "WRITE", "READ"]
"""


class SecuredServers(Servers):
    """A broker that asks for tokens over TLS, and a coordinator."""

    def __init__(self, directory: Path) -> None:
        self.tokens_made = 0
        self.authority, self.maker = Authority(directory / "authority"), Maker()
        server = self.authority.sign("server")
        keys, server_token = directory / "keys.json", directory / "server.token"
        keys.write_text(jwks(self.maker))
        server_token.write_text(self.maker.token("server"))
        access = write_access(
            directory / "access.toml",
            {"server": ["coordinator", "broker"], "alice": ["writer"], "bob": []},
            ROLES,
        )
        (port,) = free_ports(1)
        self.kafka = f"127.0.0.1:{port}"
        settings = {
            "MAGNETAR_KAFKA_PORT": str(port),
            "MAGNETAR_TLS_CERTIFICATE_FILE": server.certificate_file,
            "MAGNETAR_TLS_KEY_FILE": server.key_file,
            "MAGNETAR_TLS_CA_FILE": self.authority.ca_file,
            "MAGNETAR_TOKEN_KEYS_FILE": str(keys),
            "MAGNETAR_TOKEN_FILE": str(server_token),
            "MAGNETAR_ACCESS_FILE": access.access_file,
        }
        super().__init__(directory / "servers", settings, {BROKER: 1, COORDINATOR: 1})

    def client(self, name: str, mechanism: str, *, lasts_s: float = 600) -> dict[str, Any]:
        """The settings of a client."""
        common: dict[str, Any] = {
            "bootstrap.servers": self.kafka,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority.ca_file,
            "sasl.mechanism": mechanism,
        }
        if mechanism == "PLAIN":
            token = self.maker.token(name, lasts_s=lasts_s)
            return {**common, "sasl.username": "anything", "sasl.password": token}

        def fresh(_: str) -> tuple[str, float]:
            self.tokens_made += 1
            ends_s = SystemClock().wall_ms() / 1_000 + lasts_s
            return self.maker.token(name, lasts_s=lasts_s), ends_s

        return {**common, "oauth_cb": fresh}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServers]:
    made = SecuredServers(tmp_path_factory.mktemp("kafka"))
    with made.running():
        yield made
        made.stop()


def delivered(settings: dict[str, Any], topic: str, *values: bytes) -> list[Any]:
    """Send values; return the error of each, None for those that were stored."""
    from confluent_kafka import Producer

    producer = Producer({**settings, "message.timeout.ms": 10_000})
    errors: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
    producer.flush(SECONDS_MAX)
    return errors


@needs_confluent
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_tokens_and_rights(servers: SecuredServers, mechanism: str) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    alice, bob = servers.client("alice", mechanism), servers.client("bob", mechanism)
    admin = AdminClient(alice)
    admin.poll(0)
    topic = f"t-{mechanism}"
    admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS_MAX)
    assert delivered(alice, topic, b"a", b"b") == [None, None]
    (error,) = delivered(bob, topic, b"c")
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer({**alice, "group.id": "not used", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = consumer.consume(2, timeout=SECONDS_MAX)
    assert [message.value() for message in read] == [b"a", b"b"]
    consumer.close()
    not_allowed = AdminClient(bob)
    not_allowed.poll(0)
    with pytest.raises(KafkaException) as raised:
        not_allowed.create_topics([NewTopic("u", 1)])["u"].result(SECONDS_MAX)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@needs_confluent
def test_transactions_of_those_who_may(servers: SecuredServers) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    alice = servers.client("alice", "PLAIN")
    admin = AdminClient(alice)
    admin.poll(0)
    admin.create_topics([NewTopic("t-txn", 1)])["t-txn"].result(SECONDS_MAX)
    assert delivered(alice, "t-txn", b"plain") == [None]
    producer = Producer({**alice, "transactional.id": "id-a", "transaction.timeout.ms": 10_000})
    producer.init_transactions(SECONDS_MAX)
    for ends, value in ((producer.abort_transaction, b"a"), (producer.commit_transaction, b"b")):
        producer.begin_transaction()
        producer.produce("t-txn", value)
        ends(SECONDS_MAX)
    consumer = Consumer({**alice, "group.id": "not used", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t-txn", 0, 0)])
    assert [one.value() for one in consumer.consume(2, timeout=SECONDS_MAX)] == [b"plain", b"b"]
    consumer.close()
    for name, transactional_id in (("alice", "other"), ("bob", "id-a")):
        refused = Producer({**servers.client(name, "PLAIN"), "transactional.id": transactional_id})
        with pytest.raises(KafkaException) as caught:
            refused.init_transactions(SECONDS_MAX)
        code = caught.value.args[0].code()
        assert code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@needs_confluent
def test_a_client_that_shows_new_tokens_in_time_goes_on(servers: SecuredServers) -> None:
    settings = servers.client("alice", "OAUTHBEARER", lasts_s=4)
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(settings)
    admin.poll(0)
    admin.create_topics([NewTopic("t-renewed", 1)])["t-renewed"].result(SECONDS_MAX)
    failed: list[Any] = []
    producer = Producer({**settings, "message.timeout.ms": 20_000})
    count = 0

    def on_delivery(error: Any, _: Any) -> None:
        nonlocal count
        count += 1
        if error is not None:
            failed.append(error)

    # For three lives of a token.
    sent, before = 0, servers.tokens_made
    while servers.tokens_made < before + 4:
        producer.produce("t-renewed", b"%d" % sent, on_delivery=on_delivery)
        sent += 1
        producer.poll(0.1)
    producer.flush(SECONDS_MAX)
    assert (count, failed) == (sent, [])
