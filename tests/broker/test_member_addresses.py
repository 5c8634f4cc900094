"""The addresses that a client gets depend on how it reached the broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar_broker.commands.member_addresses import AddressesGiven
from magnetar_broker.config import BrokerConfig
from magnetar_core.config import InvalidConfig
from magnetar_core.membership.address_book import FixedAddresses, MemberAddress

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
    addresses = AddressesGiven(config, FixedAddresses())
    (broker,) = addresses.brokers(reached_at)
    return broker.address, [one.address for one in addresses.coordinators(reached_at)]


MEMBERS = ("broker:6650", ["coordinator-0:6651", "coordinator-1:6652"])
# A coordinator without an external address is told as it is: better than nothing.
OUTSIDE = ("127.0.0.1:16650", ["127.0.0.1:16651", "coordinator-1:6652"])


@pytest.mark.parametrize(
    ("reached_at", "expected"),
    [
        ("127.0.0.1:16650", OUTSIDE),
        ("localhost:16650", OUTSIDE),
        ("[::1]:16650", OUTSIDE),
        # A coordinator, and a client inside the members' network.
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
    assert given(config, "broker.example.org:443")[0] == "broker.example.org:443"
    assert given(config, "127.0.0.1:443")[0] == "broker:6650"


def test_the_members_own_address_counts_before_the_external_one() -> None:
    config = replace(CONFIG, address="127.0.0.1:16650", external_address="localhost:16650")
    assert given(config, "127.0.0.1:16650")[0] == "127.0.0.1:16650"


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
    addresses = AddressesGiven(config, FixedAddresses())
    inside = [one.address for one in addresses.brokers("")]
    # Its own address is the one that it was started with.
    assert inside == ["b-1:6650", "10.0.0.1:6650", "b-2:6650"]
    outside = [one.address for one in addresses.brokers("localhost:16650")]
    assert outside == ["127.0.0.1:26650", "127.0.0.1:16650", "b-2:6650"]
    assert [one.name for one in addresses.brokers("")] == ["b-1", "b-0", "b-2"]


class Owners:
    """Every member has moved, except one that nobody has."""

    def find(self, member: MemberAddress) -> MemberAddress:
        if member.name == "b-2":
            return replace(member, address="#2.0", external_address="#2.0")
        return replace(
            member, address=f"new:6650#{member.name[2:]}.17", external_address="out:1#0.17"
        )


def test_who_moved_is_told_where_it_is_now() -> None:
    config = BrokerConfig(
        name="b-0",
        address="10.0.0.1:6650",
        external_address="127.0.0.1:16650",
        brokers=tuple(
            MemberAddress(name=f"b-{number}", address=f"b-{number}:1") for number in range(3)
        ),
        coordinators=(MemberAddress(name="c-4", address="c-4:1", tcid=4),),
    )
    addresses = AddressesGiven(config, Owners())
    told = [one.address for one in addresses.brokers("10.0.0.1:6650#0.17")]
    assert told == ["new:6650#0.17", "new:6650#1.17", "#2.0"]
    (coordinator,) = addresses.coordinators("")
    assert (coordinator.address, coordinator.tcid) == ("new:6650#4.17", 4)
    # A client says how it reached the server, and the shard that it reached there.
    for reached_at in ("127.0.0.1:16650", "127.0.0.1:16650#0.17", "localhost:16650#0.9"):
        told = [one.address for one in addresses.brokers(reached_at)]
        assert told == ["out:1#0.17", "out:1#0.17", "#2.0"]


def test_a_broker_is_among_the_brokers() -> None:
    with pytest.raises(InvalidConfig, match="not among the brokers"):
        BrokerConfig(name="b-9", brokers=(MemberAddress(name="b-0", address="b-0:6650"),))
