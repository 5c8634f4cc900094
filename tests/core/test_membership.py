"""The cluster's members: read from a file or the environment, compared by hash."""

from dataclasses import replace
from pathlib import Path

import pytest

from magnetar_core.config import InvalidConfig
from magnetar_core.membership import membership
from magnetar_core.membership.membership import CoordinatorMember, Member, Membership
from magnetar_core.membership.placement import SHARDS_MAX

TEXT = """
cluster_id = "orders"
version = 3

[[brokers]]
name = "broker-0"
address = "10.0.0.1:6650"

[[brokers]]
name = "broker-1"
address = "10.0.0.2:6650"

[[coordinators]]
name = "coordinator-0"
address = "10.0.0.1:6651"
tcid = 0
"""

MEMBERSHIP = Membership(
    cluster_id="orders",
    version=3,
    brokers=(
        Member(name="broker-0", address="10.0.0.1:6650"),
        Member(name="broker-1", address="10.0.0.2:6650"),
    ),
    coordinators=(CoordinatorMember(name="coordinator-0", address="10.0.0.1:6651", tcid=0),),
)


def test_a_file_and_the_environment_mean_the_same(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(TEXT)
    variables = {
        "MAGNETAR_CLUSTER_ID": "orders",
        "MAGNETAR_CLUSTER_VERSION": "3",
        "MAGNETAR_BROKERS": "broker-0=10.0.0.1:6650, broker-1=10.0.0.2:6650",
        "MAGNETAR_COORDINATORS": "coordinator-0=10.0.0.1:6651",
    }
    assert membership.load({}, file) == MEMBERSHIP
    assert membership.load({"MAGNETAR_CLUSTER_FILE": str(file)}) == MEMBERSHIP
    assert membership.load(variables) == MEMBERSHIP
    assert membership.load({}) is None
    moving = replace(MEMBERSHIP, stable_addresses=False)
    for one in (MEMBERSHIP, moving):
        assert membership.load(membership.to_environment(one)) == one


def test_external_addresses_are_for_clients_alone(tmp_path: Path) -> None:
    """Servers that are told them, and servers that are not, are of one cluster."""
    text = TEXT.replace(
        'address = "10.0.0.2:6650"',
        'address = "10.0.0.2:6650"\nexternal_address = "broker.example.org:7650"',
    ).replace("tcid = 0", 'tcid = 0\nexternal_address = "broker.example.org:7651"')
    read = membership.from_toml(text)
    assert [broker.external_address for broker in read.brokers] == ["", "broker.example.org:7650"]
    assert read.coordinators[0].external_address == "broker.example.org:7651"
    assert read.hash == MEMBERSHIP.hash
    variables = {
        **membership.to_environment(MEMBERSHIP),
        "MAGNETAR_EXTERNAL_ADDRESSES": "broker-1=broker.example.org:7650,"
        "coordinator-0=broker.example.org:7651",
    }
    assert membership.load(variables) == read
    assert membership.load(membership.to_environment(read)) == read


def test_a_list_may_say_where_kafkas_clients_reach_brokers() -> None:
    text = TEXT.replace(
        'address = "10.0.0.2:6650"',
        'address = "10.0.0.2:6650"\nkafka_address = "10.0.0.2:9092"\n'
        'kafka_external_address = "kafka.example.org:9093"',
    )
    read = membership.from_toml(text)
    assert [one.kafka_address for one in read.brokers] == ["", "10.0.0.2:9092"]
    assert [one.kafka_external_address for one in read.brokers] == ["", "kafka.example.org:9093"]
    assert read.hash == MEMBERSHIP.hash
    variables = {
        **membership.to_environment(MEMBERSHIP),
        "MAGNETAR_KAFKA_ADDRESSES": "broker-1=10.0.0.2:9092",
        "MAGNETAR_KAFKA_EXTERNAL_ADDRESSES": "broker-1=kafka.example.org:9093",
    }
    assert membership.load(variables) == read
    assert membership.load(membership.to_environment(read)) == read


def test_the_hash_follows_the_content_alone() -> None:
    reordered = TEXT.replace("tcid = 0", "").replace('name = "coordinator-0"', "")
    reordered += 'tcid = 0\nname = "coordinator-0"\n# and a comment\n'
    assert membership.from_toml(reordered).hash == MEMBERSHIP.hash
    # Written down: another version of this program must not refuse its peers.
    assert MEMBERSHIP.hash == "191a87f9d5fbfb7a0ca089771c3418fe"


@pytest.mark.parametrize(
    "change",
    [
        {"cluster_id": "payments"},
        {"version": 4},
        {"brokers": MEMBERSHIP.brokers[:1]},
        {"brokers": MEMBERSHIP.brokers[::-1]},
        {"coordinators": (replace(MEMBERSHIP.coordinators[0], tcid=1),)},
        {"brokers": (replace(MEMBERSHIP.brokers[0], address="10.0.0.9:6650"),)},
    ],
)
def test_other_content_has_another_hash(change: dict[str, object]) -> None:
    assert replace(MEMBERSHIP, **change).hash != MEMBERSHIP.hash  # type: ignore[arg-type]


def test_where_ports_change_with_each_start_the_hash_covers_names_only() -> None:
    one = replace(MEMBERSHIP, stable_addresses=False)
    moved = replace(one, coordinators=(replace(one.coordinators[0], address="127.0.0.1:40001"),))
    assert one.hash == moved.hash


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("brokers = [", "not TOML"),
        ("version = 1", "lacks 'brokers'"),
        (TEXT.replace("tcid = 0", ""), "lacks 'tcid'"),
        (TEXT.replace("tcid = 0", "tcid = 65536"), "choose one from 0 to 65535"),
        (TEXT.replace("tcid = 0", "tcid = true"), "must be of type int"),
        (TEXT.replace("version = 3", "version = 0"), "count it from 1"),
        (TEXT.replace("version = 3", "versoin = 3"), "known are"),
        (TEXT.replace("broker-1", "broker-0"), "make them differ"),
        (TEXT.replace("10.0.0.2:6650", "10.0.0.1:6650"), "make them differ"),
        (TEXT.replace("10.0.0.2:6650", "10.0.0.2"), "HOST:PORT"),
        (TEXT.replace("10.0.0.2:6650", "10.0.0.2:0"), "port 0"),
        (
            TEXT.replace("tcid = 0", 'tcid = 0\nexternal_address = "somewhere"'),
            "HOST:PORT",
        ),
        (
            TEXT.replace("6650", '6650"\nexternal_address = "h:1'),
            "two members have the external address",
        ),
        (
            TEXT.replace("6650", '6650"\nkafka_address = "h:1'),
            "two members have the kafka_address",
        ),
        (TEXT.replace("10.0.0.2:6650", '10.0.0.2:6650"\nkafka_address = "h:0'), "port 0"),
        (TEXT.replace("tcid = 0", 'tcid = 0\nkafka_address = "h:1"'), "known are"),
        ("brokers = [1]\ncoordinators = []", "must be written as"),
        ("brokers = []\ncoordinators = []", "name at least one"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(InvalidConfig, match=advice):
        membership.from_toml(text)


@pytest.mark.parametrize(
    ("environ", "advice"),
    [
        ({"MAGNETAR_BROKERS": "a=h:1"}, "MAGNETAR_COORDINATORS is not set"),
        ({"MAGNETAR_BROKERS": "h:1", "MAGNETAR_COORDINATORS": "c=h:2"}, "NAME=HOST:PORT"),
        (
            {
                "MAGNETAR_BROKERS": "a=h:1",
                "MAGNETAR_COORDINATORS": "c=h:2",
                "MAGNETAR_CLUSTER_VERSION": "new",
            },
            "whole number",
        ),
        (
            {
                "MAGNETAR_BROKERS": "a=h:1",
                "MAGNETAR_COORDINATORS": "c=h:2",
                "MAGNETAR_EXTERNAL_ADDRESSES": "b=h:3",
            },
            "'b'.*a, c",
        ),
        (
            {
                "MAGNETAR_BROKERS": "a=h:1",
                "MAGNETAR_COORDINATORS": "c=h:2",
                "MAGNETAR_KAFKA_ADDRESSES": "c=h:3",
            },
            "'c'.*members are a",
        ),
        ({"MAGNETAR_CLUSTER_FILE": "/nowhere/cluster.toml"}, "cannot be read"),
    ],
)
def test_variables_that_make_no_sense_are_refused_with_advice(
    environ: dict[str, str], advice: str
) -> None:
    with pytest.raises(InvalidConfig, match=advice):
        membership.load(environ)


def test_the_hash_of_a_single_broker_is_what_data_directories_remember() -> None:
    alone = replace(MEMBERSHIP, brokers=MEMBERSHIP.brokers[:1])
    assert alone.hash == "6c8941721e8e7dc29291afbb235d7851"


def test_the_order_of_brokers_says_which_shard_each_keeps() -> None:
    one, two = MEMBERSHIP.brokers
    three = Member(name="broker-2", address="10.0.0.3:6650")
    orders = [(one, two, three), (one, three, two)]
    assert len({replace(MEMBERSHIP, brokers=order).hash for order in orders}) == 2


def test_there_are_as_many_brokers_as_topic_ids_can_name() -> None:
    brokers = tuple(Member(name=f"b{n}", address=f"h{n}:1") for n in range(SHARDS_MAX + 1))
    assert replace(MEMBERSHIP, brokers=brokers[:-1]).brokers == brokers[:-1]
    with pytest.raises(InvalidConfig, match="2049 brokers, and topic ids name 2048 at most"):
        replace(MEMBERSHIP, brokers=brokers)


def test_members_are_found_by_name() -> None:
    assert MEMBERSHIP.broker("broker-1").address == "10.0.0.2:6650"
    assert MEMBERSHIP.coordinator("coordinator-0").tcid == 0
    with pytest.raises(InvalidConfig, match=r"it has: broker-0, broker-1"):
        MEMBERSHIP.broker("broker-7")
