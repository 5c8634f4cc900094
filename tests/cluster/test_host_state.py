"""Decisions of one member, one by one: docs/design/0009-owners.md, Placement of shards."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from magnetar_cluster.directory.view import BROKER, Member, MemberName, ShardName, ShardOwner, View
from magnetar_cluster.host_settings import HostSettings
from magnetar_cluster.hosting.host_actions import Abandon, Action, Claim, Open, Release
from magnetar_cluster.hosting.host_state import HostState
from magnetar_cluster.hosting.lease import Lease
from magnetar_cluster.hosting.shard_phase import ShardPhase

A = MemberName(BROKER, "a")
FIRST = ShardName(BROKER, 0)


class Time:
    now_ms = 0.0


def view(revision: int, *, a: int = 0) -> View:
    """A view with the member a; it has the first shard in this epoch, or nobody has it."""
    found = {FIRST: ShardOwner("a", a)} if a else {}
    return View(revision=revision, members={A: Member(address="a:1")}, shard_owners=found)


def joined(time: Time) -> HostState:
    """A member with a lease and a row, which sees that nobody has the shard."""
    state = HostState(A, [FIRST], HostSettings(), Random(1))
    lease = Lease(3_000, lambda: time.now_ms)
    lease.begun(1, 0.0)
    state.lease_begun(lease)
    state.row_written()
    state.saw(view(5), 0.0)
    return state


def decided(state: HostState, kind: type[Action], now_ms: float = 0.0) -> Action:
    (action,) = state.decide(now_ms)
    assert isinstance(action, kind)
    return action


def serving(state: HostState, epoch: int) -> None:
    claim = decided(state, Claim)
    assert isinstance(claim, Claim)
    state.claimed(claim, epoch, 0.0)
    opening = decided(state, Open)
    assert isinstance(opening, Open)
    state.opened(opening, 0.0)


def phase(state: HostState) -> ShardPhase | None:
    held = state.slots[FIRST].held
    return held.phase if held is not None else None


def test_a_claim_that_is_older_than_the_view_opens_nothing_if_its_row_is_gone() -> None:
    state = joined(Time())
    claim = decided(state, Claim)
    assert isinstance(claim, Claim)
    # The claim wrote revision 6. Somebody deleted its row, before its answer came.
    state.saw(view(7), 0.0)
    state.claimed(claim, 6, 0.0)
    assert phase(state) is None
    assert isinstance(decided(state, Claim), Claim)


def test_a_view_that_is_older_than_the_claim_takes_nothing_away() -> None:
    state = joined(Time())
    serving(state, 9)
    assert state.saw(view(8), 0.0)
    assert phase(state) is ShardPhase.SERVING
    assert state.speaks(FIRST, 9)


def test_a_view_that_comes_after_a_later_one_means_nothing() -> None:
    state = joined(Time())
    serving(state, 6)
    assert state.saw(view(8, a=6), 0.0)
    assert not state.saw(view(7), 0.0)
    assert state.view.revision == 8
    assert phase(state) is ShardPhase.SERVING


def test_an_ownership_that_the_view_gives_to_another_epoch_is_over() -> None:
    state = joined(Time())
    serving(state, 6)
    state.saw(view(9, a=9), 0.0)
    assert not state.speaks(FIRST, 6)
    abandoning = decided(state, Abandon)
    assert isinstance(abandoning, Abandon)
    assert abandoning.epoch == 6
    # What happens to the lost one changes nothing for the row that the member does not know.
    state.abandoned(abandoning, 0.0)
    release = decided(state, Release)
    assert isinstance(release, Release)
    assert release.epoch == 9
    assert state.decide(0.0) == []
    state.released(release, 0.0)
    # The view still has the row. It is not given back again, and not taken for free either.
    assert state.decide(0.0) == []
    state.saw(view(10), 0.0)
    assert isinstance(decided(state, Claim), Claim)


def test_the_outcome_of_an_attempt_under_a_former_lease_means_nothing() -> None:
    state = joined(Time())
    former = decided(state, Claim)
    assert isinstance(former, Claim)
    state.lease_ended(0.0)
    lease = Lease(3_000, lambda: 0.0)
    lease.begun(2, 0.0)
    state.lease_begun(lease)
    state.row_written()
    present = decided(state, Claim)
    assert isinstance(present, Claim)
    assert present.lease == 2
    state.claimed(former, 6, 0.0)
    assert phase(state) is ShardPhase.CLAIMING
    state.claimed(present, 8, 0.0)
    opening = decided(state, Open)
    assert isinstance(opening, Open)
    assert opening.epoch == 8


def test_an_ownership_does_not_speak_again_under_the_next_lease() -> None:
    state = joined(Time())
    serving(state, 6)
    assert state.speaks(FIRST, 6)
    state.lease_ended(0.0)
    assert not state.speaks(FIRST, 6)
    lease = Lease(3_000, lambda: 0.0)
    lease.begun(2, 0.0)
    state.lease_begun(lease)
    assert not state.speaks(FIRST, 6)
    abandoning = decided(state, Abandon)
    assert isinstance(abandoning, Abandon)
    state.row_written()
    state.abandoned(abandoning, 0.0)
    serving(state, 12)
    assert state.speaks(FIRST, 12)
    assert not state.speaks(FIRST, 6)


@pytest.mark.parametrize("written", [False, True])
def test_a_member_that_stops_does_not_repeat_a_claim_whose_answer_was_lost(written: bool) -> None:
    """It had asked for a shard until it had an answer, though it was to hand over all it has."""
    state = joined(Time())
    claim = decided(state, Claim)
    assert isinstance(claim, Claim)
    state.unanswered(claim, 0.0)
    state.leave()
    if written:
        state.saw(view(6, a=6), 0.0)
        release = decided(state, Release, 10_000.0)
        assert isinstance(release, Release)
        assert release.epoch == 6
        assert not state.is_empty()
        state.released(release, 10_000.0)
    assert state.decide(10_000.0) == []
    assert state.is_empty()
    # A copy of the lost answer means nothing any more.
    state.claimed(claim, 6, 10_000.0)
    assert state.is_empty()


def test_a_member_that_stops_waits_for_the_answer_to_its_claim() -> None:
    state = joined(Time())
    claim = decided(state, Claim)
    assert isinstance(claim, Claim)
    state.leave()
    assert state.decide(0.0) == []
    assert not state.is_empty()
    state.claimed(claim, 6, 0.0)
    release = decided(state, Release)
    assert isinstance(release, Release)
    assert release.epoch == 6


def test_a_claim_is_not_repeated_while_the_row_is_gone() -> None:
    """Its answer was lost, and others do not see a member that could have the shard."""
    state = joined(Time())
    claim = decided(state, Claim)
    assert isinstance(claim, Claim)
    state.unanswered(claim, 0.0)
    state.saw(View(revision=6), 0.0)
    assert state.decide(10_000.0) == []
    state.row_written()
    assert isinstance(decided(state, Claim, 10_000.0), Claim)


def test_nothing_is_opened_while_the_lease_is_silent() -> None:
    time = Time()
    state = joined(time)
    claim = decided(state, Claim)
    assert isinstance(claim, Claim)
    state.claimed(claim, 6, 0.0)
    time.now_ms = 2_000.0
    assert state.decide(2_000.0) == []
    assert state.lease is not None
    state.lease.renewed(1_900.0)
    assert isinstance(decided(state, Open, 2_000.0), Open)


def test_a_lease_speaks_for_two_thirds_of_its_duration_from_when_it_was_asked_for() -> None:
    time = Time()
    lease = Lease(3_000, lambda: time.now_ms)
    assert not lease.may_speak()
    time.now_ms = 10_500.0
    lease.begun(1, 10_000.0)
    time.now_ms = 11_999.0
    assert lease.may_speak()
    time.now_ms = 12_000.0
    assert not lease.may_speak()
    # A late answer counts from when its renewal was sent, and one that was overtaken not at all.
    lease.renewed(11_000.0)
    lease.renewed(10_200.0)
    assert lease.may_speak()
    assert lease.silent_at_ms == 13_000.0
    lease.end()
    lease.renewed(12_000.0)
    assert not lease.may_speak()
    assert lease.silent_at_ms is None


def test_an_opening_that_begins_now_is_looked_at_again_when_it_has_taken_too_long() -> None:
    """Nothing else may happen meanwhile."""
    state = joined(Time())
    members = {**view(6).members, MemberName(BROKER, "b"): Member(address="b:1")}
    claim = decided(state, Claim)
    assert isinstance(claim, Claim)
    state.claimed(claim, 6, 0.0)
    decided(state, Open)
    longest_ms = HostSettings().opening_ms_max
    assert state.wakes_at_ms == longest_ms
    # Nobody else could do better, and then somebody could.
    assert state.decide(longest_ms) == []
    assert state.useless_openings() == []
    assert state.saw(replace(view(7, a=6), members=members), longest_ms)
    assert state.decide(longest_ms) == []
    assert state.useless_openings() == [6]
