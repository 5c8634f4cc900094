"""Servers whose shards change their owner: what they are told, and what they refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from magnetar_broker.config import BrokerConfig
from magnetar_cli.program import cli
from magnetar_cli.servers import member_process
from magnetar_cli.servers.member_config import MemberConfig
from magnetar_cli.servers.member_process import MemberProcess, Place, member_of, place_of
from magnetar_cli.servers.owner_options import Owning, servers_of, settings_of_cluster
from magnetar_cli.servers.shard_servers import ShardKind
from magnetar_cluster.directory.view import Format, Member, View
from magnetar_cluster.host_settings import HostSettings
from magnetar_cluster.owners_book import OwnersBook
from magnetar_core.config import InvalidConfig, ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.recording.config import HistoryConfig
from magnetar_core.security.link_security import PLAIN
from magnetar_core.traces.config import TracesConfig
from magnetar_storage.store_config import StoreConfig

FIXED = Format(broker_shards=8, coordinator_shards=2)


def never(_place: Place) -> ShardKind:
    raise AssertionError


def refusal(*arguments: str, environ: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(cli, arguments, env=environ or {})
    assert result.exit_code == 1, result.output
    return re.sub(r"\s+", " ", result.output)


@pytest.mark.parametrize("kind", ["broker", "coordinator"])
def test_etcd_needs_an_object_store(kind: str) -> None:
    assert "with --store s3://BUCKET/PREFIX" in refusal(kind, "--etcd", "127.0.0.1:1")
    environ = {"MAGNETAR_ETCD": "127.0.0.1:1"}
    assert "start without --etcd" in refusal(kind, environ=environ)


@pytest.mark.parametrize("owning", [[], ["--etcd", "127.0.0.1:1"]])
def test_what_the_operating_system_has_is_not_in_an_object_store(
    owning: list[str], tmp_path: Path
) -> None:
    arguments = ["broker", "--store", f"file://{tmp_path}", "--durability", "os", *owning]
    assert "leave durability at synced" in refusal(*arguments)


@pytest.mark.parametrize("kind", ["broker", "coordinator"])
def test_a_list_of_members_and_etcd_exclude_each_other(kind: str, tmp_path: Path) -> None:
    environ = {
        "MAGNETAR_ETCD": "127.0.0.1:1",
        "MAGNETAR_STORE": f"file://{tmp_path}",
        "MAGNETAR_BROKERS": "broker-0=127.0.0.1:1",
        "MAGNETAR_COORDINATORS": "coordinator-0=127.0.0.1:2",
    }
    assert "start without one of them" in refusal(kind, environ=environ)


def test_others_have_to_be_able_to_reach_it(tmp_path: Path) -> None:
    arguments = (
        *("broker", "--etcd", "127.0.0.1:1", "--store", f"file://{tmp_path}"),
        *("--host", "0.0.0.0", "--allow-remote"),
    )
    assert "--advertise HOST:PORT" in refusal(*arguments)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"broker_shards": 8}, "give both"),
        ({"coordinator_shards": 8}, "give both"),
        ({"broker_shards": 1 << 12, "coordinator_shards": 1}, "at most 2048"),
        ({"broker_shards": 1, "coordinator_shards": -1}, "negative"),
        ({"advertised_address": "host"}, "HOST:PORT"),
        ({"advertised_address": "host:0"}, "port 0"),
        ({"external_address": "host"}, "HOST:PORT"),
        ({"external_address": "host:0"}, "port 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        MemberConfig(etcd="127.0.0.1:1", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"etcd": ","}, "endpoint"),
        ({"etcd": "host"}, "HOST:PORT"),
        ({"etcd": "h:1", "etcd_ca_file": "/nowhere"}, "cannot be read"),
        ({"etcd": "h:1", "etcd_password_file": __file__}, "needs a user"),
    ],
)
def test_etcd_that_cannot_be_reached_so_is_refused(
    settings: dict[str, str], complaint: str
) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        MemberConfig(**settings).etcd_settings(3_000)  # type: ignore[arg-type]


def test_etcd_is_given_up_soon_enough_for_another_of_its_members() -> None:
    settings = MemberConfig(etcd=" a:1 , b:2,").etcd_settings(3_000)
    assert settings.endpoints == ("a:1", "b:2")
    assert 2 * settings.endpoint_timeout_ms <= 3_000 // 3
    assert settings.call_timeout_ms <= 3_000 * 2 // 3


def test_a_new_cluster_has_to_be_told_how_many_shards_it_has() -> None:
    some = MemberConfig(broker_shards=8, coordinator_shards=2)
    none = MemberConfig()
    assert some.wanted_format == FIXED
    assert none.wanted_format is None
    for one in (some, none):
        assert one.check_format(FIXED) == FIXED
    with pytest.raises(InvalidConfig, match="--broker-shards"):
        none.check_format(None)
    with pytest.raises(InvalidConfig, match="start with --broker-shards 9 --coordinator-shards 2"):
        some.check_format(Format(broker_shards=9, coordinator_shards=2))


def test_the_identity_of_a_cluster_is_its_id_and_its_shards() -> None:
    settings = settings_of_cluster("orders", FIXED)
    assert settings["cluster_id"] == "orders"
    assert settings["membership_version"] == 1
    hashes = {
        settings_of_cluster(name, one)["cluster_hash"]
        for name in ("orders", "invoices")
        for one in (FIXED, FIXED, Format(broker_shards=8, coordinator_shards=3))
    }
    assert len(hashes) == 4
    brokers, coordinators = servers_of(FIXED)
    assert [broker.address for broker in brokers[:2]] == ["broker-0", "broker-1"]
    assert [(coordinator.name, coordinator.tcid) for coordinator in coordinators] == [
        ("coordinator-0", 0),
        ("coordinator-1", 1),
    ]


@pytest.mark.parametrize("kind", ["broker", "coordinator"])
@pytest.mark.parametrize("source", ["option", "variable", "file"])
def test_where_clients_outside_reach_a_member_may_be_said_in_each_place(
    kind: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[MemberProcess] = []
    monkeypatch.setattr(member_process, "run", started.append)
    arguments = [kind, "--etcd", "127.0.0.1:1", "--store", f"file://{tmp_path}"]
    environ: dict[str, str] = {}
    if source == "option":
        arguments += ["--external-address", "outside:1"]
    elif source == "variable":
        environ["MAGNETAR_EXTERNAL_ADDRESS"] = "outside:1"
    else:
        file = tmp_path / "magnetar.toml"
        file.write_text(f'[{kind}]\nexternal_address = "outside:1"\n')
        environ["MAGNETAR_CONFIG_FILE"] = str(file)
    result = CliRunner().invoke(cli, arguments, env=environ)
    assert result.exit_code == 0, result.output
    (process,) = started
    member = member_of(process, "10.0.0.1:5")
    assert (member.address, member.external_address) == ("10.0.0.1:5", "outside:1")
    place = place_of(process, FIXED, member, OwnersBook(View))
    assert place.broker.external_address == "outside:1"


def test_what_shards_know_of_the_cluster_comes_from_etcd() -> None:
    process = MemberProcess(
        kind="broker",
        service="Broker",
        name="a",
        cluster_id="orders",
        owning=Owning(
            access=AccessConfig(),
            config=MemberConfig(etcd="127.0.0.1:1"),
            host=HostSettings(),
            listen=ListenConfig(),
            traces=TracesConfig(),
            history=HistoryConfig(),
            store=StoreConfig(store="s3://bucket/prefix"),
            links=PLAIN,
        ),
        # As a variable that was meant for a broker with a list of members.
        broker=BrokerConfig(name="broker-of-a-list", external_address="of-a-list:1"),
        kind_of=never,
    )
    member = Member(address="a:1", external_address="outside:1")
    place = place_of(process, FIXED, member, OwnersBook(View))
    assert place.identity == settings_of_cluster("orders", FIXED)
    assert place.broker == BrokerConfig(
        name="broker-0",
        address="a:1",
        external_address="outside:1",
        brokers=servers_of(FIXED)[0],
        coordinators=servers_of(FIXED)[1],
        **settings_of_cluster("orders", FIXED),
    )
