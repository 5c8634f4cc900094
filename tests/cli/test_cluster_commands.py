"""`magnetar cluster` against etcd, and against a cluster with a list of members."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result
from tests.cli.running import Standalone
from tests.core.ports import free_ports
from tests.etcd_server import EtcdServer
from tests.json_output import read_json
from tests.waiting import wait_until

from magnetar_cli.cluster.changes import present_view
from magnetar_cli.program import cli
from magnetar_cluster.directory.view import (
    BROKER,
    COORDINATOR,
    Format,
    Member,
    MemberName,
    ShardName,
    View,
)
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_settings import EtcdSettings

Answer = TypeVar("Answer")

FIXED = Format(broker_shards=2, coordinator_shards=1)
A, B = MemberName(BROKER, "a"), MemberName(BROKER, "b")
FIRST, SECOND = FIXED.shards(BROKER)
LEASE_MS = 600_000


class EtcdCluster:
    """Members that never do anything by themselves, and the command line beside them."""

    def __init__(self, endpoints: tuple[str, ...], cluster_id: str) -> None:
        self._endpoints = endpoints
        self.cluster_id = cluster_id
        self.leases: dict[MemberName, int] = {}
        self.options = ("--etcd", ",".join(endpoints), "--cluster-id", cluster_id)

    def ask(self, work: Callable[[EtcdDirectory], Awaitable[Answer]]) -> Answer:
        async def run() -> Answer:
            directory = EtcdDirectory(EtcdSettings(endpoints=self._endpoints), self.cluster_id)
            try:
                return await work(directory)
            finally:
                await directory.close()

        return asyncio.run(run())

    def join(self, name: MemberName, address: str) -> None:
        async def work(directory: EtcdDirectory) -> None:
            self.leases[name] = await directory.grant(LEASE_MS)
            member = Member(address=address, version="9.9")
            assert await directory.join(self.leases[name], name, member)

        self.ask(work)

    def claim(self, name: MemberName, shard: ShardName) -> None:
        lease = self.leases[name]
        assert self.ask(lambda directory: directory.claim(lease, shard, name.name))

    def hand_over(self, shard: ShardName, to: MemberName) -> None:
        epoch = self.view().shard_owners[shard].epoch
        self.ask(lambda directory: directory.release(shard, epoch))
        self.claim(to, shard)

    def view(self) -> View:
        return self.ask(present_view)

    def run(self, *arguments: str, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["cluster", *arguments, *self.options])
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output
        return result

    def json(self, *arguments: str, status: int = 0) -> Any:
        return read_json(
            f"cluster {arguments[0]}", self.run(*arguments, "--json", status=status).stdout
        )

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "magnetar_cli", "cluster", *arguments, *self.options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def cluster(
    etcd_server: EtcdServer, request: pytest.FixtureRequest, worker_id: str
) -> Iterator[EtcdCluster]:
    """Two brokers with a shard each; nobody has the coordinator's."""
    made = EtcdCluster(etcd_server.endpoints, f"{request.node.name}-{worker_id}")
    assert made.ask(lambda directory: directory.format(FIXED)) == FIXED
    made.join(A, "127.0.0.1:1")
    made.join(B, "127.0.0.1:2")
    made.claim(A, FIRST)
    made.claim(B, SECOND)
    yield made
    for lease in made.leases.values():
        made.ask(lambda directory, lease=lease: directory.revoke(lease))  # type: ignore[misc]


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, error = process.communicate(timeout=30)
    return process.returncode, out, error


def test_members_and_shards_are_listed(cluster: EtcdCluster) -> None:
    lines = [line.split() for line in cluster.run("members").stdout.splitlines()]
    assert lines == [
        ["KIND", "MEMBER", "ADDRESS", "VERSION", "SHARDS", "STATE"],
        ["broker", "a", "127.0.0.1:1", "9.9", "0", "alive"],
        ["broker", "b", "127.0.0.1:2", "9.9", "1", "alive"],
    ]
    found = cluster.json("shards", status=1)
    assert [(one["name"], one["owner"], one["address"]) for one in found] == [
        ("broker-0", "a", "127.0.0.1:1"),
        ("broker-1", "b", "127.0.0.1:2"),
        ("coordinator-0", "", ""),
    ]
    assert found[0]["epoch"] == cluster.view().shard_owners[FIRST].epoch
    # It would be for ever if somebody waited for the shard that nobody can have.
    cluster.join(MemberName(COORDINATOR, "c"), "127.0.0.1:3")
    cluster.claim(MemberName(COORDINATOR, "c"), ShardName(COORDINATOR, 0))
    cluster.run("shards")


