"""docs/protocol/rules.md, rule c: what a watermark covers, and that it stays covered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.broker.harness import txn

from magnetar_broker.transactions.watermark import Watermark, Watermarks, clipped, intersected
from magnetar_core.ids import TxnID

COUNTERS = range(24)
live_ranges = st.lists(
    st.tuples(st.integers(0, 22), st.integers(0, 4)).map(lambda p: (p[0], sum(p))), max_size=4
)
Word = tuple[int, list[tuple[int, int]]]
words = st.tuples(st.integers(0, 20), live_ranges)


def covered_by(watermark: Watermark, incarnation: int = 1) -> set[int]:
    return {
        counter for counter in COUNTERS if watermark.covers(txn(counter, incarnation=incarnation))
    }


def meant_by(low_watermark: int, live: list[tuple[int, int]]) -> set[int]:
    alive = {one for first, last in live for one in range(first, last + 1)}
    return set(range(low_watermark)) - alive


@given(words)
def test_a_word_covers_what_it_says(word: Word) -> None:
    watermark = Watermark().advanced(1, *word)
    assert covered_by(watermark) == meant_by(*word)
    assert covered_by(watermark, incarnation=2) == set()
    assert covered_by(watermark, incarnation=0) == set()


@given(st.lists(words, max_size=6))
def test_what_is_covered_stays_covered(many: list[tuple[int, list[tuple[int, int]]]]) -> None:
    watermark, model, highest = Watermark(), set(), 0
    for low_watermark, live in many:
        watermark = watermark.advanced(1, low_watermark, live)
        if low_watermark >= highest:
            highest = low_watermark
            model |= meant_by(low_watermark, live)
        assert covered_by(watermark) == model


@given(words, words)
def test_a_late_copy_changes_nothing(one: Word, other: Word) -> None:
    older, newer = sorted((one, other), key=lambda word: word[0])
    both = Watermark().advanced(1, *older).advanced(1, *newer)
    late = both.advanced(1, *older)
    if older[0] < newer[0]:
        assert late == both
    assert covered_by(late) >= covered_by(both)


def test_a_newer_incarnation_starts_over() -> None:
    watermark = Watermark().advanced(1, 9, [(2, 3)])
    newer = watermark.advanced(2, 4, [(1, 1), (8, 9)])
    assert covered_by(newer, incarnation=2) == {0, 2, 3}
    assert newer.advanced(1, 99, []) is newer


def test_coordinators_do_not_know_each_other() -> None:
    watermarks = Watermarks()
    watermarks.set(3, Watermark().advanced(2, 5, []))
    assert watermarks.covers(txn(4, tcid=3, incarnation=2))
    assert not watermarks.covers(txn(4, tcid=4, incarnation=2))
    assert watermarks.is_superseded(txn(4, tcid=3, incarnation=1))
    assert not watermarks.is_superseded(txn(4, tcid=3, incarnation=2))
    assert not watermarks.is_superseded(txn(4, tcid=4, incarnation=1))
    assert watermarks.of(9) == Watermark()


TXN_IDS = st.builds(txn, st.integers(0, 23), tcid=st.integers(0, 2), incarnation=st.integers(0, 3))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), words), max_size=8),
    st.lists(TXN_IDS, unique=True, max_size=40),
)
def test_many_are_covered_as_each_of_them(
    told: list[tuple[int, int, Word]], txn_ids: list[TxnID]
) -> None:
    """Also those of former incarnations, whose last watermark counts."""
    watermarks = Watermarks()
    for tcid, incarnation, word in told:
        watermarks.set(tcid, watermarks.of(tcid).advanced(incarnation, *word))
    assert watermarks.covered(txn_ids) == [one for one in txn_ids if watermarks.covers(one)]


class Compared(int):
    """A counter that counts how often it is compared."""

    count = 0

    def __lt__(self, other: object) -> bool:
        Compared.count += 1
        return int.__lt__(self, other)  # type: ignore[operator]

    def __le__(self, other: object) -> bool:
        Compared.count += 1
        return int.__le__(self, other)  # type: ignore[operator]


def test_a_watermark_of_very_many_ranges_costs_what_they_are() -> None:
    """8,000 ranges took 2.5 s, in which nobody else was served."""
    ranges = tuple((Compared(10 * n), Compared(10 * n + 3)) for n in range(5_000))
    others = tuple((Compared(10 * n + 2), Compared(10 * n + 5)) for n in range(5_000))
    Compared.count = 0
    common = intersected(ranges, others)
    assert common == tuple((10 * n + 2, 10 * n + 3) for n in range(5_000))
    assert Compared.count < 20 * 5_000


@given(
    st.sets(st.integers(0, 60)),
    st.sets(st.integers(0, 60)),
)
def test_ranges_have_in_common_what_their_numbers_have(one: set[int], other: set[int]) -> None:
    def ranges(numbers: set[int]) -> tuple[tuple[int, int], ...]:
        return clipped([(number, number) for number in numbers], 0, 100)

    found = intersected(ranges(one), ranges(other))
    assert {n for first, last in found for n in range(first, last + 1)} == one & other
    assert list(found) == sorted(found)
