"""docs/spark.md, The source: which offsets a batch reads, and how they are cut for tasks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_spark.offsets import METADATA, Places, StreamOffset, to_places
from magnetar_spark.options.source import source_options
from magnetar_spark.planning import Range, limited, new_count, split
from magnetar_spark.source import RangePartition, StreamReader

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


@pytest.mark.parametrize("start", [None, {}, {"a": {}}])
def test_a_first_batch_says_where_it_began_even_nowhere(start: Places | None) -> None:
    """As that of a pattern which no topic matches yet."""
    offset = StreamOffset({}, {}, start)
    assert StreamOffset.from_json(offset.to_json()) == offset
    assert ("start" in offset.to_json()[METADATA]) == (start is not None)


def test_a_batch_reads_from_the_end_of_the_one_before() -> None:
    """A partition that is new since then, and a topic that was made anew, from their beginning."""
    before = StreamOffset({"a": {0: 2, 1: 3}, "anew": {0: 9}}, {"a": 1, "anew": 2})
    end = StreamOffset(
        {"a": {0: 5, 1: 3, 2: 7}, "anew": {0: 4}, "new": {0: 1}}, {"a": 1, "anew": 3, "new": 4}
    )
    assert _ranges(before.to_json(), end.to_json()) == [
        Range("a", 1, 0, 2, 5),
        Range("a", 1, 2, 0, 7),
        Range("anew", 3, 0, 0, 4),
        Range("new", 4, 0, 0, 1),
    ]


def test_the_first_batch_reads_from_where_its_end_says_that_it_began() -> None:
    end = StreamOffset({"a": {0: 5, 1: 6}}, {"a": 1}, start={"a": {0: 4, 1: 6}})
    assert _ranges({}, end.to_json()) == [Range("a", 1, 0, 4, 5)]


def _ranges(before: dict[str, Any], end: dict[str, Any]) -> list[Range]:
    options = {"magnetar.bootstrap.servers": "nowhere:1", "subscribePattern": ".*"}
    reader = StreamReader(source_options(options, streaming=True))
    planned = reader.partitions(before, end)
    return [one.range for one in planned if isinstance(one, RangePartition)]


@pytest.mark.parametrize(
    "bad", [[], {"a": 1}, {"a": {"x": 1}}, {"a": {"-1": 1}}, {"a": {"0": "1"}}]
)
def test_what_is_no_offset(bad: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        to_places(bad)
