"""A standalone cluster grows and never shrinks; its ports do not meet."""

from __future__ import annotations

import socket
from pathlib import Path
from random import SystemRandom
from typing import Any

import click
import pytest

from magnetar_cli.servers.standalone_members import (
    broker_directory,
    coordinator_directory,
    standalone_members,
)
from magnetar_cli.servers.standalone_ports import (
    FIRST,
    Ports,
    choose_ports,
    first_outgoing,
    free_ports,
)
from magnetar_core.config import InvalidConfig
from magnetar_core.membership.membership import Membership


def members(data_dir: Path, brokers: int = 1, coordinators: int = 1) -> Membership:
    ports = [
        list(range(first, first + count)) for first, count in ((1, brokers), (99, coordinators))
    ]
    return standalone_members(data_dir, "127.0.0.1", *ports)


def test_a_data_directory_keeps_its_cluster_id(tmp_path: Path) -> None:
    first = members(tmp_path)
    again = members(tmp_path)
    assert again.cluster_id == first.cluster_id
    assert again.hash == first.hash
    assert members(tmp_path / "other").cluster_id != first.cluster_id


def test_each_server_has_a_directory(tmp_path: Path) -> None:
    assert broker_directory(tmp_path, 0) == tmp_path / "broker"
    assert broker_directory(tmp_path, 1) == tmp_path / "broker-1"
    assert coordinator_directory(tmp_path, 0) == tmp_path / "coordinator-0"


def test_the_version_rises_as_a_cluster_grows(tmp_path: Path) -> None:
    versions = [
        members(tmp_path, *counts).version
        for counts in ((1, 1), (1, 1), (3, 1), (3, 1), (3, 2), (5, 4), (5, 4))
    ]
    assert versions == [1, 1, 2, 2, 3, 4, 4]
    grown = members(tmp_path, 5, 4)
    assert [broker.name for broker in grown.brokers] == [f"broker-{number}" for number in range(5)]
    assert [one.tcid for one in grown.coordinators] == [0, 1, 2, 3]
    assert members(tmp_path / "other", 3, 2).version == 1
    assert members(tmp_path / "other", 4, 2).version == 2


@pytest.mark.parametrize(
    ("counts", "advice"),
    [
        ((2, 2), "start with --brokers 3 --coordinators 2"),
        ((3, 1), "start with --brokers 3 --coordinators 2"),
        ((4, 1), "start with --brokers 4 --coordinators 2"),
    ],
    ids=["brokers", "coordinators", "one-more-and-one-less"],
)
def test_a_cluster_does_not_shrink(tmp_path: Path, counts: tuple[int, int], advice: str) -> None:
    before = members(tmp_path, 3, 2)
    with pytest.raises(InvalidConfig, match=advice):
        members(tmp_path, *counts)
    assert members(tmp_path, 3, 2).hash == before.hash


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"version": 0, "brokers": 1, "coordinators": 1}',
        '{"version": "2"}',
        '{"brokers": true}',
        '{"size": 3}',
    ],
    ids=["empty", "list", "torn", "zero", "text", "bool", "unknown"],
)
def test_a_damaged_file_is_told_of_and_never_guessed(tmp_path: Path, text: str) -> None:
    members(tmp_path, 3)
    (tmp_path / "members.json").write_text(text)
    with pytest.raises(InvalidConfig, match=r"members\.json is damaged; write into it"):
        members(tmp_path, 3)


def ports(**options: Any) -> Ports:
    asked: dict[str, Any] = dict.fromkeys(
        ("port", "broker_port", "coordinator_port", "metrics_port", "console_port", "kafka_port")
    )
    return choose_ports({"brokers": 1, "coordinators": 1, **asked, **options}, "127.0.0.1")


def test_the_ports_of_one_of_each_are_as_they_always_were() -> None:
    assert ports() == Ports(
        brokers=[6650], coordinators=[6651], metrics=[9650, 9651], console=8650, kafka=[9092]
    )
    assert ports(port=7000) == Ports(
        brokers=[7000], coordinators=[7001], metrics=[7002, 7003], console=8650, kafka=[9092]
    )
    one = ports(broker_port=7000, metrics_port=8000)
    assert one == Ports(
        brokers=[7000], coordinators=[6651], metrics=[8000, 8001], console=8650, kafka=[9092]
    )


def test_ports_follow_each_other() -> None:
    several = {"brokers": 3, "coordinators": 2}
    assert ports(**several) == Ports(
        brokers=[6650, 6651, 6652],
        coordinators=[6653, 6654],
        metrics=[9650, 9651, 9652, 9653, 9654],
        console=8650,
        kafka=[9092, 9093, 9094],
    )
    assert ports(**several, port=7000) == Ports(
        brokers=[7000, 7001, 7002],
        coordinators=[7003, 7004],
        metrics=[7005, 7006, 7007, 7008, 7009],
        console=8650,
        kafka=[9092, 9093, 9094],
    )
    chosen = ports(**several, port=0)
    everything = [*chosen.brokers, *chosen.coordinators, *chosen.metrics, *chosen.kafka]
    assert len(set(everything)) == 13
    assert min(everything) > 1_024
    # Nobody has to know it beforehand.
    assert chosen.console == 0
    assert ports(port=0, console_port=8000).console == 8000
    assert ports(port=0, kafka_port=8000).kafka == [8000]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"port": 65_530, "brokers": 3}, "choose a lower port"),
        ({"broker_port": 6_649, "coordinator_port": 6_650, "brokers": 2}, "have port 6650"),
        ({"broker_port": 6_652, "brokers": 2}, "have port 6652"),
    ],
    ids=["high", "given", "default"],
)
def test_ports_that_cannot_be_are_refused(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(click.UsageError, match=advice):
        ports(**options)


def test_the_id_of_data_in_an_object_store_outlives_the_data_directory(tmp_path: Path) -> None:
    def cluster_id(directory: str, store: str) -> str:
        found = standalone_members(tmp_path / directory, "127.0.0.1", [1], [2], store=store)
        return found.cluster_id

    first = cluster_id("data", "s3://bucket/prefix")
    assert cluster_id("another", "s3://bucket/prefix") == first
    assert cluster_id("third", "s3://bucket/other") != first


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_no_connection_gets_a_port_that_was_chosen_for_a_server(host: str) -> None:
    ports = list(free_ports(host, 200))
    assert len(set(ports)) == 200
    assert all(FIRST <= port < max(FIRST + 10_000, first_outgoing()) for port in ports)


def test_a_port_with_a_listener_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    randrange = SystemRandom.randrange

    def draw(self: SystemRandom, first: int, below: int) -> int:
        # Later draws are by chance: any fixed port may have a listener of somebody else.
        drawn.append(port if len(drawn) < 2 else randrange(self, first, below))
        return drawn[-1]

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(SystemRandom, "randrange", draw)
        assert list(free_ports("127.0.0.1", 1)) == [drawn[-1]]
    assert drawn[:2] == [port, port]
    assert drawn[-1] != port
