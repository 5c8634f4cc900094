"""A member's decisions: docs/design/0003-groups.md, Members and The client."""

from __future__ import annotations

import math

import pytest

from magnetar.groups.member_phase import MemberPhase
from magnetar.groups.member_state import (
    Assigned,
    Command,
    Instruction,
    Kept,
    Lost,
    MemberState,
    Release,
    Revoked,
)
from magnetar.messaging.receiving.partition_ownership import Settling
from magnetar_core.ids import PartitionName

P0 = PartitionName("orders", 0, 1)
P1 = PartitionName("orders", 1, 1)

NOTHING = Settling(held=False, in_transactions=False)
HELD = Settling(held=True, in_transactions=False)
IN_TRANSACTION = Settling(held=True, in_transactions=True)


def member(assigned: dict[PartitionName, int], generation: int = 1) -> MemberState:
    made = MemberState(max_poll_interval_ms=1_000, now_ms=0)
    assert made.next_command(0) is Command.JOIN
    made.sent(0)
    expected: list[Instruction] = [Assigned(one, since) for one, since in assigned.items()]
    assert made.joined(generation, 100, assigned, 0, 0) == expected
    assert made.next_command(0) is Command.HEARTBEAT
    made.sent(0)
    assert answer(made, generation, assigned) == []
    assert made.next_command(0) is None
    return made


def answer(
    one: MemberState, generation: int, assigned: dict[PartitionName, int]
) -> list[Instruction]:
    instructions = one.answered(generation, 100, assigned, 0)
    one.check()
    return instructions


def test_heartbeats_go_out_at_the_interval_and_name_what_is_held() -> None:
    one = member({P0: 1})
    assert one.wakes_at_ms == 100
    assert one.next_command(99) is None
    assert one.next_command(100) is Command.HEARTBEAT
    assert one.held == {P0: 1}
    assert one.generation == 1


def test_an_announcement_while_a_heartbeat_is_under_way_asks_for_another() -> None:
    one = member({P0: 1})
    one.sent(100)
    one.announced(101)
    assert answer(one, 1, {P0: 1}) == []
    assert one.next_command(101) is Command.HEARTBEAT


def test_what_is_kept_through_a_rebalance_notices_nothing() -> None:
    one = member({P0: 1, P1: 1})
    assert answer(one, 2, {P0: 1, P1: 1}) == []


def test_what_is_asked_back_is_released_when_it_is_settled() -> None:
    one = member({P0: 1, P1: 1})
    assert answer(one, 2, {P1: 1}) == [Revoked(P0)]
    assert one.review(lambda _: HELD) == []
    assert one.review(lambda _: NOTHING) == [Release(P0, 1)]
    assert one.review(lambda _: NOTHING) == []
    # It is held until its acks are confirmed.
    assert one.held == {P0: 1, P1: 1}
    one.released(P0, 1, 50)
    assert one.held == {P1: 1}
    assert one.next_command(50) is Command.HEARTBEAT


def test_the_next_receive_says_that_the_application_is_done() -> None:
    one = member({P0: 1})
    one.receive_begins(10)
    one.receive_ends(11)
    assert answer(one, 2, {}) == [Revoked(P0)]
    assert one.review(lambda _: HELD) == []
    one.receive_begins(20)
    assert one.review(lambda _: HELD) == [Release(P0, 1)]


def test_who_waits_for_more_is_done_already() -> None:
    one = member({P0: 1})
    one.receive_begins(10)
    assert answer(one, 2, {}) == [Revoked(P0)]
    assert one.review(lambda _: HELD) == [Release(P0, 1)]


def test_a_transaction_that_acknowledged_there_keeps_it() -> None:
    one = member({P0: 1})
    assert answer(one, 2, {}) == [Revoked(P0)]
    one.receive_begins(20)
    assert one.review(lambda _: IN_TRANSACTION) == []
    assert one.review(lambda _: HELD) == [Release(P0, 1)]


def test_a_partition_that_is_kept_after_all_goes_on() -> None:
    one = member({P0: 1})
    assert answer(one, 2, {}) == [Revoked(P0)]
    one.receive_begins(20)
    one.receive_ends(21)
    assert answer(one, 3, {P0: 1}) == [Kept(P0)]
    # Asked back again, it needs another receive.
    assert answer(one, 4, {}) == [Revoked(P0)]
    assert one.review(lambda _: HELD) == []


def test_lost_and_got_again_is_another_ownership() -> None:
    one = member({P0: 1})
    assert answer(one, 3, {P0: 3}) == [Lost(P0, 1), Assigned(P0, 3)]
    assert not one.holds(P0, 1)
    assert one.holds(P0, 3)


def test_what_is_lost_at_the_broker_is_asked_about_at_once_but_not_without_end() -> None:
    one = member({P0: 1})
    one.sent(200)
    assert one.lost(P0, 1, 210) == [Lost(P0, 1)]
    assert one.lost(P0, 1, 210) == []
    assert one.next_command(210) is None
    assert one.wakes_at_ms == 300
    assert one.next_command(300) is Command.HEARTBEAT


def test_who_is_unknown_loses_everything_and_joins_again() -> None:
    one = member({P0: 1})
    assert one.unknown() == [Lost(P0, 1)]
    one.check()
    assert one.next_command(0) is Command.JOIN
    assert one.joined(5, 100, {P0: 5}, 0, 0) == [Assigned(P0, 5)]


def test_who_is_fenced_or_refused_for_good_has_come_to_an_end() -> None:
    one = member({P0: 1})
    assert one.end() == [Lost(P0, 1)]
    one.receive_begins(0)
    assert one.phase is MemberPhase.ENDED
    assert one.next_command(10_000) is None
    assert one.wakes_at_ms == math.inf


def test_an_application_that_does_not_come_back_leaves_and_joins_with_its_next_receive() -> None:
    one = member({P0: 1})
    one.receive_begins(10)
    assert one.tick(5_000) == []
    one.receive_ends(5_000)
    assert one.tick(5_999) == []
    assert one.tick(6_000) == [Lost(P0, 1)]
    assert one.next_command(6_000) is Command.LEAVE
    # An answer to an earlier heartbeat changes nothing any more.
    assert answer(one, 1, {P0: 1}) == []
    one.left()
    assert one.phase is MemberPhase.AWAY
    assert one.next_command(9_000) is None
    one.receive_begins(9_000)
    assert one.next_command(9_000) is Command.JOIN


def test_who_comes_back_before_the_group_heard_of_it_joins_at_once() -> None:
    one = member({P0: 1})
    assert one.tick(1_000) == [Lost(P0, 1)]
    one.receive_begins(1_001)
    one.left()
    assert one.next_command(1_001) is Command.JOIN


@pytest.mark.parametrize("since", [1, 2])
def test_a_release_counts_for_its_own_ownership_only(since: int) -> None:
    one = member({P0: 1})
    answer(one, 2, {})
    one.review(lambda _: NOTHING)
    one.released(P0, since, 5)
    assert (P0 in one.held) == (since == 2)
