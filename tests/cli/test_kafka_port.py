"""Whether a broker opens a port for Kafka's clients, and what it says if it does not."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.cli.running import running_standalone
from tests.configs import broker_config
from tests.kafka_clients.harness import no_coordinators

from magnetar_cli.servers.kafka_port import KafkaPort, kafka_port_of, refuse_kafka_port
from magnetar_core.config import InvalidConfig, ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.process.settings import Sources
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.listener import Listener

SEVERAL = tuple(MemberAddress(name=f"broker-{n}", address=f"127.0.0.1:{n + 1}") for n in (0, 1))


def port_of(
    asked: int | None = None,
    if_free: int | None = None,
    environ: dict[str, str] | None = None,
    access: AccessConfig | None = None,
    **settings: Any,
) -> KafkaPort | None:
    return kafka_port_of(
        {"kafka_port": asked, "kafka_port_if_free": if_free},
        Sources.load(environ or {}, ("broker", "coordinator"), None),
        broker_config(**settings),
        ListenConfig(),
        access or AccessConfig(),
    )


def test_there_is_no_port_unless_it_is_asked_for() -> None:
    assert port_of() is None
    found = port_of(if_free=9092)
    assert found is not None
    assert (found.config.kafka_port, found.is_optional, found.refusal) == (9092, True, "")
    for found in (
        port_of(9093, 9092),
        port_of(if_free=9092, environ={"MAGNETAR_KAFKA_PORT": "9093"}),
    ):
        assert found is not None
        assert (found.config.kafka_port, found.is_optional) == (9093, False)


@pytest.mark.parametrize(
    "given",
    [
        {"access": AccessConfig(server_principals="broker-0")},
        {"access": AccessConfig(audit_file="audit.log")},
        {"brokers": SEVERAL},
    ],
)
def test_clients_of_kafka_are_not_let_past_what_they_cannot_show(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="leave it unset"):
        port_of(9092, **given)
    found = port_of(if_free=9092, **given)
    assert found is not None
    assert found.told() == {"kafka": "", "no_kafka": found.refusal}
    assert found.refusal


def test_shards_that_move_have_none() -> None:
    sources = Sources.load({}, ("broker", "coordinator"), None)
    refuse_kafka_port({"kafka_port": None}, sources)
    with pytest.raises(InvalidConfig, match="without --etcd"):
        refuse_kafka_port({"kafka_port": 9092}, sources)


def test_a_port_that_is_taken() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
            config = KafkaConfig(kafka_port=number)
            listener = Listener(
                config,
                Random(1),
                CollectorRegistry(),
                node_id=1,
                coordinators=no_coordinators(),
            )
            optional = KafkaPort(config, ListenConfig(), is_optional=True, refusal="")
            await optional.open(listener)
            assert optional.told() == {"kafka": "", "no_kafka": f"port {number} is taken"}
            asked_for = KafkaPort(config, ListenConfig(), is_optional=False, refusal="")
            with pytest.raises(InvalidConfig, match="choose another"):
                await asked_for.open(listener)

    asyncio.run(scenario())


def test_standalone_says_where_kafkas_clients_are_answered(tmp_path: Path) -> None:
    with running_standalone(tmp_path) as standalone:
        ready = json.loads(standalone.ready_file.read_text())
        host, _, port = ready["broker"]["kafka"].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30):
            pass
    with running_standalone(tmp_path, "--no-kafka") as standalone:
        assert json.loads(standalone.ready_file.read_text())["broker"]["kafka"] == ""
