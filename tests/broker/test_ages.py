"""Ages without jumps of the wall clock, against a clock that knows better."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.broker.harness import ManualClock

from magnetar_broker.ages import JUMPS_MAX, Ages

SECOND_MS = 1_000
DAY_MS = 24 * 3_600 * SECOND_MS
steps = st.lists(
    st.tuples(
        st.integers(0, DAY_MS),
        st.integers(-2 * DAY_MS, 2 * DAY_MS).filter(lambda jump_ms: abs(jump_ms) >= SECOND_MS),
    ),
    max_size=2 * JUMPS_MAX,
)


@given(steps)
def test_nothing_is_ever_older_than_it_is(steps: list[tuple[int, int]]) -> None:
    clock = ManualClock()
    ages = Ages(clock, jump_ms_min=SECOND_MS)
    stamps = []
    stamp_ms = 0
    for passed_ms, jump_ms in steps:
        # As append times, which never decrease.
        stamp_ms = max(stamp_ms, clock.wall_ms())
        stamps += [(clock.wall_ms(), clock.monotonic_ms()), (stamp_ms, clock.monotonic_ms())]
        clock.advance(passed_ms)
        ages.look()
        clock.wall_offset_ms += jump_ms
        for stamp_ms, began_ms in stamps:
            assert ages.of(stamp_ms) <= clock.monotonic_ms() - began_ms


@given(steps)
def test_jumps_forward_alone_leave_every_age_as_it_is(steps: list[tuple[int, int]]) -> None:
    clock = ManualClock()
    ages = Ages(clock, jump_ms_min=SECOND_MS)
    stamps = []
    for passed_ms, jump_ms in steps[:JUMPS_MAX]:
        stamps.append((clock.wall_ms(), clock.monotonic_ms()))
        clock.advance(passed_ms)
        clock.wall_offset_ms += abs(jump_ms)
        for stamp_ms, began_ms in stamps:
            assert ages.of(stamp_ms) == clock.monotonic_ms() - began_ms


def test_a_clock_that_is_set_forward_and_back_leaves_earlier_ages_as_they_are() -> None:
    clock = ManualClock()
    ages = Ages(clock, jump_ms_min=SECOND_MS)
    stamp_ms = clock.wall_ms()
    for jump_ms in (DAY_MS, -DAY_MS // 2, -DAY_MS // 2):
        clock.wall_offset_ms += jump_ms
        clock.advance(7)
        ages.look()
    assert ages.of(stamp_ms) == 21
    assert ages.jumps == ()
