"""Rows that count as moved, and rows that are not judged at all."""

from __future__ import annotations

import math

import pytest
from benchmarks.quick.compare import (
    PART_MIN,
    ROUNDS_MIN,
    Comparison,
    Spread,
    Verdict,
    compared,
    moved,
    no_longer_measured,
    why_not_judged,
)
from benchmarks.quick.figures import ALL
from tests.quick.figures import figures

CLIENT = ("produce-100", "client")
COORDINATOR = ("produce-100", "coordinator")
TOTAL = ("produce-100", ALL)
BEFORE = (1.0, 1.02, 1.05)


def only(found: list[Comparison]) -> Comparison:
    (one,) = found
    return one


@pytest.mark.parametrize(
    ("kept", "today", "verdict"),
    [
        (BEFORE, BEFORE, Verdict.AS_BEFORE),
        (BEFORE, (1.5, 1.52, 1.6), Verdict.SLOWER),
        (BEFORE, (0.5, 0.52, 0.6), Verdict.FASTER),
        # Apart, but not by enough.
        (BEFORE, (1.1, 1.12, 1.14), Verdict.AS_BEFORE),
        (BEFORE, (0.9, 0.91, 0.94), Verdict.AS_BEFORE),
        # By enough, but a round of today was as good as an earlier one.
        (BEFORE, (1.04, 1.5, 1.6), Verdict.AS_BEFORE),
        (BEFORE, (0.4, 0.5, 1.0), Verdict.AS_BEFORE),
        # An earlier round was as bad as those of today.
        ((1.0, 1.02, 1.55), (1.5, 1.52, 1.6), Verdict.AS_BEFORE),
        # They touch.
        (BEFORE, (1.05, 1.5, 1.6), Verdict.AS_BEFORE),
        # One range lies within the other one.
        ((0.1, 1.0, 9.0), (1.5, 1.52, 1.6), Verdict.AS_BEFORE),
        ((1.5, 1.52, 1.6), (0.1, 1.0, 9.0), Verdict.AS_BEFORE),
    ],
)
def test_what_has_moved(
    kept: tuple[float, ...], today: tuple[float, ...], verdict: Verdict
) -> None:
    assert moved(Spread.of(kept), Spread.of(today)) is verdict
    found = only(compared(figures({CLIENT: kept}), figures({CLIENT: today})))
    assert found.verdict is verdict


def test_the_order_of_rounds_does_not_matter() -> None:
    kept, today = figures({CLIENT: (3.0, 1.0, 2.0)}), figures({CLIENT: (9.0, 5.0, 7.0)})
    found = only(compared(kept, today))
    assert found.kept == Spread(median=2.0, least=1.0, greatest=3.0)
    assert found.today == Spread(median=7.0, least=5.0, greatest=9.0)
    assert found.ratio == 3.5


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(0.49, Verdict.SLOWER), (0.5, Verdict.AS_BEFORE), (0.51, Verdict.AS_BEFORE)],
)
def test_the_limit_is_what_a_median_may_differ_by(limit: float, verdict: Verdict) -> None:
    kept, today = figures({CLIENT: (1.0, 1.0, 1.0)}), figures({CLIENT: (1.5, 1.5, 1.5)})
    assert only(compared(kept, today, limit=limit)).verdict is verdict


def test_without_kept_figures_everything_is_new() -> None:
    found = only(compared(None, figures({CLIENT: BEFORE})))
    assert (found.kept, found.ratio, found.verdict) == (None, None, Verdict.NEW)


def test_a_workload_that_was_not_kept_is_new_beside_others() -> None:
    other = ("enqueue-100", "client")
    slow = (2.0, 2.0, 2.0)
    found = compared(figures({CLIENT: BEFORE}), figures({CLIENT: slow, other: slow}))
    assert [one.verdict for one in found] == [Verdict.SLOWER, Verdict.NEW]


def test_a_kept_workload_that_is_not_done_today_is_not_compared() -> None:
    kept = figures({CLIENT: BEFORE, ("enqueue-100", "client"): BEFORE})
    assert [one.key.workload for one in compared(kept, figures({CLIENT: BEFORE}))] == [CLIENT[0]]


def test_a_kept_workload_that_is_gone_is_named() -> None:
    kept = figures(
        {CLIENT: BEFORE, ("gone", "client"): BEFORE, ("gone / produce-100", "elapsed"): BEFORE}
    )
    assert no_longer_measured(kept, ["produce-100", "enqueue-100"]) == [
        "gone",
        "gone / produce-100",
    ]


