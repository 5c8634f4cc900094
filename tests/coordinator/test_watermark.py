"""The low watermark: it covers what has durably ended, never anything else, and never goes back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar_coordinator.transactions.watermark import Watermark, WatermarkTracker

AGE_MS = 100


def tracker(next_counter: int = 0, ranges_max: int = 1_024) -> WatermarkTracker:
    return WatermarkTracker(next_counter, listed_age_ms_min=AGE_MS, ranges_max=ranges_max)


def test_with_nothing_live_all_that_was_issued_is_covered() -> None:
    assert tracker(7).advance(0) == Watermark(7)


def test_a_young_transaction_holds_it_back() -> None:
    marks = tracker(3)
    marks.opened(3, 1_000)
    marks.opened(4, 1_000)
    marks.ended_durably(4)
    assert marks.advance(1_000 + AGE_MS - 1) == Watermark(3)
    marks.ended_durably(3)
    assert marks.advance(1_000 + AGE_MS - 1) == Watermark(5)


def test_an_old_transaction_is_listed_instead() -> None:
    """One that stays open for days pins nothing."""
    marks = tracker()
    for counter in range(6):
        marks.opened(counter, counter * AGE_MS)
    marks.ended_durably(2)
    marks.ended_durably(4)
    assert marks.advance(4 * AGE_MS) == Watermark(5, ((0, 1), (3, 3)))
    assert marks.advance(9 * AGE_MS) == Watermark(6, ((0, 1), (3, 3), (5, 5)))


def test_with_too_many_ranges_it_stays() -> None:
    marks = tracker(ranges_max=2)
    for counter in range(0, 10, 2):
        marks.opened(counter, 0)
    assert marks.advance(AGE_MS) == Watermark(4, ((0, 0), (2, 2)))
    marks.ended_durably(0)
    assert marks.advance(AGE_MS) == Watermark(6, ((2, 2), (4, 4)))


def test_ranges_that_break_up_do_not_take_it_back() -> None:
    marks = tracker(ranges_max=2)
    for counter in range(9):
        marks.opened(counter, 0)
    assert marks.advance(AGE_MS) == Watermark(9, ((0, 8),))
    for counter in (1, 3, 5, 7):
        marks.ended_durably(counter)
    # What has ended is listed as live: cautious, never wrong.
    assert marks.advance(AGE_MS) == Watermark(9, ((0, 0), (2, 8)))


def test_run_time_set_back_by_a_restart_does_not_take_it_back() -> None:
    marks = tracker()
    marks.opened(0, 0)
    marks.opened(1, 10)
    assert marks.advance(AGE_MS).low_watermark == 1
    assert marks.advance(0).low_watermark == 1


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1_000)), max_size=80), st.integers(1, 4))
def test_never_covers_what_is_live(steps: list[tuple[bool, int]], ranges_max: int) -> None:
    marks = tracker(ranges_max=ranges_max)
    live: list[int] = []
    issued = run_time_ms = last = 0
    for opens, number in steps:
        run_time_ms += number % 40
        if opens or not live:
            marks.opened(issued, run_time_ms)
            live.append(issued)
            issued += 1
        else:
            marks.ended_durably(live.pop(number % len(live)))
        watermark = marks.advance(run_time_ms)
        assert not any(watermark.covers(counter) for counter in live)
        assert len(watermark.live) <= ranges_max
        assert last <= watermark.low_watermark <= issued
        last = watermark.low_watermark
        ends = [end for pair in watermark.live for end in pair]
        assert ends == sorted(ends)
        assert all(end < watermark.low_watermark for end in ends)
    for counter in live:
        marks.ended_durably(counter)
    assert marks.advance(run_time_ms) == Watermark(issued)
