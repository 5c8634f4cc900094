"""docs/spark.md, The source: which offsets a batch reads, and how they are cut for tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_spark.offsets import StreamOffset, to_places
from magnetar_spark.planning import Range, limited, new_count, split

SIZES = st.lists(st.integers(0, 1_000), min_size=1, max_size=8)


def test_a_limit_is_shared_out_by_size() -> None:
    begin = {"a": {0: 100, 1: 0}, "b": {0: 0}}
    end = {"a": {0: 1_100, 1: 3_000}, "b": {0: 0}}
    assert limited(begin, end, 400) == {"a": {0: 200, 1: 300}, "b": {0: 0}}
    assert limited(begin, end, 4_000) == end


def test_no_partition_starves() -> None:
    assert limited({"a": {0: 0, 1: 0}}, {"a": {0: 1, 1: 1_000_000}}, 10) == {"a": {0: 1, 1: 9}}


@given(SIZES, st.integers(1, 2_000))
def test_a_limit_is_kept_and_moves_on(sizes: list[int], count_max: int) -> None:
    begin = {"a": dict.fromkeys(range(len(sizes)), 5)}
    end = {"a": {number: 5 + size for number, size in enumerate(sizes)}}
    found = limited(begin, end, count_max)
    taken = new_count(begin, found)
    assert taken <= max(count_max + len(sizes), len(sizes))
    assert all(5 <= found["a"][one] <= end["a"][one] for one in end["a"])
    assert taken > 0 or sum(sizes) == 0


@given(SIZES, st.integers(0, 50), st.none() | st.integers(1, 500))
def test_pieces_are_the_whole(
    sizes: list[int], min_partitions: int, records_max: int | None
) -> None:
    ranges = [Range("a", 1, number, 10, 10 + size) for number, size in enumerate(sizes)]
    pieces = split(ranges, min_partitions, records_max)
    assert records_max is None or all(one.count <= records_max for one in pieces)
    assert len(pieces) >= min(min_partitions, sum(sizes))
    assert all(one.count > 0 for one in pieces)
    for one in ranges:
        at = one.start
        for piece in pieces:
            if piece.partition == one.partition:
                assert piece.start == at
                at = piece.end
        assert at == one.end


def test_offsets_come_back_as_the_same_text() -> None:
    offset = StreamOffset({"b": {10: 1, 9: 2}, "a": {0: 3}}, {"b": 2, "a": 1}, {"a": {0: 0}})
    written = offset.to_json()
    assert list(written) == ["a", "b", "@magnetar"]
    assert list(written["b"]) == ["9", "10"]
    assert StreamOffset.from_json(written) == offset
    assert StreamOffset.from_json(written).to_json() == written


@pytest.mark.parametrize(
    "bad", [[], {"a": 1}, {"a": {"x": 1}}, {"a": {"-1": 1}}, {"a": {"0": "1"}}]
)
def test_what_is_no_offset(bad: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        to_places(bad)