@pytest.mark.parametrize("kept_rounds", [1, ROUNDS_MIN - 1, ROUNDS_MIN])
@pytest.mark.parametrize("today_rounds", [1, ROUNDS_MIN - 1, ROUNDS_MIN])
def test_few_rounds_are_not_judged(kept_rounds: int, today_rounds: int) -> None:
    kept = figures({CLIENT: (1.0,) * kept_rounds})
    today = figures({CLIENT: (9.0,) * today_rounds})
    is_judged = kept_rounds == today_rounds == ROUNDS_MIN
    assert (why_not_judged(kept, today) is None) == is_judged
    found = only(compared(kept, today))
    assert found.verdict is (Verdict.SLOWER if is_judged else Verdict.NOT_JUDGED)
    assert found.ratio == 9.0


@pytest.mark.parametrize(
    ("python", "is_judged"),
    [
        ("CPython 3.11.7", True),
        ("CPython 3.11.2", True),
        ("CPython 3.12.7", False),
        ("PyPy 3.11.7", False),
    ],
)
def test_another_python_is_not_judged(python: str, is_judged: bool) -> None:
    kept, today = figures({CLIENT: BEFORE}), figures({CLIENT: (9.0,) * 3}, python=python)
    found = only(compared(kept, today))
    assert found.verdict is (Verdict.SLOWER if is_judged else Verdict.NOT_JUDGED)


def test_what_is_not_to_be_judged_has_no_verdict() -> None:
    kept, today = figures({CLIENT: BEFORE}), figures({CLIENT: (9.0,) * 3})
    assert only(compared(kept, today, is_judged=False)).verdict is Verdict.NOT_JUDGED


def test_nothing_at_all_is_as_before() -> None:
    found = only(compared(figures({CLIENT: (0.0,) * 3}), figures({CLIENT: (0.0,) * 3})))
    assert (found.ratio, found.verdict) == (None, Verdict.AS_BEFORE)


def test_something_where_nothing_was_is_slower() -> None:
    """No ratio says it, since JSON has no infinity."""
    found = only(compared(figures({CLIENT: (0.0,) * 3}), figures({CLIENT: BEFORE})))
    assert (found.ratio, found.verdict) == (None, Verdict.SLOWER)


def test_nothing_where_something_was_is_faster() -> None:
    found = only(compared(figures({CLIENT: BEFORE}), figures({CLIENT: (0.0,) * 3})))
    assert (found.ratio, found.verdict) == (0.0, Verdict.FASTER)


def idle_beside(total: float, coordinator: float) -> dict[tuple[str, str], tuple[float, ...]]:
    return {COORDINATOR: (coordinator,) * 3, TOTAL: (total,) * 3}


def test_a_process_that_hardly_takes_part_moves_nothing() -> None:
    """Its timers may take twice as long, which is not the workload's doing."""
    small = PART_MIN / 5
    coordinator, total = compared(
        figures(idle_beside(1.0, small)), figures(idle_beside(1.0, 3 * small))
    )
    assert coordinator.is_small
    assert coordinator.ratio == pytest.approx(3.0)
    assert coordinator.verdict is Verdict.AS_BEFORE
    assert not total.is_small


@pytest.mark.parametrize("before", [0.0, PART_MIN / 5])
def test_a_process_that_begins_to_take_part_is_slower(before: float) -> None:
    coordinator, _ = compared(figures(idle_beside(1.0, before)), figures(idle_beside(1.0, 0.5)))
    assert not coordinator.is_small
    assert coordinator.verdict is Verdict.SLOWER


def test_a_process_that_takes_no_part_any_more_is_faster() -> None:
    coordinator, _ = compared(figures(idle_beside(1.0, 0.5)), figures(idle_beside(1.0, 0.0)))
    assert not coordinator.is_small
    assert coordinator.verdict is Verdict.FASTER


def test_the_greater_total_says_what_is_small() -> None:
    """Else a workload that got faster would make its idle coordinator slower."""
    small = PART_MIN * 0.9
    coordinator, total = compared(
        figures(idle_beside(1.0, small / 2)), figures(idle_beside(0.1, small))
    )
    assert coordinator.verdict is Verdict.AS_BEFORE
    assert total.verdict is Verdict.FASTER


def test_ratios_have_no_floor() -> None:
    key = ("commits-100 / produce-100", "processor time")
    kept, today = figures({key: (0.001,) * 3}), figures({key: (0.002,) * 3})
    found = only(compared(kept, today))
    assert (found.verdict, found.is_small) == (Verdict.SLOWER, False)


def test_every_spread_is_finite() -> None:
    found = Spread.of((1.0, 2.0, 4.0))
    assert all(map(math.isfinite, (found.median, found.least, found.greatest)))
    assert found.is_wide
    assert not Spread.of(BEFORE).is_wide
