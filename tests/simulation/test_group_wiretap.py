"""What the wire alone says of a group: its generations only rise, and who has left is away."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.simulation.group_wiretap import GroupWiretap

from magnetar.testing.envelope import command
from magnetar_core.wire import common_pb2, group_pb2
from magnetar_core.wire import service_pb2 as pb

LINK = 1


class Seen(Exception):
    pass


class Wire:
    """A group and its members."""

    def __init__(self) -> None:
        self.tap = GroupWiretap(self._violation)
        self._count = 0

    def _violation(self, what: str, text: str) -> NoReturn:
        raise Seen(f"{what}: {text}")

    def asks(self, body: Any) -> int:
        self._count += 1
        self.tap.on_request(LINK, pb.Frame(commands=[command(body, self._count)]))
        return self._count

    def answers(self, request_id: int, body: Any) -> None:
        self.tap.on_reply(LINK, pb.Frame(commands=[command(body, request_id)]))

    def join(self, member_id: str, epoch: int) -> int:
        return self.asks(
            group_pb2.CommandJoinGroup(group="g", member_id=member_id, join_epoch=epoch)
        )

    def joined(self, request_id: int, generation: int) -> None:
        state = group_pb2.CommandGroupHeartbeatResponse(generation=generation)
        self.answers(request_id, group_pb2.CommandJoinGroupResponse(state=state))

    def leave(self, member_id: str, call_token: int = 0) -> int:
        return self.asks(
            group_pb2.CommandLeaveGroup(group="g", member_id=member_id, call_token=call_token)
        )

    def leaves(self, member_id: str, call_token: int = 0) -> None:
        request_id = self.leave(member_id, call_token)
        self.answers(request_id, group_pb2.CommandLeaveGroupResponse())

    def heartbeat(self, member_id: str, number: int, *since: int) -> int:
        """It holds the partition since a generation, or does not."""
        held = [_partition(generation) for generation in since]
        return self.asks(
            group_pb2.CommandGroupHeartbeat(
                group="g", member_id=member_id, held=held, heartbeat_number=number
            )
        )

    def assigns(self, request_id: int, generation: int, *since: int) -> None:
        assigned = [_partition(generation) for generation in since]
        state = group_pb2.CommandGroupHeartbeatResponse(generation=generation, assigned=assigned)
        self.answers(request_id, state)

    def a_has_it(self) -> None:
        """Member a has the partition since generation 2, and b is a member too."""
        self.joined(self.join("a", 1), 1)
        self.assigns(self.heartbeat("a", 1), 2, 2)
        self.joined(self.join("b", 1), 3)


def _partition(generation: int) -> group_pb2.AssignedPartition:
    partition = common_pb2.Partition(topic="t", topic_id=1)
    return group_pb2.AssignedPartition(partition=partition, generation=generation)


def test_generations_only_rise() -> None:
    wire = Wire()
    wire.joined(wire.join("a", 1), 3)
    wire.tap.on_crash()
    asked = wire.asks(group_pb2.CommandGroupHeartbeat(group="g", member_id="a"))
    with pytest.raises(Seen, match="generation 3, and is in 2"):
        wire.answers(asked, group_pb2.CommandGroupHeartbeatResponse(generation=2))


def test_an_answer_may_be_older_than_one_that_overtook_it() -> None:
    wire = Wire()
    early = wire.join("a", 1)
    wire.joined(wire.join("b", 1), 4)
    wire.joined(early, 3)


def test_a_group_that_was_made_anew_begins_anew() -> None:
    wire = Wire()
    wire.joined(wire.join("a", 1), 3)
    wire.asks(group_pb2.CommandDeleteGroup(group="g"))
    wire.joined(wire.join("a", 2), 1)


def test_who_has_left_does_not_come_back_by_a_copy() -> None:
    wire = Wire()
    wire.joined(wire.join("a", 1), 1)
    wire.leaves("a")
    wire.joined(wire.join("a", 2), 3)
    wire.leaves("a")
    copy = wire.join("a", 2)
    with pytest.raises(Seen, match="back by a copy of its join 2"):
        wire.joined(copy, 5)


def test_a_copy_of_a_departure_takes_nobody_out_again() -> None:
    wire = Wire()
    wire.joined(wire.join("a", 1), 1)
    wire.leaves("a", call_token=7)
    wire.joined(wire.join("a", 2), 3)
    wire.leaves("a", call_token=7)
    wire.joined(wire.join("a", 2), 3)


def test_copies_do_not_survive_a_crash() -> None:
    wire = Wire()
    wire.joined(wire.join("a", 1), 1)
    wire.leaves("a")
    wire.tap.on_crash()
    wire.joined(wire.join("a", 1), 3)


def test_what_a_member_holds_is_given_to_nobody() -> None:
    wire = Wire()
    wire.a_has_it()
    wire.assigns(wire.heartbeat("b", 1), 3, 3)
    asked = wire.heartbeat("a", 2, 2)
    with pytest.raises(Seen, match="given away in 3, and a holds it since 2"):
        wire.assigns(asked, 3)


def test_what_a_member_holds_is_not_given_to_it_anew() -> None:
    wire = Wire()
    wire.a_has_it()
    asked = wire.heartbeat("a", 2, 2)
    with pytest.raises(Seen, match="given away in 3, and a holds it since 2"):
        wire.assigns(asked, 3, 3)


def test_what_a_member_releases_is_given_away() -> None:
    wire = Wire()
    wire.a_has_it()
    early = wire.heartbeat("a", 2, 2)
    released = wire.heartbeat("a", 3)
    wire.assigns(wire.heartbeat("b", 1), 3, 3)
    wire.assigns(early, 3)
    wire.assigns(released, 3)
    wire.assigns(wire.heartbeat("a", 4), 3)


def test_the_next_owner_may_hear_of_it_before_a_departed_member_hears_its_last_answer() -> None:
    wire = Wire()
    wire.a_has_it()
    last = wire.heartbeat("a", 2, 2)
    left = wire.leave("a")
    wire.assigns(wire.heartbeat("b", 1), 4, 4)
    wire.assigns(last, 3, 2)
    wire.answers(left, group_pb2.CommandLeaveGroupResponse())
    wire.joined(wire.join("a", 2), 5)
    wire.assigns(wire.heartbeat("a", 3), 5)


def test_a_member_may_be_back_before_it_hears_its_last_answer() -> None:
    wire = Wire()
    wire.a_has_it()
    last = wire.heartbeat("a", 2, 2)
    left = wire.leave("a")
    back = wire.join("a", 2)
    wire.assigns(wire.heartbeat("b", 1), 5, 4)
    wire.assigns(last, 3, 2)
    wire.answers(left, group_pb2.CommandLeaveGroupResponse())
    wire.joined(back, 5)
    wire.assigns(wire.heartbeat("a", 3), 5)


def test_who_is_a_member_still_has_not_departed_meanwhile() -> None:
    wire = Wire()
    wire.a_has_it()
    asked = wire.heartbeat("a", 2, 2)
    wire.assigns(wire.heartbeat("b", 1), 3, 3)
    wire.assigns(asked, 3)
    asked = wire.heartbeat("a", 3)
    with pytest.raises(Seen, match="given away in 3, and a holds it since 2"):
        wire.assigns(asked, 3)
