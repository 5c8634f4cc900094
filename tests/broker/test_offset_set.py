"""Sets of offsets against Python's sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.log.offset_set import CHUNK_BITS, OffsetSet, Range, chunk_masks, ranges_of_mask

# Near the chunks' borders, where mistakes live.
offsets = st.one_of(
    st.integers(0, 40),
    st.integers(CHUNK_BITS - 5, CHUNK_BITS + 5),
    st.integers(3 * CHUNK_BITS - 5, 3 * CHUNK_BITS + 5),
)
ranges = st.tuples(offsets, offsets).map(lambda pair: (min(pair), max(pair)))
range_lists = st.lists(ranges, max_size=6)


def members(of: list[tuple[int, int]]) -> set[int]:
    return {offset for first, last in of for offset in range(first, last + 1)}


def runs(of: set[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in sorted(of):
        if found and found[-1][1] + 1 == offset:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


def assert_same(subject: OffsetSet, model: set[int]) -> None:
    assert list(subject.ranges()) == runs(model)
    assert len(subject) == len(model)
    assert bool(subject) == bool(model)
    if model:
        assert subject.first() == min(model)
    else:
        with pytest.raises(ValueError, match=r".*"):
            subject.first()
    assert subject.chunks() == sorted({offset // CHUNK_BITS for offset in model})


@given(st.lists(st.tuples(st.booleans(), ranges), max_size=8), ranges)
def test_adding_and_discarding(steps: list[tuple[bool, Range]], probe: Range) -> None:
    subject = OffsetSet()
    model: set[int] = set()
    for adding, (first, last) in steps:
        if adding:
            subject.add(first, last)
            model |= members([(first, last)])
        else:
            subject.discard(first, last)
            model -= members([(first, last)])
    assert_same(subject, model)
    first, last = probe
    inside = model & members([probe])
    assert subject.intersects(first, last) == bool(inside)
    assert subject.mask(first, last) == sum(1 << (offset - first) for offset in inside)
    assert (first in subject) == (first in model)
    again = OffsetSet()
    for chunk in subject.chunks():
        again.set_chunk(chunk, subject.chunk(chunk))
    assert again == subject


@given(range_lists, range_lists)
def test_two_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    first, second = members(one), members(other)
    assert_same(OffsetSet(one).intersection(OffsetSet(other)), first & second)
    union = OffsetSet(one)
    union.update(OffsetSet(other))
    assert_same(union, first | second)
    difference = OffsetSet(one)
    twin = difference.copy()
    difference.difference_update(OffsetSet(other))
    assert_same(difference, first - second)
    assert_same(twin, first)
    assert (OffsetSet(one) == OffsetSet(other)) == (first == second)
    assert_same(OffsetSet(one).within(other), first & second)


@given(ranges)
def test_chunk_masks_cover_a_range_once(one: tuple[int, int]) -> None:
    covered = [
        offset
        for chunk, mask in chunk_masks(*one)
        for first, last in ranges_of_mask(mask, chunk * CHUNK_BITS)
        for offset in range(first, last + 1)
    ]
    assert covered == list(range(one[0], one[1] + 1))


def test_an_empty_range_touches_nothing() -> None:
    assert list(chunk_masks(5, 4)) == []
    assert list(chunk_masks(CHUNK_BITS, CHUNK_BITS - 1)) == []


@given(range_lists)
def test_a_range_without_end_costs_what_is_there(one: list[tuple[int, int]]) -> None:
    """Fuzzing found a nack of offsets 0 to 2^63 that took all memory."""
    everything = (0, 1 << 63)
    subject = OffsetSet(one)
    assert subject.intersects(*everything) == bool(one)
    assert_same(subject.within([everything, everything]), members(one))
    subject.discard(*everything)
    assert_same(subject, set())