def test_a_drain_waits_until_the_member_has_no_shard(cluster: EtcdCluster) -> None:
    draining = cluster.started("drain", "a")
    wait_until(lambda: A in cluster.view().draining)
    assert cluster.json("shards", status=1)[0]["wished"] == "b"
    assert cluster.json("members")[0]["draining"]
    cluster.hand_over(FIRST, B)
    status, out, error = ended(draining)
    assert (status, out) == (0, "a has no shards\n")
    assert error.splitlines()[-1] == "drained a: 1 of 1 shards (100 %)"
    assert cluster.run("drain", "a", "--undo").stdout == "a may have shards again\n"
    assert cluster.run("drain", "a", "--undo").stdout == "a was not draining\n"


def test_a_drain_may_be_too_slow_or_impossible(cluster: EtcdCluster) -> None:
    late = cluster.run("drain", "a", "--timeout", "100ms", status=10)
    assert "a drains, but it is not done" in late.output
    assert A in cluster.view().draining
    refused = cluster.run("drain", "b", status=1)
    assert "start one first" in refused.output
    assert B not in cluster.view().draining
    assert cluster.run("drain", "b", "--no-wait").stdout == "b is draining\n"
    assert B in cluster.view().draining


def test_a_shard_moves_and_comes_back(cluster: EtcdCluster) -> None:
    moving = cluster.started("move", "broker-0", "b")
    wait_until(lambda: cluster.view().pins == {FIRST: "b"})
    assert cluster.json("shards", status=1)[0]["pinned"] == "b"
    cluster.hand_over(FIRST, B)
    assert ended(moving)[:2] == (0, "b has broker-0\n")
    balancing = cluster.started("rebalance")
    wait_until(lambda: not cluster.view().pins)
    wished = {one["name"]: one["wished"] for one in cluster.json("shards", status=1)}
    (goes,) = [shard for shard in (FIRST, SECOND) if wished[str(shard)]]
    cluster.hand_over(goes, A)
    status, out, _ = ended(balancing)
    assert (status, out) == (0, "took 1 pin back; every shard is where it belongs\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("drain", "c"), "no member of the cluster is called c; it has a, b"),
        (("drain", "a", "--kind", "coordinator"), "no coordinator of the cluster is called a"),
        (("move", "broker-2", "a"), "no shard broker-2; it has broker-0 to broker-1"),
        (("move", "broker-0", "c"), "called c; it has a, b"),
        (("move", "coordinator-0", "a"), "no coordinator of the cluster is called a"),
    ],
)
def test_unknown_names_are_told_and_change_nothing(
    cluster: EtcdCluster, arguments: tuple[str, ...], told: str
) -> None:
    before = cluster.view()
    assert told in cluster.run(*arguments, status=1).output
    assert cluster.view().draining == before.draining
    assert cluster.view().pins == before.pins


def test_a_cluster_that_is_not_there_is_told(etcd_server: EtcdServer) -> None:
    other = EtcdCluster(etcd_server.endpoints, "nobody-made-it")
    for command in (("members",), ("shards",), ("drain", "a"), ("rebalance",)):
        assert "--cluster-id" in other.run(*command, status=1).output
    (port,) = free_ports(1)
    away = EtcdCluster((f"127.0.0.1:{port}",), "c")
    assert "is etcd running?" in away.run("shards", status=10).output
    assert "HOST:PORT" in EtcdCluster(("nonsense",), "c").run("shards", status=1).output


def test_the_command_line_alone_is_enough(cluster: EtcdCluster) -> None:
    """Of the packages of servers, it needs none."""
    without = (
        "import sys; sys.modules.update(dict.fromkeys(("
        "'pydantic', 'rocksdict', 'prometheus_client', 'psutil', 'grpc_health', 'obstore')));"
        "import magnetar_cli; magnetar_cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", without, "cluster", "members", "--json", *cluster.options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads(done.stdout)] == ["a", "b"]


def test_settings_of_etcd_come_from_the_environment(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGNETAR_ETCD_CA_FILE", "/nowhere/ca.pem")
    assert "/nowhere/ca.pem" in cluster.run("members", status=1).output


def test_a_cluster_with_a_list_of_members_is_shown_without_etcd(standalone: Standalone) -> None:
    members = standalone.json("cluster", "members")
    assert [(member["kind"], member["name"], member["shards"]) for member in members] == [
        ("broker", "broker-0", ["broker-0"]),
        ("coordinator", "coordinator-0", ["coordinator-0"]),
    ]
    shards = standalone.json("cluster", "shards")
    assert [(shard["name"], shard["owner"], shard["epoch"]) for shard in shards] == [
        ("broker-0", "broker-0", None),
        ("coordinator-0", "coordinator-0", None),
    ]
    refused = standalone.run("cluster", "drain", "broker-0", status=2)
    assert b"keep their shards for good" in refused.stderr


def test_the_lag_of_a_shard_is_what_is_not_acknowledged(standalone: Standalone) -> None:
    standalone.run("topics", "create", "lagging")
    standalone.run("consume", "lagging", "--subscription", "s", "--until-end")
    standalone.run("produce", "lagging", stdin=b"a\nb\nc\n")
    table = standalone.lines("cluster", "shards", "--lag")
    assert [line.split()[-1] for line in table] == ["LAG", "3", "-"]
