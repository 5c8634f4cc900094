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

from magnetar_cli.servers.kafka_port import KafkaPort, kafka_port_of, member_ports_of
from magnetar_core.clock import SystemClock
from magnetar_core.config import InvalidConfig, ListenConfig
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.process.settings import Sources
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.listener import Listener
from magnetar_kafka.nodes import Node, alone, number_of

SEVERAL = tuple(MemberAddress(name=f"broker-{n}", address=f"127.0.0.1:{n + 1}") for n in (0, 1))


def port_of(
    asked: int | None = None,
    if_free: int | None = None,
    environ: dict[str, str] | None = None,
    **settings: Any,
) -> KafkaPort | None:
    return kafka_port_of(
        {"kafka_port": asked, "kafka_port_if_free": if_free},
        Sources.load(environ or {}, ("broker", "coordinator"), None),
        broker_config(**settings),
        ListenConfig(),
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


def test_a_broker_of_several_needs_an_address_that_the_others_know() -> None:
    with pytest.raises(InvalidConfig, match="leave it unset"):
        port_of(9092, brokers=SEVERAL)
    found = port_of(if_free=9092, brokers=SEVERAL)
    assert found is not None
    assert found.ready() == {"kafka": "", "no_kafka": found.refusal}
    assert "kafka_address" in found.refusal


def listed(*external: str) -> tuple[MemberAddress, ...]:
    return tuple(
        MemberAddress(
            name=one.name,
            address=one.address,
            kafka_address=f"k{number}:909{number}",
            kafka_external_address=external[number] if external else "",
        )
        for number, one in enumerate(SEVERAL)
    )


def test_a_list_of_members_says_where_kafkas_clients_are() -> None:
    found = port_of(name="broker-1", brokers=listed())
    assert found is not None
    assert (found.config.kafka_port, found.is_optional) == (9091, False)
    nodes = found.nodes(1)
    assert nodes.by_shard(is_external=False) == [Node(1, "k0", 9090), Node(2, "k1", 9091)]
    assert nodes.own_number == 2
    with pytest.raises(InvalidConfig, match="so say it there"):
        port_of(brokers=listed(), environ={"MAGNETAR_KAFKA_ADVERTISED_ADDRESS": "elsewhere:9092"})


def test_clients_outside_are_told_other_addresses() -> None:
    external = listed("e0.example:1", "e1.example:2")
    with pytest.raises(InvalidConfig, match="set both"):
        port_of(brokers=external)
    with pytest.raises(InvalidConfig, match="set both"):
        port_of(brokers=listed(), environ={"MAGNETAR_KAFKA_EXTERNAL_PORT": "9999"})
    found = port_of(brokers=external, environ={"MAGNETAR_KAFKA_EXTERNAL_PORT": "9999"})
    assert found is not None
    nodes = found.nodes(0)
    assert nodes.by_shard(is_external=True) == [Node(1, "e0.example", 1), Node(2, "e1.example", 2)]
    assert nodes.by_shard(is_external=False)[0] == Node(1, "k0", 9090)


def test_a_member_with_etcd_needs_an_address_that_others_reach() -> None:
    assert member_ports_of(KafkaConfig(), ListenConfig()) is None
    anywhere = ListenConfig(host="0.0.0.0", allow_remote=True)
    with pytest.raises(InvalidConfig, match="kafka_advertised_address"):
        member_ports_of(KafkaConfig(kafka_port=9092), anywhere)
    told = KafkaConfig(kafka_port=9092, kafka_advertised_address="k:9092")
    assert member_ports_of(told, anywhere) is told


def test_the_number_of_a_process_is_that_of_its_address() -> None:
    numbers = {number_of(f"10.0.0.{one}:9092") for one in range(256)}
    assert len(numbers) == 256
    assert min(numbers) > 0
    assert max(numbers) < 1 << 31


def test_a_port_that_is_taken() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
            config = KafkaConfig(kafka_port=number)
            listener = Listener(
                config,
                ListenConfig(),
                SystemClock(),
                Random(1),
                CollectorRegistry(),
                nodes=alone(),
                coordinators=Coordinators(),
            )
            optional = KafkaPort(config, ListenConfig(), (), is_optional=True, refusal="")
            await optional.open(listener)
            assert optional.ready() == {"kafka": "", "no_kafka": f"port {number} is taken"}
            asked_for = KafkaPort(config, ListenConfig(), (), is_optional=False, refusal="")
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
