"""The addresses that a client gets depend on how it reached the broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar_broker.config import BrokerConfig, MemberAddress
from magnetar_broker.member_addresses import broker_address, coordinator_address

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
    address_of = coordinator_address(config, reached_at)
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
