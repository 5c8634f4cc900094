"""A set of offsets as ranges behaves as a set."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.messaging.interval_set import IntervalSet

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 30), st.integers(0, 8)),
    max_size=30,
)


@settings(max_examples=200)
@given(STEPS, st.integers(0, 30), st.integers(0, 8))
def test_it_is_a_set(steps: list[tuple[str, int, int]], first: int, length: int) -> None:
    ranges, model = IntervalSet(), set[int]()
    for step, low, span in steps:
        offsets = range(low, low + span + 1)
        if step == "add":
            ranges.add(low, low + span)
            model.update(offsets)
        else:
            ranges.remove(low, low + span)
            model.difference_update(offsets)
        kept = list(ranges)
        assert [one for low, high in kept for one in range(low, high + 1)] == sorted(model)
        assert all(a[1] + 1 < b[0] for a, b in pairwise(kept))
        assert len(ranges) == len(model)
        assert bool(ranges) == bool(model)
    within = ranges.within(first, first + length)
    expected = sorted(model & set(range(first, first + length + 1)))
    assert [one for low, high in within for one in range(low, high + 1)] == expected
    assert [one for one in range(40) if one in ranges] == sorted(model)
