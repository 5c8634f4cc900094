"""PIP-31, Dedup Cursor, and rule l: sequences count messages, from 0 without gaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.transactions.producers import RECENT_BATCHES_MAX, Producers, check_sequence
from magnetar_core.errors import InvalidArgument, SequenceGap


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 10))
def test_a_batch_is_next_or_a_repeat_or_refused(expected: int, sequence: int, count: int) -> None:
    known = set(range(expected))
    batch = set(range(sequence, sequence + count))
    if sequence > expected:
        with pytest.raises(SequenceGap) as raised:
            check_sequence(expected, sequence, count)
        assert raised.value.details["expected"] == str(expected)
    elif batch <= known:
        assert check_sequence(expected, sequence, count)
    elif not batch & known:
        assert not check_sequence(expected, sequence, count)
    else:
        with pytest.raises(InvalidArgument):
            check_sequence(expected, sequence, count)


def test_an_unknown_producer_starts_at_0() -> None:
    producers = Producers()
    with pytest.raises(SequenceGap):
        producers.check(1, 5, 1)
    assert not producers.check(1, 0, 5)
    producers.accept(1, 0, 5, 100, now_ms=10, run_time_ms=10)
    assert producers.check(1, 0, 5)
    assert not producers.check(1, 5, 1)
    assert not producers.check(2, 0, 1), "sequences are per producer"


def test_repeats_of_the_newest_batches_are_told_where_they_lie() -> None:
    producers = Producers()
    for number in range(RECENT_BATCHES_MAX + 1):
        producers.accept(1, number, 1, 100 + number, now_ms=number, run_time_ms=number)
    assert producers.entry_of(1, 0) is None
    assert producers.entry_of(1, 1) == 101
    assert producers.entry_of(1, RECENT_BATCHES_MAX) == 100 + RECENT_BATCHES_MAX
    assert producers.entry_of(2, 0) is None


def test_idle_producers_are_forgotten() -> None:
    producers = Producers()
    producers.accept(1, 0, 1, 0, now_ms=10, run_time_ms=10)
    producers.accept(2, 0, 1, 1, now_ms=10, run_time_ms=20)
    assert producers.idle_since(20) == [1]
    producers.forget(1)
    assert list(producers.dirty) == [2]
    assert len(producers) == 1
    assert not producers.check(1, 0, 1)
