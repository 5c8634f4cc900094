"""The wiretap at clients finds a member that keeps to itself that it has left a partition."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.simulation.client_wiretap import Asked
from tests.simulation.release_wiretap import ReleaseWiretap

from magnetar.testing.lives import Incarnation
from magnetar_core.wire import broker_pb2, common_pb2, group_pb2

PARTITION = common_pb2.Partition(topic="in", topic_id=1)
WHERE = common_pb2.Subscription(topic="in", topic_id=1, subscription="crew")
MEMBER = common_pb2.GroupMember(member_id="m", generation=1)


class Seen(Exception):
    pass


class Member:
    """One that has attached to a partition, and sends heartbeats."""

    def __init__(self) -> None:
        self.now = 0.0
        self._client = Incarnation("client")
        self.tap = ReleaseWiretap(lambda: self.now, self._violation)
        subscribe = broker_pb2.CommandSubscribe(subscription=WHERE, consumer_id=5, member=MEMBER)
        self.asks("subscribe", subscribe)
        self.is_told(self.beats())

    def _violation(self, what: str, text: str) -> NoReturn:
        raise Seen(f"{what}: {text}")

    def asks(self, name: str, body: Any) -> Asked:
        asked = Asked(self._client, 1, 1, name, body, self.now)
        self.tap.on_asked(asked)
        return asked

    def beats(self, *, holds: bool = True) -> Asked:
        body = group_pb2.CommandGroupHeartbeat(group="crew", member_id="m")
        if holds:
            body.held.add(partition=PARTITION, generation=1)
        return self.asks("group_heartbeat", body)

    def is_told(self, asked: Asked, name: str = "group_heartbeat_response") -> None:
        self.tap.on_answer(asked, name, group_pb2.CommandGroupHeartbeatResponse())

    def leaves_partition(self) -> None:
        close = broker_pb2.CommandCloseConsumer(subscription=WHERE, consumer_id=5)
        self.is_told(self.asks("close_consumer", close), "close_consumer_response")


def test_it_says_at_once_that_it_has_left() -> None:
    member = Member()
    member.leaves_partition()
    member.now += 0.001
    member.beats()
    member.now += 1.0
    member.beats()


def test_it_says_so_late() -> None:
    member = Member()
    member.leaves_partition()
    member.now += 0.2
    with pytest.raises(Seen, match=r"0\.200 s late"):
        member.beats()


def test_it_may_wait_for_the_answer_to_the_heartbeat_before() -> None:
    member = Member()
    before = member.beats()
    member.leaves_partition()
    member.now += 0.2
    member.is_told(before)
    member.now += 0.001
    member.beats()


@pytest.mark.parametrize("what", ["link", "error", "left"])
def test_nothing_is_late_after_that(what: str) -> None:
    member = Member()
    before = member.beats()
    member.leaves_partition()
    if what == "link":
        member.tap.on_lost(1)
    elif what == "error":
        member.is_told(before, "error")
    else:
        member.asks("leave_group", group_pb2.CommandLeaveGroup(group="crew", member_id="m"))
    member.now += 0.2
    member.beats()


def test_a_partition_that_was_lost_and_is_assigned_again_was_not_given_up() -> None:
    member = Member()
    answer = group_pb2.CommandGroupHeartbeatResponse()
    answer.assigned.add(partition=PARTITION, generation=7)
    member.tap.on_answer(member.beats(), "group_heartbeat_response", answer)
    member.leaves_partition()
    member.now += 0.2
    member.beats()


def test_who_joins_anew_has_nothing_to_say_of_what_it_had() -> None:
    member = Member()
    member.asks("join_group", group_pb2.CommandJoinGroup(group="crew", member_id="m"))
    member.is_told(member.beats())
    member.leaves_partition()
    member.now += 0.2
    member.beats()


def test_it_has_said_so_before_it_left() -> None:
    member = Member()
    member.is_told(member.beats(holds=False))
    member.leaves_partition()
    member.now += 0.2
    member.beats(holds=False)
