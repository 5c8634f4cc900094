"""The addresses that a client gets depend on how it reached the broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar_broker.config import BrokerConfig
from magnetar_broker.member_addresses import broker_address, brokers_as_reached, other_address
from magnetar_core.address_book import MemberAddress
from magnetar_core.config import InvalidConfig

INSIDE = MemberAddress(name="coordinator-1", address="coordinator-1:6652", tcid=1)
PUBLISHED = MemberAddress(
    name="coordinator-0",
    address="coordinator-0:6651",
    external_address="127.0.0.1:16651",
    tcid=0,
)
CONFIG = BrokerConfig(
    address="broker:6650",
    external_address="127.0.0.1:16650",
    coordinators=(PUBLISHED, INSIDE),
)


def given(config: BrokerConfig, reached_at: str) -> tuple[str, list[str]]:
    address_of = other_address(config, reached_at)
    return broker_address(config, reached_at), [address_of(one) for one in config.coordinators]


MEMBERS = ("broker:6650", ["coordinator-0:6651", "coordinator-1:6652"])
# A coordinator without an external address is told as it is: better than nothing.
OUTSIDE = ("127.0.0.1:16650", ["127.0.0.1:16651", "coordinator-1:6652"])


@pytest.mark.parametrize(
    ("reached_at", "expected"),
    [
        ("127.0.0.1:16650", OUTSIDE),
        ("localhost:16650", OUTSIDE),
        ("[::1]:16650", OUTSIDE),
        # A coordinator, an older client, and one inside the members' network.
        ("", MEMBERS),
        ("broker:6650", MEMBERS),
        # Other doors: nothing is known of them.
        ("127.0.0.1:6650", MEMBERS),
        ("10.0.0.7:16650", MEMBERS),
        ("nonsense", MEMBERS),
        ("unix:/run/broker", MEMBERS),
    ],
)
def test_a_client_is_answered_in_kind(reached_at: str, expected: tuple[str, list[str]]) -> None:
    assert given(CONFIG, reached_at) == expected


def test_without_an_external_address_there_is_one_answer() -> None:
    config = replace(CONFIG, external_address="")
    for reached_at in ("", "127.0.0.1:16650", "broker:6650"):
        assert given(config, reached_at) == MEMBERS


def test_names_elsewhere_match_as_they_are_written_only() -> None:
    config = replace(CONFIG, external_address="broker.example.org:443")
    assert broker_address(config, "broker.example.org:443") == "broker.example.org:443"
    assert broker_address(config, "127.0.0.1:443") == "broker:6650"


def test_the_members_own_address_counts_before_the_external_one() -> None:
    config = replace(CONFIG, address="127.0.0.1:16650", external_address="localhost:16650")
    assert broker_address(config, "127.0.0.1:16650") == "127.0.0.1:16650"


def test_all_brokers_are_told_in_the_order_of_their_shards() -> None:
    brokers = (
        MemberAddress(name="b-1", address="b-1:6650", external_address="127.0.0.1:26650"),
        MemberAddress(name="b-0", address="b-0:6650", external_address="127.0.0.1:16650"),
        MemberAddress(name="b-2", address="b-2:6650"),
    )
    config = BrokerConfig(
        name="b-0",
        address="10.0.0.1:6650",
        external_address="127.0.0.1:16650",
        brokers=brokers,
    )
    assert (config.shard, config.shard_count) == (1, 3)
    inside = [one.address for one in brokers_as_reached(config, "")]
    # Its own address is the one that it was started with.
    assert inside == ["b-1:6650", "10.0.0.1:6650", "b-2:6650"]
    outside = [one.address for one in brokers_as_reached(config, "localhost:16650")]
    assert outside == ["127.0.0.1:26650", "127.0.0.1:16650", "b-2:6650"]
    assert [one.name for one in brokers_as_reached(config, "")] == ["b-1", "b-0", "b-2"]


def test_a_broker_is_among_the_brokers() -> None:
    with pytest.raises(InvalidConfig, match="not among the brokers"):
        BrokerConfig(name="b-9", brokers=(MemberAddress(name="b-0", address="b-0:6650"),))
