"""Stamps of commits rise, over restarts, jumps of the wall clock, and what others have told."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from magnetar_core.cuts.hybrid_clock import (
    AHEAD_MS_MAX,
    BOUND_AHEAD,
    COUNTER_BITS,
    HybridClock,
    bound_above,
    stamp_at,
    time_ms_of,
)
from magnetar_core.errors import InvalidArgument

times_ms = st.integers(-1_000, 1 << 44)
TIME_MS = 1_750_000_000_000


def tick(clock: HybridClock, time_ms: int) -> int:
    """Decide something."""
    stamp = clock.next(time_ms)
    clock.advance(stamp)
    return stamp


def test_a_stamp_shows_the_time_of_its_coordinator() -> None:
    clock = HybridClock()
    assert time_ms_of(tick(clock, TIME_MS)) == TIME_MS
    assert time_ms_of(tick(clock, TIME_MS + 7)) == TIME_MS + 7


def test_more_stamps_than_a_millisecond_has_overflow_into_the_next() -> None:
    clock = HybridClock()
    first = tick(clock, TIME_MS)
    stamps = [tick(clock, TIME_MS) for _ in range(1 << COUNTER_BITS)]
    assert stamps == list(range(first + 1, first + 1 + (1 << COUNTER_BITS)))
    assert time_ms_of(stamps[-1]) == TIME_MS + 1
    assert tick(clock, TIME_MS + 1) == stamps[-1] + 1


def test_a_decision_that_is_not_carried_out_uses_no_stamp() -> None:
    clock = HybridClock()
    assert clock.next(TIME_MS) == clock.next(TIME_MS) == tick(clock, TIME_MS)


def test_a_restart_continues_at_the_bound_even_if_the_wall_clock_was_set_back() -> None:
    clock = HybridClock()
    before = [tick(clock, TIME_MS) for _ in range(10)]
    bound = bound_above(0, before[-1])
    restarted = HybridClock(bound)
    assert tick(restarted, 0) == bound > before[-1]


def test_a_bound_lasts_for_a_second_of_stamps() -> None:
    bound = bound_above(0, stamp_at(TIME_MS))
    assert bound == stamp_at(TIME_MS) + BOUND_AHEAD
    assert bound_above(bound, stamp_at(TIME_MS + 999)) == bound
    assert bound_above(bound, stamp_at(TIME_MS + 1_000)) > bound


def test_what_is_heard_lies_below_later_stamps() -> None:
    clock = HybridClock()
    heard = stamp_at(TIME_MS + 86_400_000) + 3
    clock.hear(heard, TIME_MS)
    assert tick(clock, TIME_MS) == heard + 1
    clock.hear(heard - 100, TIME_MS)
    assert tick(clock, TIME_MS) == heard + 2


def test_nobody_can_use_the_stamps_up() -> None:
    clock = HybridClock()
    before = tick(clock, TIME_MS)
    limit = stamp_at(TIME_MS + AHEAD_MS_MAX)
    with pytest.raises(InvalidArgument, match=f"stamp_ahead_ms_max, {AHEAD_MS_MAX} ms"):
        clock.hear(limit + 1, TIME_MS)
    assert tick(clock, TIME_MS) == before + 1
    clock.hear(limit, TIME_MS)
    # Others take the stamps that follow: their own time goes on.
    others = HybridClock()
    others.hear(tick(clock, TIME_MS), TIME_MS + 1)
    assert others.last == limit + 1


@pytest.mark.parametrize("time_ms", [0, TIME_MS, 1 << 60])
def test_what_somebody_invents_moves_a_clock_by_its_limit_at_most(time_ms: int) -> None:
    """Not again and again: the limit counts from the wall clock."""
    clock = HybridClock(ahead_ms_max=5_000)
    limit = stamp_at(time_ms) + (5_000 << COUNTER_BITS)
    for stamp in (limit + 1, (1 << 64) - 1):
        with pytest.raises(InvalidArgument, match="stamp_ahead_ms_max"):
            clock.hear(stamp, time_ms)
    clock.hear(limit, time_ms)
    with pytest.raises(InvalidArgument):
        clock.hear(limit + 2, time_ms)
    # What this coordinator has given itself is no news, even if its time was set back since.
    assert tick(clock, time_ms) == limit + 1
    clock.hear(limit + 1, 0)
    assert clock.last == limit + 1


def test_no_setting_lets_clients_use_the_stamps_up() -> None:
    clock = HybridClock(ahead_ms_max=1 << 60)
    with pytest.raises(InvalidArgument):
        clock.hear((1 << 64) - 1, 1 << 60)
    assert clock.last == 0


def test_a_clock_that_shows_nonsense_leaves_stamps() -> None:
    clock = HybridClock()
    assert tick(clock, 1 << 60) < 1 << 63
    assert tick(clock, TIME_MS) < 1 << 63
    # What this coordinator itself has stored is believed.
    other = HybridClock()
    other.advance(clock.last)
    assert tick(other, TIME_MS) == clock.last + 1


def test_now_separates_the_stamps_before_from_those_after() -> None:
    clock = HybridClock()
    before = tick(clock, TIME_MS)
    now = clock.now(TIME_MS - 5)
    assert now == before
    assert clock.now(TIME_MS + 5) == stamp_at(TIME_MS + 5) < tick(clock, TIME_MS + 5)


@given(st.lists(times_ms, min_size=1))
def test_stamps_rise_whatever_the_time_is(times: list[int]) -> None:
    clock = HybridClock()
    stamps = [tick(clock, time_ms) for time_ms in times]
    assert all(earlier < later for earlier, later in pairwise(stamps))
    assert stamps[0] > 0


class Lives(RuleBasedStateMachine):
    """A coordinator that is killed between any two groups, and what it has told by then.

    A group stores the bound with what was decided in it; a kill loses the open group, about which
    nobody has heard.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stored_bound = 0
        self.clock = HybridClock()
        self.open: list[int] = []
        self.durable: list[int] = []
        self.heard = 0
        self.heard_durably = 0

    @rule(time_ms=times_ms)
    def decide(self, time_ms: int) -> None:
        stamp = tick(self.clock, time_ms)
        assert stamp > self.heard
        self.open.append(stamp)

    @rule(stamp=st.integers(0, AHEAD_MS_MAX << COUNTER_BITS))
    def hear(self, stamp: int) -> None:
        self.clock.hear(stamp, 0)
        self.heard = max(self.heard, stamp)

    @rule(time_ms=times_ms)
    def tell(self, time_ms: int) -> None:
        self.heard = max(self.heard, self.clock.now(time_ms))

    @rule()
    def commit_group(self) -> None:
        self.stored_bound = bound_above(self.stored_bound, self.clock.last)
        self.clock.check(self.stored_bound)
        self.durable += self.open
        self.open = []
        self.heard_durably = self.heard

    @rule()
    def be_killed(self) -> None:
        self.open = []
        self.clock = HybridClock(self.stored_bound)
        self.heard = self.heard_durably

    @invariant()
    def rises_in_the_order_of_durability(self) -> None:
        assert self.durable == sorted(set(self.durable))
        assert not self.durable or self.clock.last >= self.durable[-1]
        assert self.clock.last >= self.heard_durably


TestLives = Lives.TestCase
